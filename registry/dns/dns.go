// Package dns turns host names in snapshots into addresses, so that nothing
// behind it ever waits for a resolver.
//
// A name is resolved again when the TTL of its records ends, or at a fixed
// interval where there is none; a name that cannot be resolved keeps the addresses
// it had. Where a name has IPv4 and IPv6 addresses, the IPv4 ones are used: both
// usually lead to the same process, which would then count as two endpoints. For the
// same reason IPv6 ones do not take the place of IPv4 ones while it is not known
// whether those have gone.
package dns

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/remora-proxy/remora/registry"
)

// Options configures a Watcher. The zero value is fine.
type Options struct {
	// Interval is the time between two resolutions of a name that failed, or
	// whose TTL is not known; of one that has no addresses yet it is the longest.
	// Default: 30 s
	Interval time.Duration

	Timeout time.Duration // of one resolution. Default: 5 s

	// Lookup returns the addresses of a host name; it is called from several
	// goroutines. Default: Go's own resolver.
	Lookup func(ctx context.Context, host string) (Answer, error)

	// Known is what the Watcher begins with, of one whose place it takes; a name that
	// comes up more than 5 min later is not among it. It is not changed.
	Known Known

	Logger *slog.Logger // nil: silent

	gather time.Duration // how long an answer waits for those of other names
	until  time.Time     // when Known is too old for names that are new
}

const (
	defaultInterval = 30 * time.Second
	defaultTimeout  = 5 * time.Second
	defaultGather   = 100 * time.Millisecond

	// minTTL and maxTTL bound what a name server can ask of us: a storm of
	// queries, or addresses that are gone for good.
	minTTL = time.Second
	maxTTL = 5 * time.Minute

	// parallel bounds the lookups that one watch has out at a time.
	parallel = 8

	// maxAddrs bounds the endpoints that one name becomes.
	maxAddrs = 256
)

// Watcher delivers another watcher's snapshots with each host name replaced by
// the addresses it resolves to, one endpoint each.
type Watcher struct {
	inner  registry.Watcher
	opt    Options
	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	mu      sync.Mutex // guards closed against tasks.Add, and watches
	closed  bool
	tasks   sync.WaitGroup
	watches map[*watch]struct{} // that have not ended
}

var _ registry.Watcher = (*Watcher)(nil)

// New returns a Watcher of what inner watches. It must be closed.
func New(inner registry.Watcher, opt Options) *Watcher {
	if opt.Interval <= 0 {
		opt.Interval = defaultInterval
	}
	if opt.Timeout <= 0 {
		opt.Timeout = defaultTimeout
	}
	if opt.gather <= 0 {
		opt.gather = defaultGather
	}
	if opt.Lookup == nil {
		opt.Lookup = resolver{new(net.Dialer).DialContext}.lookup
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	opt.until = time.Now().Add(maxTTL)
	w := &Watcher{inner: inner, opt: opt, watches: make(map[*watch]struct{})}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// Watch implements registry.Watcher. The first snapshot waits until one endpoint
// has an address, or all names have been asked for once.
func (w *Watcher) Watch(service string, notify func(*registry.Snapshot)) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return func() {}
	}
	ctx, cancel := context.WithCancel(w.ctx)
	t := &watch{
		opt:    &w.opt,
		ctx:    ctx,
		notify: notify,
		newest: make(chan *registry.Snapshot, 1),
		answer: make(chan answer, parallel),
		asking: make(map[string]struct{}),
		names:  make(map[string]name),
	}
	w.watches[t] = struct{}{}
	w.tasks.Go(func() {
		defer w.end(t)
		defer w.inner.Watch(service, t.offer)()
		t.run()
	})
	return cancel
}

func (w *Watcher) end(t *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.watches, t)
}

// Close ends all watches and returns when they have ended. It does not close the
// inner watcher, and must not be called from a notify function.
func (w *Watcher) Close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.cancel()
	w.tasks.Wait()
	return nil
}

// answer is the outcome of one lookup.
type answer struct {
	host string
	name name
}

// watch follows one service. All but newest belongs to the goroutine of run.
type watch struct {
	opt    *Options
	ctx    context.Context
	notify func(*registry.Snapshot)
	newest chan *registry.Snapshot // the inner watcher's last; capacity 1

	in     *registry.Snapshot // what is being served
	out    *registry.Snapshot // what was delivered; nil: nothing yet
	mu     sync.Mutex         // held to change names, and by others than run to read them
	names  map[string]name    // of in
	answer chan answer        // capacity parallel, so that no lookup waits for run
	asking map[string]struct{}
	news   time.Time // of the first answer that was not delivered yet; zero: none
}

// offer takes the inner watcher's snapshot and replaces one not yet looked at.
// It is called from one goroutine at a time.
func (t *watch) offer(s *registry.Snapshot) {
	select {
	case <-t.newest:
	default:
	}
	t.newest <- s
}

func (t *watch) run() {
	wake := time.NewTimer(0)
	defer wake.Stop()
	for {
		select {
		case <-t.ctx.Done():
			// Lookups that are out end with ctx and leave their answers in the
			// channel. Waiting for them makes Close leave nothing behind.
			for range t.asking {
				<-t.answer
			}
			return
		case t.in = <-t.newest:
			t.news = time.Time{} // who is new waits for nobody
			t.forget()
		case got := <-t.answer:
			delete(t.asking, got.host)
			t.learn(got.host, got.name)
			if t.news.IsZero() {
				t.news = time.Now()
			}
		case <-wake.C:
		}
		if !t.gathering() {
			t.news = time.Time{}
			t.deliver()
		}
		t.ask()
		wake.Reset(t.sleep())
	}
}

