package proxy

import (
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/accesslog"
	"github.com/remora-proxy/remora/proxy/config"
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
	services  map[string]member
	routes    []routePlan
	entrances map[string]*Entrance // by the listener's name
	rates     map[string]*rateLimit
	lines     *accesslog.Queue // nil: no access log

	fresh  []member         // of services, those that the one before does not have
	former []*sharedService // of services that are gone, those that may still serve
	before *Generation      // until the switch
}

// member is a service of a Generation.
type member struct {
	*sharedService
	cfg    *config.Service
	bounds *serviceBounds
}

// generation lays out what is to follow the one before.
func (p *Process) generation(cfg *config.Config, before *Generation) *Generation {
	g := &Generation{
		cfg: cfg, number: before.number + 1, before: before, lines: before.lines,
		services:  make(map[string]member, len(cfg.Services)),
		entrances: make(map[string]*Entrance, len(cfg.Listeners)),
		rates:     make(map[string]*rateLimit),
	}
	for name, c := range cfg.Services {
		m := newMember(c, before.services[name], p.loops)
		if m.sharedService != before.services[name].sharedService {
			g.fresh = append(g.fresh, m)
		}
		g.services[name] = m
	}
	for i := range cfg.Listeners {
		g.enter(&cfg.Listeners[i], p.loops)
	}
	g.routes = planRoutes(cfg)
	g.compareRoutes()
	return g
}

func newMember(c *config.Service, old member, loops int) member {
	m := member{sharedService: old.sharedService, cfg: c, bounds: newServiceBounds(c)}
	if old.cfg == nil || !reflect.DeepEqual(firm(old.cfg), firm(c)) {
		m.sharedService = newSharedService(c, loops)
		return m
	}
	if old.cfg.RateLimit == c.RateLimit {
		m.bounds.rate = old.bounds.rate
	}
	if old.cfg.Breaker == c.Breaker {
		m.bounds.breaker = old.bounds.breaker
	}
	return m
}

// firm is c without what can be tuned while the service works. With anything else
// changed it is another service of the same name: the old one drains.
func firm(c *config.Service) config.Service {
	f := *c
	f.Discover, f.Endpoints, f.Check = "", nil, config.Check{}
	f.Policy, f.LB, f.Outlier = config.Policy{}, config.LB{Subset: c.LB.Subset}, config.Outlier{}
	f.ConnectTimeout, f.IdleTimeout, f.MaxPending, f.MaxQueue = 0, 0, 0, 0
	f.Breaker, f.RateLimit = config.Breaker{}, config.RateLimit{}
	f.MaxConcurrency = min(c.MaxConcurrency, 1) // whether there is a limit, and who sets it
	return f
}

// Config is the configuration. It is not changed.
func (g *Generation) Config() *config.Config { return g.cfg }

// Number counts the generations of a Process, from 1.
func (g *Generation) Number() uint64 { return g.number }

// Fresh are the names of services of which the loops know no endpoints until
// Update.
func (g *Generation) Fresh() []string {
	names := make([]string, len(g.fresh))
	for i, m := range g.fresh {
		names[i] = m.name
	}
	slices.Sort(names)
	return names
}

// Known tells that every loop knows the endpoints of the services in Fresh, be
// they none.
func (g *Generation) Known() bool {
	for _, m := range g.fresh {
		for i := range m.loops {
			if at := m.loops[i].Load(); at != nil && !at.known.Load() {
				return false
			}
		}
	}
	return true
}

// Drained tells that no service which this generation or one before has removed
// has anything in flight.
func (g *Generation) Drained() bool { return g.formerPending() == 0 }

func (g *Generation) formerPending() (n int) {
	for _, s := range g.former {
		n += int(s.pending.Load())
	}
	return n
}

