package health

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/remora-proxy/remora/registry"
)

const (
	// parallel limits the concurrent checks of one service. If more are due, checks come later
	// than their interval.
	parallel = 32

	// settle is the minimum time between two snapshots that differ only in verdicts, so that
	// many changes at once do not cost a snapshot each.
	settle = 100 * time.Millisecond

	// spread is the maximum time over which the first checks of new endpoints are distributed.
	spread = time.Second
)

// Options says how the endpoints of a service are checked.
type Options struct {
	Check Check

	// Protocol is the protocol of endpoints for which the registry has none. A Check with a
	// Path or GRPC leaves out endpoints that can't be asked for it.
	Protocol string

	// Other returns the second address of an endpoint, to connect to if the first does not accept, or
	// "". nil means that there are none.
	Other func(addr string) string

	Verdicts Verdicts // the initial ones, from a Follower that this one replaces
	Logger   *slog.Logger
}

// Verdicts are the verdicts of checks by address. An address without a verdict is healthy.
type Verdicts map[string]judge

// Follow delivers the snapshots of w for a service with the verdict of the checks in each
// endpoint, and another one when a verdict changes. An endpoint is healthy until checks fail.
// Its verdict is kept while its address is in the snapshots. notify is called as
// registry.Watcher documents.
func Follow(w registry.Watcher, service string, o Options, notify func(*registry.Snapshot)) *Follower {
	f := &Follower{
		opt:      o,
		asker:    newAsker(&o.Check, o.Other),
		notify:   notify,
		newest:   make(registry.Newest, 1),
		outcomes: make(chan outcome, parallel),
		ended:    make(chan struct{}),
	}
	var ctx context.Context
	ctx, f.cancel = context.WithCancel(context.Background())
	unwatch := w.Watch(service, f.newest.Put)
	go func() {
		defer close(f.ended)
		defer unwatch()
		f.run(ctx)
	}()
	return f
}

// Stop ends the checks and returns when none is in flight. It must not be called from notify.
func (f *Follower) Stop() {
	f.cancel()
	<-f.ended
}

// Verdicts returns the current verdicts, or the last ones after Stop.
func (f *Follower) Verdicts() Verdicts {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(Verdicts)
	for addr, t := range f.targets {
		if t.judge != fresh {
			all[addr] = t.judge
		}
	}
	return all
}

var fresh = judge{healthy: true}

type target struct {
	addr    string
	checked bool   // a check has ended, or the verdict is that of earlier checks
	host    string // that addr was resolved from, or ""
	judge   judge
	due     time.Time // of the next check
	gone    bool      // no longer in the snapshots
}

func byDue(a, b *target) int { return a.due.Compare(b.due) }

type outcome struct {
	target *target
	began  time.Time
	err    error // nil for a pass
}

// Follower follows one service. The goroutine of run owns all fields except newest.
type Follower struct {
	cancel context.CancelFunc // ends run
	ended  chan struct{}      // closed when run has ended

	opt    Options
	asker  *asker
	notify func(*registry.Snapshot)
	newest registry.Newest // the watcher's last snapshot

	in        *registry.Snapshot
	mu        sync.Mutex         // held to change targets and judges, and to read them outside run
	targets   map[string]*target // targets of in, by address
	waiting   []*target          // targets without a check in flight, the earliest due first
	asking    int
	outcomes  chan outcome // capacity parallel, so that checks never block
	stale     bool         // verdicts have changed since delivered
	began     time.Time    // of the first snapshot of the watcher
	delivered time.Time
}

func (f *Follower) run(ctx context.Context) {
	wake := time.NewTimer(0)
	defer wake.Stop()
	for {
		select {
		case <-ctx.Done():
			for ; f.asking > 0; f.asking-- {
				<-f.outcomes
			}
			return
		case f.in = <-f.newest:
			now := time.Now()
			if f.began.IsZero() {
				f.began = now
			}
			f.reconcile(now)
			if f.stale = f.holdsBack(now); !f.stale {
				f.deliver(now)
			}
		case o := <-f.outcomes:
			f.learn(o)
		case <-wake.C:
		}
		now := time.Now()
		f.ask(ctx, now)
		if f.stale && !f.holdsBack(now) && now.Sub(f.delivered) >= settle {
			f.deliver(now)
		}
		wake.Reset(f.sleep(now))
	}
}

// suits reports whether endpoints that speak a protocol can be checked. gRPC is spoken by what the
// sidecar knows as HTTP.
func (c *Check) suits(protocol string) bool {
	if c.elsewhere() {
		return true
	}
	switch protocol {
	case "http":
		return true
	case "http2", "grpc":
		return c.Path == ""
	}
	return c.Path == "" && c.GRPC == ""
}