// gathering tells that an answer waits for others that may be about to come.
func (t *watch) gathering() bool {
	return len(t.asking) > 0 && !t.news.IsZero() && time.Since(t.news) < t.opt.gather
}

// sleep is the time until there is something to do that nobody wakes run for.
func (t *watch) sleep() time.Duration {
	d := time.Hour
	if !t.news.IsZero() {
		d = time.Until(t.news.Add(t.opt.gather))
	}
	if len(t.asking) == parallel {
		return d
	}
	for host, n := range t.names {
		if _, out := t.asking[host]; !out {
			d = min(d, time.Until(n.due))
		}
	}
	return d
}

// forget drops names that are no longer in use, and adds the new ones.
func (t *watch) forget() {
	names := make(map[string]name)
	for _, e := range t.in.Endpoints {
		if _, host, isIP, err := registry.ParseAddr(e.Addr); err == nil && !isIP {
			n, used := t.names[host]
			if !used {
				n = t.opt.known(host)
			}
			names[host] = n
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names = names
}

// ask starts the lookups of names that are due.
func (t *watch) ask() {
	now := time.Now()
	for host, n := range t.names {
		if len(t.asking) == parallel {
			return
		}
		if _, out := t.asking[host]; !out && !n.due.After(now) {
			t.asking[host] = struct{}{}
			go func() { t.answer <- answer{host, t.lookup(host)} }()
		}
	}
}

func (t *watch) lookup(host string) name {
	ctx, cancel := context.WithTimeout(t.ctx, t.opt.Timeout)
	defer cancel()
	a, err := t.opt.Lookup(ctx, host)
	return name{addrs: usable(a.Addrs), lacks: a.Lacks, err: err, due: time.Now().Add(t.opt.pause(a.TTL, err))}
}

// pause is the time from an answer to the next lookup: its TTL, if it has one,
// and up to a tenth more, so that many sidecars do not ask at once.
func (o *Options) pause(ttl time.Duration, err error) time.Duration {
	d := o.Interval
	if err == nil && ttl >= 0 {
		d = min(max(ttl, minTTL), maxTTL)
	}
	return d + rand.N(d/10+1)
}

// soon is the time to the next lookup of a name that has no addresses yet: longer each
// time.
func (o *Options) soon(tries int) time.Duration {
	d := min(minTTL<<min(tries-1, 10), o.Interval)
	return d + rand.N(d/10+1)
}

// usable returns the addresses to use, sorted: a resolver that rotates its
// answers does not look like a change.
func usable(addrs []netip.Addr) []netip.Addr {
	var v4, v6 []netip.Addr
	for _, a := range addrs {
		if a = a.Unmap(); a.Is4() {
			v4 = append(v4, a)
		} else {
			v6 = append(v6, a)
		}
	}
	use := v4
	if len(use) == 0 {
		use = v6
	}
	slices.SortFunc(use, netip.Addr.Compare)
	use = slices.Compact(use)
	return use[:min(len(use), maxAddrs)]
}

// learn takes the outcome of a lookup. A failure, an answer without an address, or one of
// IPv6 ones where there may be IPv4 ones, leaves the addresses of before.
func (t *watch) learn(host string, n name) {
	old, used := t.names[host]
	if !used {
		return
	}
	if n.lacks != nil && len(old.addrs) > 0 && old.addrs[0].Is4() {
		n.err, n.due = n.lacks, time.Now().Add(t.opt.pause(-1, n.lacks))
	}
	if n.err != nil || len(n.addrs) == 0 {
		if old.err == nil {
			t.opt.Logger.Warn("host name does not resolve; its last addresses stay in use",
				"host", host, "addresses", len(old.addrs), "error", n.err)
		}
		n.addrs = old.addrs
		if len(n.addrs) == 0 {
			n.tries = old.tries + 1
			n.due = time.Now().Add(t.opt.soon(n.tries))
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names[host] = n
}

// deliver passes on what is known, if it is news.
func (t *watch) deliver() {
	if t.in == nil || t.ctx.Err() != nil {
		return
	}
	if len(t.names) == 0 {
		if t.out != t.in {
			t.out = t.in
			t.notify(t.out)
		}
		return
	}
	endpoints := t.resolved()
	if t.out == nil && len(endpoints) == 0 && t.unasked() {
		return
	}
	if t.out != nil && t.out.Source == t.in.Source && slices.Equal(t.out.Endpoints, endpoints) {
		return
	}
	t.out = registry.NewSnapshot(t.in.Service, t.in.Source, time.Now(), endpoints)
	t.notify(t.out)
}

func (t *watch) unasked() bool {
	for _, n := range t.names {
		if n.due.IsZero() {
			return true
		}
	}
	return false
}

func (t *watch) resolved() []registry.Endpoint {
	endpoints := make([]registry.Endpoint, 0, len(t.in.Endpoints))
	for _, e := range t.in.Endpoints {
		_, host, isIP, err := registry.ParseAddr(e.Addr)
		if err != nil {
			continue
		}
		if isIP {
			endpoints = append(endpoints, e)
			continue
		}
		_, port, _ := net.SplitHostPort(e.Addr) // ParseAddr has done the same
		for _, a := range t.names[host].addrs {
			e.Addr, e.Host = net.JoinHostPort(a.String(), port), host
			endpoints = append(endpoints, e)
		}
	}
	return registry.Normalize(endpoints)
}
