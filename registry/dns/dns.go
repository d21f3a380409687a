// Package dns replaces host names in snapshots by addresses. It stands between a registry and
// the users of its snapshots, so that these never wait for a resolver. It knows neither what
// endpoints are used for nor whether they are healthy.
//
// A name is resolved again when the TTL of its records ends, or at a fixed interval if there
// is none. A name that can't be resolved keeps its addresses. If a name has IPv4 and IPv6
// addresses, only the IPv4 addresses are endpoints: both usually lead to the same process, which
// would count as two. For the same reason IPv6 addresses don't replace IPv4 addresses while it is
// unknown whether the name still has these. Others has an IPv6 address for each IPv4 address. Any
// of the name's will do: all addresses of a name are taken for one service (RFC 8305 section 4).
//
// A name of SRV records (RFC 2782) stands for the targets with the best priority, which have ports and weights. Targets
// are names, and are resolved like any other. Package internal/srvname tells which names are meant.
package dns

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/remora-proxy/remora/internal/srvname"
	"github.com/remora-proxy/remora/internal/tasks"
	"github.com/remora-proxy/remora/internal/unixaddr"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/reach"
)

// Options configures a Watcher. The zero value is usable.
type Options struct {
	// Interval is the time between two resolutions of a name if the last one failed or its TTL
	// is unknown. For a name without addresses it is the maximum. Default: 30 s
	Interval time.Duration

	Timeout time.Duration // of one resolution. Default: 5 s

	// Lookup returns the addresses of a host name, or the targets of a name of SRV records. It is called from several goroutines.
	// Default: Go's own resolver.
	Lookup func(ctx context.Context, host string) (Answer, error)

	// Known is the initial knowledge, from the Watcher that this one replaces. Names that are
	// new more than 5 min later don't use it. The Watcher does not change it.
	Known Known

	Turns   *Turns       // bounds the lookups of several Watchers; nil means no bound
	Others  *Others      // gets the second addresses of names; nil means that nobody wants them
	Failing *Failing     // gets the names that don't resolve; nil means that nobody wants them
	Reach   *reach.Rule  // which addresses endpoints may have; nil means any
	Logger  *slog.Logger // nil means no logs

	gather time.Duration // how long an answer waits for answers for other names
	until  time.Time     // after this time, Known is too old for new names
}

const (
	defaultInterval = 30 * time.Second
	defaultTimeout  = 5 * time.Second
	defaultGather   = 100 * time.Millisecond

	// minTTL and maxTTL limit the effect of a name server: no storm of queries, and no
	// addresses that are used forever after they are gone.
	minTTL = time.Second
	maxTTL = 5 * time.Minute

	parallel = 8   // concurrent lookups of one watch
	maxAddrs = 256 // endpoints of one name
)

// Watcher delivers another watcher's snapshots with an endpoint for each address of a name. A registry may have thousands of
// watches, and there may be thousands of Watchers of one watch each. So one goroutine looks at all watches of a Watcher, as long as there
// is something new, and lookups have goroutines of their own.
type Watcher struct {
	inner registry.Watcher
	opt   Options
	tasks *tasks.Group

	closing sync.Once
	mu      sync.Mutex
	watches map[*watch]struct{} // running watches; nil after Close
	due     []*watch            // those that are to be looked at, each once
	looking bool                // a goroutine looks at them until there are none
}

var _ registry.Watcher = (*Watcher)(nil)

// New returns a Watcher for the snapshots of inner. The caller must close it.
func New(inner registry.Watcher, opt Options) *Watcher {
	opt.Interval = cmp.Or(opt.Interval, defaultInterval)
	opt.Timeout = cmp.Or(opt.Timeout, defaultTimeout)
	opt.gather = cmp.Or(opt.gather, defaultGather)
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
	if opt.Lookup == nil {
		opt.Lookup = resolver{new(net.Dialer).DialContext}.lookup
	}
	opt.until = time.Now().Add(maxTTL)
	return &Watcher{inner: inner, opt: opt, tasks: tasks.New(), watches: make(map[*watch]struct{})}
}

// look looks at watches until there is nothing new for any.
func (w *Watcher) look() {
	for due := w.takeDue(); len(due) > 0; due = w.takeDue() {
		for _, t := range due {
			t.look()
		}
	}
}

func (w *Watcher) takeDue() (due []*watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	due, w.due = w.due, nil
	w.looking = len(due) > 0
	for _, t := range due {
		t.isDue = false
	}
	return due
}

