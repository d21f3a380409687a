package proxy

import (
	"slices"
	"sync/atomic"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/limit"
	"github.com/remora-proxy/remora/proxy/route"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/registry"
)

// Generation is one configuration with all that the loops share of it. It comes
// into use in three steps, by one goroutine, one Generation at a time:
//
//	Process.Prepare   the loops make ready the services that are new
//	Update            they get endpoints, while the old configuration serves
//	Process.Switch    each loop works by the new one from its next turn on
//
// What a new configuration leaves as it was goes on with its history and
// connections: a service, a route's latency estimate, the sessions of a listener.
// Exchanges that began before end by the route and service they began with.
type Generation struct {
	cfg       *config.Config
	number    uint64
	services  map[string]exchange.Member
	routes    []route.Plan
	table     *route.Table
	listeners map[string]*Listener // by the listener's name
	rates     map[string]*limit.Rate
	lines     *accesslog.Queue // nil: no access log

	added    []exchange.Member         // of services, those that the one before does not have
	removed  []*exchange.SharedService // of services that are gone, those that may still serve
	previous *Generation               // until the switch
}

// generation lays out what is to follow the one before.
func (p *Process) generation(cfg *config.Config, before *Generation) *Generation {
	g := &Generation{
		cfg: cfg, number: before.number + 1, previous: before, lines: before.lines,
		services:  make(map[string]exchange.Member, len(cfg.Services)),
		listeners: make(map[string]*Listener, len(cfg.Listeners)),
		rates:     make(map[string]*limit.Rate),
	}
	for name, c := range cfg.Services {
		m := exchange.NewMember(c, before.services[name], p.shared.Loops)
		if m.SharedService != before.services[name].SharedService {
			g.added = append(g.added, m)
		}
		g.services[name] = m
	}
	for i := range cfg.Listeners {
		g.enter(&cfg.Listeners[i], p.shared.Loops)
	}
	g.routes = route.Plans(cfg)
	g.table = route.NewTable(g.routes)
	route.Compare(g.routes, before.routes, func(service string) bool {
		return g.services[service].SharedService == before.services[service].SharedService
	})
	return g
}

// Config is the configuration. It is not changed.
func (g *Generation) Config() *config.Config { return g.cfg }

// Number counts the generations of a Process, from 1.
func (g *Generation) Number() uint64 { return g.number }

// Added are the names of services of which the loops know no endpoints until
// Update.
func (g *Generation) Added() []string {
	names := make([]string, len(g.added))
	for i, m := range g.added {
		names[i] = m.ServiceName()
	}
	slices.Sort(names)
	return names
}

// Known tells that every loop knows the endpoints of the services in Fresh, be
// they none.
func (g *Generation) Known() bool {
	for _, m := range g.added {
		if !m.Known() {
			return false
		}
	}
	return true
}

// Drained tells that no service which this generation or one before has removed
// has anything in flight.
func (g *Generation) Drained() bool { return g.formerPending() == 0 }

func (g *Generation) formerPending() (n int) {
	for _, s := range g.removed {
		n += s.InFlight()
	}
	return n
}

// Update gives every loop a new snapshot of a service's endpoints. It may be
// called from any goroutine, one at a time for each service. Snapshots may
// overtake each other on their way to a loop, so a loop ignores one whose
// version it has passed.
func (g *Generation) Update(snap *registry.Snapshot) {
	if s := g.services[snap.Service].SharedService; s != nil {
		s.Update(snap, g.cfg.Node.ID)
	}
}

// Prepare lays out the generation after the one in use, and has every loop make
// its new services ready. done is called on a loop when the last of them has;
// from then on Update may be called. A generation that is not switched to is just
// dropped.
func (p *Process) Prepare(cfg *config.Config, done func()) *Generation {
	g := p.generation(cfg, p.current.Load())
	p.onLoops(func(w *Worker) { w.prepare(g) }, done)
	return g
}

// Switch brings g, the last that was prepared, into use. done is called on a loop
// when the last of them works by it. Listeners that g does not have are to be
// closed by the caller then; their connections end as soon as nothing can be lost
// by it.
func (p *Process) Switch(g *Generation, done func()) {
	before := g.previous
	g.previous = nil
	for _, s := range before.removed {
		if s.InFlight() > 0 {
			g.removed = append(g.removed, s)
		}
	}
	for name, m := range before.services {
		if g.services[name].SharedService != m.SharedService {
			g.removed = append(g.removed, m.SharedService)
		}
	}
	p.use(g)
	p.onLoops(func(w *Worker) { w.switchTo(g, before) }, done)
}

// use makes g what other goroutines than the loops see, and sets the limits of
// the process.
func (p *Process) use(g *Generation) {
	p.shared.Budget.Configure(&g.cfg.Limits)
	for _, m := range g.services {
		m.LimitSlots()
	}
	p.current.Store(g)
}

// onLoops has every loop do something, and calls done when the last has.
func (p *Process) onLoops(do func(*Worker), done func()) {
	left := new(atomic.Int32)
	left.Store(int32(len(p.workers)))
	for _, w := range p.workers {
		w.shard.Loop.Post(func() {
			do(w)
			if left.Add(-1) == 0 {
				done()
			}
		})
	}
}

// LogTo says where the lines of the access log go; with nil there are none. It is
// called before any loop works by g. What is not said is as in the generation
// before.
func (g *Generation) LogTo(q *accesslog.Queue) { g.lines = q }

// FlushAccessLog hands on the lines that the loops have left. It is called when they
// have ended.
func (p *Process) FlushAccessLog() {
	for _, w := range p.workers {
		w.shard.AccessLog.FlushNow()
	}
}
