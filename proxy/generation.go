package proxy

import (
	"slices"
	"sync/atomic"

	"github.com/remora-proxy/remora/proxy/allow"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/forwarded"
	"github.com/remora-proxy/remora/proxy/limit"
	"github.com/remora-proxy/remora/proxy/route"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/registry"
)

// Generation is one configuration with everything that the loops share of it. One
// goroutine brings it into use, in three steps, one Generation at a time:
//
//	Process.Prepare   the loops make the services that are new
//	Update            the new services get endpoints, while the old configuration serves
//	Process.Switch    each loop uses the new configuration from its next turn on
//
// Services, routes and listeners that the new configuration does not change keep their
// history and connections: endpoints, latency estimates, sessions. Exchanges keep the
// route and service with which they began.
type Generation struct {
	cfg    *config.Config
	number uint64

	// In the order of a request.
	listeners map[string]*Listener         // by name
	rules     map[string]*allow.Set        // by Set.Name
	rates     map[string]*limit.Keyed      // of listeners and routes with a rate limit, by the name of their rules
	trust     map[string]*forwarded.Policy // of clients, by the listener's name
	table     *route.Table                 // returns an index of routes
	routes    []route.Plan                 // one route to one service each
	guarded   bool                         // a route of HTTP has rules that are enforced
	services  map[string]service.Member    // by name
	accessLog *accesslog.Queue             // nil means no access log

	previous *Generation              // until the switch
	added    []service.Member         // services that the previous generation does not have
	removed  []*service.SharedService // removed services that may have requests in flight
}

func (p *Process) newGeneration(cfg *config.Config, previous *Generation) *Generation {
	g := &Generation{
		cfg: cfg, number: previous.number + 1, previous: previous, accessLog: previous.accessLog,
		services:  make(map[string]service.Member, len(cfg.Services)),
		listeners: make(map[string]*Listener, len(cfg.Listeners)),
		rates:     make(map[string]*limit.Keyed), trust: make(map[string]*forwarded.Policy),
	}
	for name, c := range cfg.Services {
		m := service.NewMember(c, previous.services[name], p.shared.Loops)
		if m.SharedService != previous.services[name].SharedService {
			g.added = append(g.added, m)
		}
		g.services[name] = m
	}
	for i := range cfg.Listeners {
		g.addListener(&cfg.Listeners[i], p.shared.Loops)
	}
	g.addRules()
	g.addRates()
	g.routes = route.Plans(cfg)
	g.table = route.NewTable(g.routes)
	g.guarded = slices.ContainsFunc(g.routes, func(plan route.Plan) bool {
		rules := g.RulesOf(&plan)
		return plan.TakesHTTP() && rules.Enforced()
	})
	route.Compare(g.routes, previous.routes, func(service string) bool {
		return g.services[service].SharedService == previous.services[service].SharedService
	})
	return g
}

// Config returns the configuration, which must not be changed.
func (g *Generation) Config() *config.Config { return g.cfg }

// Number returns the number of the generation. The first one of a Process has number 1.
func (g *Generation) Number() uint64 { return g.number }

// Guarded implements exchange.RuleSets.
func (g *Generation) Guarded() bool { return g.guarded }

// Keys returns the names of the services, by their keys.
func (g *Generation) Keys() map[string]string {
	keys := make(map[string]string, len(g.services))
	for name, m := range g.services {
		keys[m.Key] = name
	}
	return keys
}

// ServiceOf returns the name of the service with a key, or "".
func (g *Generation) ServiceOf(key string) string {
	for name, m := range g.services {
		if m.Key == key {
			return name
		}
	}
	return ""
}

// Added returns the sorted names of the new services, which have no endpoints before Update.
func (g *Generation) Added() []string {
	names := make([]string, len(g.added))
	for i, m := range g.added {
		names[i] = m.Name
	}
	slices.Sort(names)
	return names
}

// Known reports whether every loop has a snapshot, perhaps empty, of each service in Added.
func (g *Generation) Known() bool {
	for _, m := range g.added {
		if !m.Known() {
			return false
		}
	}
	return true
}

// Drained reports whether no removed service, now or earlier, has requests in flight.
func (g *Generation) Drained() bool { return g.removedInFlight() == 0 }

func (g *Generation) removedInFlight() (n int) {
	for _, s := range g.removed {
		n += s.InFlight()
	}
	return n
}

// Update gives every loop a new snapshot of a service's endpoints. Any goroutine may call it,
// one at a time for each service. A loop ignores one that is older than the one in use.
func (g *Generation) Update(snap *registry.Snapshot) {
	if s := g.services[snap.Service].SharedService; s != nil {
		s.Update(snap, g.cfg.Node.ID)
	}
}

// Prepare returns the generation to follow the one in use, and makes its new services on
// every loop. done is called on the last loop that has done so; after that Update may be
// called. A generation that is not used needs no clean-up.
func (p *Process) Prepare(cfg *config.Config, done func()) *Generation {
	g := p.newGeneration(cfg, p.current.Load())
	p.onLoops(func(w *Worker) { w.prepare(g) }, done)
	return g
}

// Switch brings g, the last generation that was prepared, into use. done is called on the
// last loop that has switched. The caller must then close the listeners that g does not
// have; their connections end as soon as no request can be lost by it.
func (p *Process) Switch(g *Generation, done func()) {
	previous := g.previous
	g.previous = nil
	for _, s := range previous.removed {
		if s.InFlight() > 0 {
			g.removed = append(g.removed, s)
		}
	}
	for name, m := range previous.services {
		if g.services[name].SharedService != m.SharedService {
			g.removed = append(g.removed, m.SharedService)
		}
	}
	p.setCurrent(g)
	p.onLoops(func(w *Worker) { w.switchTo(g, previous) }, done)
}

// setCurrent makes g current, with its limits of the process. Each loop switches on its own.
func (p *Process) setCurrent(g *Generation) {
	p.shared.Budget.Configure(&g.cfg.Limits)
	for _, m := range g.services {
		m.LimitSlots()
	}
	p.current.Store(g)
}

// onLoops calls do on every loop. Once all calls have returned, it calls done on one of the loops, also if do panics: the
// loop recovers, and whoever waits must not wait for ever.
func (p *Process) onLoops(do func(*Worker), done func()) {
	left := new(atomic.Int32)
	left.Store(int32(len(p.workers)))
	for _, w := range p.workers {
		w.shard.Loop.Post(func() {
			defer func() {
				if left.Add(-1) == 0 {
					done()
				}
			}()
			do(w)
		})
	}
}

// LogTo sets the queue of the access log; nil means no access log. It must be called
// before any loop uses g. Without it, g has the queue of the previous generation.
func (g *Generation) LogTo(q *accesslog.Queue) { g.accessLog = q }

// FlushAccessLog passes on the lines that the loops still have, after the loops have ended.
func (p *Process) FlushAccessLog() {
	for _, w := range p.workers {
		w.shard.AccessLog.Flush()
	}
}