// Watch implements registry.Watcher. The first snapshot is delivered when one endpoint has an
// address, or all names have been looked up once.
func (w *Watcher) Watch(service string, notify func(*registry.Snapshot)) (stop func()) {
	ctx, cancel := context.WithCancel(w.tasks.Context())
	t := &watch{w: w, ctx: ctx, notify: notify}
	if !w.tasks.Go(func() { // the inner watcher may read a file
		t.reach = w.opt.Reach.Watch(service, t.setDue)
		t.unwatch = w.inner.Watch(service, t.put)
		w.add(t)
		t.setDue()
	}) {
		return cancel
	}
	return func() {
		cancel()
		t.setDue()
	}
}

// add adds a watch that is complete.
func (w *Watcher) add(t *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watches[t] = struct{}{}
}

// Close ends all watches and waits for their end. It does not close the inner watcher, and
// must not be called from a notify function. Calling it again does nothing, and waits, too.
func (w *Watcher) Close() error {
	w.closing.Do(func() {
		w.tasks.Close()
		w.mu.Lock()
		running := w.watches
		w.watches = nil
		w.mu.Unlock()
		for t := range running {
			t.end()
		}
	})
	return nil
}

// watch follows one service. The goroutine that looks owns all fields without another remark; it sees a watch once those from w to
// unwatch are set.
type watch struct {
	w       *Watcher
	ctx     context.Context // ends with the watch
	notify  func(*registry.Snapshot)
	reach   *reach.Watch
	unwatch func()          // stops the watch of the inner watcher
	direct  map[string]bool // addresses of in, if the rule asks for them

	// Guarded by w.mu.
	isDue    bool               // it is in w.due
	newest   *registry.Snapshot // the inner watcher's last snapshot; nil once it was taken
	outcomes []outcome          // of lookups; they are taken together

	in     *registry.Snapshot  // the current snapshot of the inner watcher
	out    *registry.Snapshot  // the last delivered snapshot; nil means none
	limit  registry.Limit      // of what may be used
	mu     sync.Mutex          // held to change names, and to read them on another goroutine
	names  map[string]name     // host names in in
	asking map[string]struct{} // host names whose lookup is in flight
	news   time.Time           // time of the first undelivered answer; zero means none
	timer  *time.Timer         // makes the watch due; nil before the first need
}

// outcome is the result of a lookup.
type outcome struct {
	host string
	name name
}

// put takes the inner watcher's next snapshot.
func (t *watch) put(s *registry.Snapshot) {
	t.w.mu.Lock()
	t.newest = s
	t.w.mu.Unlock()
	t.setDue()
}

// setDue has a goroutine look at the watch.
func (t *watch) setDue() {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	if t.isDue {
		return
	}
	t.isDue = true
	t.w.due = append(t.w.due, t)
	if !t.w.looking {
		t.w.looking = t.w.tasks.Go(t.w.look)
	}
}

// take returns what has come since the last look. isRunning reports whether the watch has begun and has not ended.
func (t *watch) take() (newest *registry.Snapshot, outcomes []outcome, isRunning bool) {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	if _, isRunning = t.w.watches[t]; !isRunning {
		return nil, nil, false
	}
	newest, t.newest = t.newest, nil
	outcomes, t.outcomes = t.outcomes, nil
	return newest, outcomes, true
}

// look takes what is new, and delivers what follows from it.
func (t *watch) look() {
	newest, outcomes, isRunning := t.take()
	switch {
	case !isRunning:
		return
	case t.ctx.Err() != nil:
		t.w.mu.Lock()
		delete(t.w.watches, t)
		t.w.mu.Unlock()
		t.end()
		return
	}
	if newest != nil {
		t.in = newest
		t.news = time.Time{} // a new snapshot does not wait
		t.setNames()
	}
	for _, got := range outcomes {
		delete(t.asking, got.host)
		t.learn(got.host, got.name)
		if srvname.Is(got.host) {
			t.setNames() // the targets may be others
		}
		if newest == nil && t.news.IsZero() {
			t.news = time.Now()
		}
	}
	if newest != nil || len(outcomes) > 0 {
		t.setFailing()
	}
	if !t.gathering() {
		t.news = time.Time{}
		t.deliver()
	}
	t.ask()
	t.sleep()
}

// end ends the watch for all that know it.
func (t *watch) end() {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.unwatch()
	if t.w.opt.Others != nil {
		t.w.opt.Others.forget(t)
	}
	t.reach.Close()
	if t.w.opt.Failing != nil {
		t.w.opt.Failing.forget(t)
	}
}

// setFailing makes it known which names fail.
func (t *watch) setFailing() {
	if t.w.opt.Failing != nil {
		t.w.opt.Failing.set(t, t.names)
	}
}

func (t *watch) gathering() bool {
	return len(t.asking) > 0 && !t.news.IsZero() && time.Since(t.news) < t.w.opt.gather
}