// Update gives every loop a new snapshot of a service's endpoints. It may be
// called from any goroutine, one at a time for each service. Snapshots may
// overtake each other on their way to a loop, so a loop ignores one whose
// version it has passed.
func (g *Generation) Update(snap *registry.Snapshot) {
	s := g.services[snap.Service].sharedService
	if s == nil {
		return
	}
	targets := make([]lb.Target, len(snap.Endpoints))
	for i, e := range snap.Endpoints {
		targets[i] = lb.Target{Addr: e.Addr, Zone: e.Zone, Weight: float64(e.Weight), Unhealthy: e.Unhealthy}
	}
	// Not on the loops: to rank a thousand takes a millisecond.
	targets = lb.Subset(targets, s.subset, g.cfg.Node.ID)
	own := make(map[string]*atomic.Int32, len(snap.Endpoints))
	for _, e := range snap.Endpoints {
		if own[e.Addr] = s.own[e.Addr]; own[e.Addr] == nil {
			own[e.Addr] = new(atomic.Int32)
		}
	}
	s.own = own
	s.snapshot.Store(snap)
	for i := range s.loops {
		if at := s.loops[i].Load(); at != nil {
			at.w.loop.Post(func() { at.apply(snap, targets, own) })
		}
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
	before := g.before
	g.before = nil
	for _, s := range before.former {
		if s.pending.Load() > 0 {
			g.former = append(g.former, s)
		}
	}
	for name, m := range before.services {
		if g.services[name].sharedService != m.sharedService {
			g.former = append(g.former, m.sharedService)
		}
	}
	p.use(g)
	p.onLoops(func(w *Worker) { w.switchTo(g, before) }, done)
}

// use makes g what other goroutines than the loops see, and sets the limits of
// the process.
func (p *Process) use(g *Generation) {
	p.ledger.configure(&g.cfg.Limits)
	for _, m := range g.services {
		m.slots.maxQueue.Store(int32(m.cfg.MaxQueue))
		if m.slots.auto == nil {
			m.slots.limit.Store(int32(m.cfg.MaxConcurrency))
		}
	}
	p.current.Store(g)
}

// onLoops has every loop do something, and calls done when the last has.
func (p *Process) onLoops(do func(*Worker), done func()) {
	left := new(atomic.Int32)
	left.Store(int32(len(p.workers)))
	for _, w := range p.workers {
		w.loop.Post(func() {
			do(w)
			if left.Add(-1) == 0 {
				done()
			}
		})
	}
}

// routePlan is one route to one service, as a loop is to make it.
type routePlan struct {
	index   int // in Config.Routes; -1: of listeners with a fixed service
	service string
	match   *config.Match
	rewrite string
	policy  *config.Policy
	weight  int // in its split
	shares  int // of the first of a split: how many routes, itself included; else 0

	// former is the place of a route of the generation before that takes the
	// same requests to the same service, or -1; same tells that nothing else
	// differs either.
	former int
	same   bool
}

// planRoutes lists the shares of a split one after another, and the routes of
// listeners with a fixed service last.
func planRoutes(cfg *config.Config) (plans []routePlan) {
	for i := range cfg.Routes {
		c := &cfg.Routes[i]
		plan := routePlan{index: i, match: &c.Match, rewrite: c.Rewrite.Path}
		if len(c.Split) == 0 {
			plan.service, plan.policy = c.Service, &c.Policy
			plans = append(plans, plan)
			continue
		}
		plan.shares = len(c.Split)
		for j := range c.Split {
			s := &c.Split[j]
			plan.service, plan.policy, plan.weight = s.Name, &s.Policy, s.Weight
			plans = append(plans, plan)
			plan.shares = 0
		}
	}
	direct := map[string]bool{"": true}
	for i := range cfg.Listeners {
		if name := cfg.Listeners[i].Service; !direct[name] {
			direct[name] = true
			plans = append(plans, routePlan{
				index: -1, service: name, match: &config.Match{}, policy: &cfg.Services[name].Policy,
			})
		}
	}
	return plans
}

// compareRoutes finds what the generation before had of the routes.
func (g *Generation) compareRoutes() {
	places := make(map[string]int, len(g.before.routes))
	for i := range g.before.routes {
		places[g.before.routes[i].key()] = i
	}
	for i := range g.routes {
		r := &g.routes[i]
		r.former = -1
		at, ok := places[r.key()]
		if !ok || g.services[r.service].sharedService != g.before.services[r.service].sharedService {
			continue
		}
		delete(places, r.key())
		old := &g.before.routes[at]
		r.former, r.same = at, old.rewrite == r.rewrite && reflect.DeepEqual(old.policy, r.policy)
	}
}

// key tells which requests the route takes to which service.
func (r *routePlan) key() string { return fmt.Sprintf("%t %q %q", r.index < 0, r.service, *r.match) }
