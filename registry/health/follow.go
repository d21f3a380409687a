package health

import (
	"cmp"
	"container/heap"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/remora-proxy/remora/registry"
)

const (
	// parallel bounds the checks of one service that are out at a time. Past
	// what that lets through, checks come later than their interval.
	parallel = 32

	// settle is the least time between two snapshots that differ in verdicts
	// alone: when many change at once, each does not cost a snapshot.
	settle = 100 * time.Millisecond

	// spread is the time over which the first checks of new endpoints are
	// distributed, at most.
	spread = time.Second

	// protocolHTTP is what endpoints speak that can be asked for a path.
	protocolHTTP = "http"
)

// Options say how the endpoints of a service are checked.
type Options struct {
	Check Check

	// Protocol is what endpoints speak of which the registry does not say it. A
	// Check with a Path leaves out those that do not speak http.
	Protocol string

	// Verdicts are what is begun with, of a Follower whose place this one takes.
	Verdicts Verdicts

	Logger *slog.Logger
}

// Verdicts are what checks have found out, by address. What is not in there is
// healthy.
type Verdicts map[string]judge

// Follow delivers what w does for a service, with the verdict of the check in
// each endpoint, and again when a verdict changes. An endpoint is healthy until
// it has failed; its verdict lasts for as long as its address is in the snapshots.
//
// notify is called as registry.Watcher says.
func Follow(w registry.Watcher, service string, o Options, notify func(*registry.Snapshot)) *Follower {
	f := &Follower{
		opt:      o,
		asker:    newAsker(&o.Check),
		notify:   notify,
		newest:   make(chan *registry.Snapshot, 1),
		outcomes: make(chan outcome, parallel),
		ended:    make(chan struct{}),
	}
	var ctx context.Context
	ctx, f.cancel = context.WithCancel(context.Background())
	unwatch := w.Watch(service, f.offer)
	go func() {
		defer close(f.ended)
		defer unwatch()
		f.run(ctx)
	}()
	return f
}

// Stop ends it all and returns when no check is out. It must not be called from
// notify.
func (f *Follower) Stop() {
	f.cancel()
	<-f.ended
}

// Verdicts are those of now, or of the end.
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

// fresh is the judge of an endpoint that nothing is known of.
var fresh = judge{healthy: true}

// target is an endpoint that is checked.
type target struct {
	addr  string
	judge judge
	due   time.Time // of the next check
	index int       // in Follower.waiting; -1: being asked
	gone  bool      // no longer in the snapshots
}

// outcome is that of one check; err is nil for a pass.
type outcome struct {
	target *target
	began  time.Time
	err    error
}

// Follower follows one service. All but newest belongs to the goroutine of run.
type Follower struct {
	cancel context.CancelFunc // ends run
	ended  chan struct{}      // closed when it has

	opt    Options
	asker  *asker
	notify func(*registry.Snapshot)
	newest chan *registry.Snapshot // the watcher's last; capacity 1

	in        *registry.Snapshot
	mu        sync.Mutex         // held to change targets and judges, and by others than run to read them
	targets   map[string]*target // of in, by address
	waiting   queue
	asking    int
	outcomes  chan outcome // capacity parallel, so that no check waits for run
	stale     bool         // verdicts have changed since delivered
	delivered time.Time
}

// offer takes the watcher's snapshot and replaces one not yet looked at. It is
// called from one goroutine at a time.
func (f *Follower) offer(s *registry.Snapshot) {
	select {
	case <-f.newest:
	default:
	}
	f.newest <- s
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
			f.reconcile(time.Now())
			f.deliver(time.Now())
		case o := <-f.outcomes:
			f.learn(o)
		case <-wake.C:
		}
		now := time.Now()
		f.ask(ctx, now)
		if f.stale && now.Sub(f.delivered) >= settle {
			f.deliver(now)
		}
		wake.Reset(f.sleep(now))
	}
}

// reconcile makes targets of the snapshot's endpoints. Those that were targets
// before stay as they are.
func (f *Follower) reconcile(now time.Time) {
	next := make(map[string]*target, len(f.in.Endpoints))
	for i := range f.in.Endpoints {
		e := &f.in.Endpoints[i]
		if f.opt.Check.Path != "" && cmp.Or(e.Protocol, f.opt.Protocol) != protocolHTTP {
			continue
		}
		t := f.targets[e.Addr]
		if t == nil {
			first := now.Add(rand.N(min(f.opt.Check.Interval, spread)))
			t = &target{addr: e.Addr, judge: fresh, due: first}
			if known, ok := f.opt.Verdicts[e.Addr]; ok {
				t.judge = known
			}
			heap.Push(&f.waiting, t)
		}
		next[e.Addr] = t
	}
	for addr, t := range f.targets {
		if next[addr] != nil {
			continue
		}
		t.gone = true
		if t.index >= 0 {
			heap.Remove(&f.waiting, t.index)
		}
	}
	f.opt.Verdicts = nil // who comes later begins anew
	f.mu.Lock()
	defer f.mu.Unlock()
	f.targets = next
}

// ask starts the checks that are due.
func (f *Follower) ask(ctx context.Context, now time.Time) {
	for f.asking < parallel && len(f.waiting) > 0 && !f.waiting[0].due.After(now) {
		t := heap.Pop(&f.waiting).(*target)
		f.asking++
		go func() { f.outcomes <- outcome{t, now, f.asker.ask(ctx, t.addr)} }()
	}
}

func (f *Follower) learn(o outcome) {
	f.asking--
	t := o.target
	if t.gone {
		return
	}
	t.due = o.began.Add(f.opt.Check.pause())
	heap.Push(&f.waiting, t)
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

// deliver passes the endpoints on with their verdicts. The snapshot is always a
// new one: by its version in is older than what was delivered of the one before.
func (f *Follower) deliver(now time.Time) {
	endpoints := slices.Clone(f.in.Endpoints)
	for i := range endpoints {
		t := f.targets[endpoints[i].Addr]
		endpoints[i].Unhealthy = t != nil && !t.judge.healthy
	}
	f.stale, f.delivered = false, now
	f.notify(registry.NewSnapshot(f.in.Service, f.in.Source, f.in.Changed, endpoints))
}

// sleep is the time until there is something to do that nobody wakes run for.
func (f *Follower) sleep(now time.Time) time.Duration {
	d := time.Hour
	if f.asking < parallel && len(f.waiting) > 0 {
		d = f.waiting[0].due.Sub(now)
	}
	if f.stale {
		d = min(d, settle-now.Sub(f.delivered))
	}
	return d
}

// queue holds the targets that wait for their next check, the earliest first.
type queue []*target

var _ heap.Interface = (*queue)(nil)

// Len implements heap.Interface.
func (q queue) Len() int { return len(q) }

// Less implements heap.Interface.
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

// Swap implements heap.Interface.
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	t := x.(*target)
	t.index = len(*q)
	*q = append(*q, t)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	t.index = -1
	(*q)[last] = nil
	*q = (*q)[:last]
	return t
}