// sleep makes the watch due at the next lookup or at the end of gathering, whichever is first.
func (t *watch) sleep() {
	next := t.next()
	if next.IsZero() {
		return
	}
	if d := time.Until(next); t.timer == nil {
		t.timer = time.AfterFunc(d, t.setDue)
	} else {
		t.timer.Reset(d)
	}
}

// next returns when something is to be done without an event; zero means never.
func (t *watch) next() (at time.Time) {
	if !t.news.IsZero() {
		at = t.news.Add(t.w.opt.gather)
	}
	if len(t.asking) == parallel {
		return at
	}
	for host, n := range t.names {
		if _, inFlight := t.asking[host]; !inFlight && (at.IsZero() || n.due.Before(at)) {
			at = n.due
		}
	}
	return at
}

// setNames makes names those of the current snapshot, and of the targets that they are known to have. A name that was in
// use keeps what is known of it.
func (t *watch) setNames() {
	names := make(map[string]name)
	use := func(host string) {
		n, used := t.names[host]
		if !used {
			n = t.w.opt.known(host)
		}
		names[host] = n
	}
	for _, e := range t.in.Endpoints {
		if isSRV(e) {
			use(e.Addr)
		}
	}
	for _, e := range t.listed(names) {
		if a, err := registry.ParseAddr(e.Addr); err == nil && !a.IsIP {
			use(a.Host)
		}
	}
	if t.w.opt.Reach.Listed() {
		t.direct = make(map[string]bool, len(t.in.Endpoints))
		for _, e := range t.in.Endpoints {
			t.direct[e.Addr] = true
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names = names
}

func (t *watch) ask() {
	now := time.Now()
	for host, n := range t.names {
		if len(t.asking) == parallel {
			return
		}
		if _, inFlight := t.asking[host]; !inFlight && !n.due.After(now) {
			if t.asking == nil {
				t.asking = make(map[string]struct{})
			}
			t.asking[host] = struct{}{}
			t.w.tasks.Go(func() { t.learned(outcome{host, t.lookup(host)}) })
		}
	}
}

// learned takes the outcome of a lookup.
func (t *watch) learned(o outcome) {
	t.w.mu.Lock()
	t.outcomes = append(t.outcomes, o)
	t.w.mu.Unlock()
	t.setDue()
}

func (t *watch) lookup(host string) name {
	end, err := t.w.opt.Turns.begin(t.ctx)
	if err != nil {
		return name{err: err}
	}
	defer end()
	ctx, cancel := context.WithTimeout(t.ctx, t.w.opt.Timeout)
	defer cancel()
	a, err := t.w.opt.Lookup(ctx, host)
	return name{addrs: usable(a.Addrs), targets: a.Targets, six: unused(a.Addrs), ofHost: a.OfHost, ipv4Err: a.IPv4Err, err: err, due: time.Now().Add(t.w.opt.pause(a.TTL, err))}
}

// pause returns the time from an answer to the next lookup: its TTL, if it is known, plus up
// to a tenth, so that many sidecars do not ask at once.
func (o *Options) pause(ttl time.Duration, err error) time.Duration {
	d := o.Interval
	if err == nil && ttl >= 0 {
		d = min(max(ttl, minTTL), maxTTL)
	}
	return d + rand.N(d/10+1)
}

// firstPause is pause for a name without addresses: longer after each try.
func (o *Options) firstPause(tries int) time.Duration {
	d := min(minTTL<<min(tries-1, 10), o.Interval)
	return d + rand.N(d/10+1)
}

// usable returns the addresses to use, sorted: a resolver's rotated answer is no change.
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

// unused returns the IPv6 addresses of a name that has IPv4 addresses, too.
func unused(addrs []netip.Addr) []netip.Addr {
	six := slices.DeleteFunc(slices.Clone(addrs), isIPv4)
	if len(six) == len(addrs) {
		return nil
	}
	return usable(six)
}

// learn processes the outcome of a lookup. The old addresses stay after a failure, after an
// answer without addresses, and after one with only IPv6 if there may be IPv4 addresses.
func (t *watch) learn(host string, n name) {
	old, used := t.names[host]
	if !used {
		return
	}
	if n.ipv4Err != nil && len(old.addrs) > 0 && old.addrs[0].Is4() {
		n.err, n.due = n.ipv4Err, time.Now().Add(t.w.opt.pause(-1, n.ipv4Err))
	}
	if n.err == nil && n.empty() { // as SRV records say of a service that is not available
		n.err = errNoAddress
	}
	if n.err != nil {
		if old.err == nil {
			t.w.opt.Logger.Warn("host name does not resolve; its last addresses stay in use",
				"code", registry.CodeUnresolved, "host", host, "addresses", len(old.addrs)+len(old.targets), "error", n.err)
		}
		n.addrs, n.six, n.targets, n.ofHost = old.addrs, old.six, old.targets, old.ofHost
		if n.empty() {
			n.tries = old.tries + 1
			n.due = time.Now().Add(t.w.opt.firstPause(n.tries))
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names[host] = n
}

func (t *watch) deliver() {
	if t.in == nil || t.ctx.Err() != nil {
		return
	}
	t.setOthers()
	resolved := t.in.Endpoints
	if len(t.names) > 0 {
		resolved = t.resolved()
	}
	endpoints := t.limit.Cut(t.reach.Permitted(resolved, t.ofHost), t.in.Service, t.w.opt.Logger.Warn)
	if unchanged := len(t.names) == 0 && len(endpoints) == len(t.in.Endpoints); unchanged && (t.out == nil || t.in.Version >= t.out.Version) {
		if t.out != t.in {
			t.out = t.in
			t.notify(t.out)
		}
		return
	}
	if t.out == nil && len(endpoints) == 0 && t.unasked() {
		return
	}
	lacks := t.lacksAddress()
	if t.out != nil && t.out.Source == t.in.Source && t.out.Unresolved == lacks && slices.Equal(t.out.Endpoints, endpoints) {
		return
	}
	t.out = t.in.With(endpoints)
	t.out.Changed, t.out.Unresolved = time.Now(), lacks
	t.notify(t.out)
}

// ofHost reports whether the inner watcher has the address of an endpoint, or a name that has the address in /etc/hosts. What
// SRV records name is from a name server.
func (t *watch) ofHost(e *registry.Endpoint) bool {
	if e.Host == "" || t.direct[e.Addr] { // a name that leads to a listed address takes nothing from it
		return t.direct[e.Addr]
	}
	a, err := registry.ParseAddr(e.Addr)
	return err == nil && t.direct[net.JoinHostPort(e.Host, a.Port)] && t.names[e.Host].ofHost
}

// lacksAddress reports whether a name has no known address.
func (t *watch) lacksAddress() bool {
	for _, n := range t.names {
		if n.empty() {
			return true
		}
	}
	return false
}

func (t *watch) unasked() bool {
	for _, n := range t.names {
		if n.due.IsZero() {
			return true
		}
	}
	return false
}

// setOthers makes the second addresses of the names known, before a snapshot has their first ones.
func (t *watch) setOthers() {
	if t.w.opt.Others == nil {
		return
	}
	all := make(map[string]string)
	for _, e := range t.listed(t.names) {
		a, err := registry.ParseAddr(e.Addr)
		n := t.names[a.Host]
		if err != nil || len(n.six) == 0 {
			continue
		}
		for i, ip := range n.addrs { // in turn, so that no address gets the load of all
			if len(all) == registry.MaxEndpoints {
				break
			}
			second := net.JoinHostPort(n.six[i%len(n.six)].String(), a.Port)
			if t.w.opt.Reach.Check(t.in.Service, second, t.ofHost(&registry.Endpoint{Addr: second, Host: a.Host})) == "" {
				all[net.JoinHostPort(ip.String(), a.Port)] = second
			}
		}
	}
	t.w.opt.Others.set(t.in.Service, t, all)
}

// resolved returns the endpoints with the addresses of names in place of these. A name server alone must not make many more of them
// than a service may have: once there are that many which may be used, only those are added that are in use.
func (t *watch) resolved() []registry.Endpoint {
	endpoints := make([]registry.Endpoint, 0, len(t.in.Endpoints))
	var inUse map[string]bool // nil until there are enough
	add := func(e registry.Endpoint) {
		if inUse == nil || inUse[e.Addr] {
			endpoints = append(endpoints, e)
		}
		if inUse != nil || len(endpoints) <= registry.MaxListed {
			return
		}
		endpoints = slices.DeleteFunc(registry.Normalize(endpoints), func(e registry.Endpoint) bool { // names may share addresses
			return t.w.opt.Reach.Check(t.in.Service, e.Addr, t.ofHost(&e)) != ""
		})
		if len(endpoints) >= registry.MaxEndpoints {
			inUse = t.inUse()
		}
	}
	for _, e := range t.listed(t.names) {
		a, err := registry.ParseAddr(e.Addr)
		switch {
		case err == nil && !a.IsIP: // the host may be called unix: that is no Unix socket
			for _, ip := range t.names[a.Host].addrs {
				e.Addr, e.Host = net.JoinHostPort(ip.String(), a.Port), a.Host
				add(e)
			}
		case err == nil, unixaddr.Is(e.Addr):
			add(e)
		}
	}
	return registry.Normalize(endpoints)
}

// inUse returns the addresses that were delivered last.
func (t *watch) inUse() map[string]bool {
	addrs := make(map[string]bool)
	if t.out != nil {
		for _, e := range t.out.Endpoints {
			addrs[e.Addr] = true
		}
	}
	return addrs
}