// reconcile makes targets of the snapshot's endpoints. Existing targets stay unchanged.
func (f *Follower) reconcile(now time.Time) {
	next := make(map[string]*target, len(f.in.Endpoints))
	for i := range f.in.Endpoints {
		e := &f.in.Endpoints[i]
		if !f.opt.Check.suits(cmp.Or(e.Protocol, f.opt.Protocol)) {
			continue
		}
		t := f.targets[e.Addr]
		if t == nil {
			first := now.Add(rand.N(min(f.opt.Check.Interval, spread)))
			t = &target{addr: e.Addr, judge: fresh, due: first}
			if f.opt.Check.Strict {
				t.judge, t.due = judge{unproven: true}, now
			}
			if known, ok := f.opt.Verdicts[e.Addr]; ok {
				t.judge, t.checked = known, true
			}
			f.waiting = append(f.waiting, t)
		}
		t.host = e.Host
		next[e.Addr] = t
	}
	for addr, t := range f.targets {
		t.gone = next[addr] == nil
	}
	f.waiting = slices.DeleteFunc(f.waiting, func(t *target) bool { return t.gone })
	slices.SortFunc(f.waiting, byDue)
	f.opt.Verdicts = nil // later endpoints begin without a verdict
	f.mu.Lock()
	defer f.mu.Unlock()
	f.targets = next
}

func (f *Follower) ask(ctx context.Context, now time.Time) {
	for f.asking < parallel && len(f.waiting) > 0 && !f.waiting[0].due.After(now) {
		t := f.waiting[0]
		f.waiting = f.waiting[1:]
		f.asking++
		addr, host := t.addr, t.host
		go func() { f.outcomes <- outcome{t, now, f.asker.ask(ctx, addr, host)} }()
	}
}

func (f *Follower) learn(o outcome) {
	f.asking--
	t := o.target
	if t.gone {
		return
	}
	t.due = o.began.Add(f.opt.Check.pause())
	at, _ := slices.BinarySearchFunc(f.waiting, t, byDue)
	f.waiting = slices.Insert(f.waiting, at, t)
	t.checked = true
	f.mu.Lock()
	changed := t.judge.note(&f.opt.Check, o.err == nil)
	f.mu.Unlock()
	if !changed {
		return
	}
	f.stale = true
	if t.judge.healthy {
		f.opt.Logger.Info("endpoint is healthy again", "service", f.in.Service, "endpoint", t.addr)
	} else {
		f.opt.Logger.Warn("endpoint is unhealthy", "service", f.in.Service, "endpoint", t.addr, "error", o.err)
	}
}

// holdsBack reports whether the first snapshot waits for the first check of each endpoint: with a strict check it would have no
// endpoint before. Once the time of a check has passed, one healthy endpoint is enough.
func (f *Follower) holdsBack(now time.Time) bool {
	if !f.opt.Check.Strict || !f.delivered.IsZero() {
		return false
	}
	isChecked, isUsable := true, len(f.targets) < len(f.in.Endpoints) // what can't be checked is healthy
	for _, t := range f.targets {
		isChecked = isChecked && t.checked
		isUsable = isUsable || t.judge.healthy
	}
	isLate := now.Sub(f.began) >= f.opt.Check.Timeout
	return !isChecked && !(isLate && isUsable)
}

// deliver notifies of the endpoints with their verdicts. The snapshot is always a new one: the
// version of in is older than that of the snapshot delivered before.
func (f *Follower) deliver(now time.Time) {
	endpoints := slices.Clone(f.in.Endpoints)
	for i := range endpoints {
		t := f.targets[endpoints[i].Addr]
		endpoints[i].Unhealthy = t != nil && !t.judge.healthy
		endpoints[i].Down = endpoints[i].Unhealthy && f.opt.Check.Strict
	}
	f.stale, f.delivered = false, now
	f.notify(f.in.With(endpoints))
}

func (f *Follower) sleep(now time.Time) time.Duration {
	d := time.Hour
	if f.asking < parallel && len(f.waiting) > 0 {
		d = f.waiting[0].due.Sub(now)
	}
	switch late := f.began.Add(f.opt.Check.Timeout).Sub(now); {
	case f.stale && !f.holdsBack(now):
		d = min(d, settle-now.Sub(f.delivered))
	case f.stale && late > 0:
		d = min(d, late)
	}
	return d
}
