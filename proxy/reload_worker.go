package proxy

import (
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/config"
)

// prepare makes this loop's part of the services that are new in g.
func (w *Worker) prepare(g *Generation) {
	for _, m := range g.fresh {
		m.loops[w.index].Store(newService(w, m))
	}
}

// switchTo works by g, in the place of before, from now on.
func (w *Worker) switchTo(g, before *Generation) {
	w.cfg, w.generation = g.cfg, g.number
	w.setLimits(&g.cfg.Limits)
	w.boundBuffers()
	w.tracer.configure(&g.cfg.Tracing)
	w.access.follow(g)
	old := w.services
	w.services = make(map[string]*service, len(g.services))
	for name, m := range g.services {
		s := m.loops[w.index].Load()
		s.tune(m)
		w.services[name] = s
	}
	w.adoptRoutes(g)
	for i := range g.cfg.Listeners {
		l := &g.cfg.Listeners[i]
		at := &g.entrances[l.Name].doors[w.index]
		at.rate, at.direct = g.rates[l.Name], w.direct[l.Service]
	}
	w.former = make(map[string]*service)
	for name, s := range old {
		if w.services[name] != s {
			s.retire()
			w.former[name] = s
		}
	}
	for name, e := range before.entrances {
		if g.entrances[name] != e {
			w.shut(&e.doors[w.index])
		}
	}
}

// leasable is the service that a stream is for. One that has left its loop just
// before the service was removed is served all the same.
func (w *Worker) leasable(name string) *service {
	if s := w.services[name]; s != nil {
		return s
	}
	return w.former[name]
}

// setLimits sets those of messages. They are replaced, not changed: a message that
// is being received keeps the ones it began with.
func (w *Worker) setLimits(lim *config.Limits) {
	w.httpLimits = &http1.Limits{Header: int(lim.Header), Headers: lim.Headers, Message: lim.Message}
	noLimit := *w.httpLimits
	noLimit.Message = http1.NoLimit
	w.noLimit = &noLimit
	w.linkLimits = link.ReaderLimits{
		Message: lim.Message,
		// What the other sidecar took in within these limits has grown.
		Header: int(lim.Header) + addedBytes, Headers: lim.Headers + addedHeaders,
		Buffers: &w.buffers,
	}
}

// adoptRoutes makes the routes of g. One that has not changed is the old one;
// one of which only the policy has goes on with its latency estimate.
func (w *Worker) adoptRoutes(g *Generation) {
	old := w.planned
	w.planned = make([]*route, len(g.routes))
	w.direct = make(map[string]*route)
	for _, s := range w.services {
		s.routes = nil
	}
	for i := range g.routes {
		plan := &g.routes[i]
		r := w.planRoute(plan, old)
		r.index, r.shares, r.total = plan.index, nil, 0
		r.svc.routes = append(r.svc.routes, r)
		w.planned[i] = r
		if plan.index < 0 {
			w.direct[plan.service] = r
		}
	}
	w.arrange(g.routes)
	for _, r := range old {
		if r != nil { // its requests in flight may still add to its counts, which are then lost
			r.svc.stats.Counts.Add(&r.hedging.Counts)
		}
	}
}

// planRoute is the route of a plan; what it takes from the old routes is no more
// among them.
func (w *Worker) planRoute(plan *routePlan, old []*route) *route {
	if plan.same {
		r := old[plan.former]
		old[plan.former] = nil
		return r
	}
	r := newRoute(plan, w.services[plan.service])
	if plan.former >= 0 {
		r.hedging.Estimator = old[plan.former].hedging.Estimator
	}
	return r
}

// arrange puts the routes into the order of the configuration, those of a split
// behind the first of its shares.
func (w *Worker) arrange(plans []routePlan) {
	var routes []*route
	for i := 0; i < len(plans) && plans[i].index >= 0; i += max(1, plans[i].shares) {
		first := w.planned[i]
		routes = append(routes, first)
		for j := i; j < i+plans[i].shares; j++ {
			first.shares = append(first.shares, share{w.planned[j], uint64(plans[j].weight)})
			first.total += uint64(plans[j].weight)
		}
	}
	w.table = newRouteTable(routes)
}

// tune takes over what a configuration says of a service that is already there.
func (s *service) tune(m member) {
	s.cfg, s.bounds = m.cfg, m.bounds
	s.set.Policy = policies[s.cfg.LB.Policy]
	s.set.SlowStart = s.cfg.LB.SlowStart
	s.set.Panic = s.cfg.LB.Panic
	s.set.Outlier = lb.Outlier{
		Consecutive: s.cfg.Outlier.Consecutive,
		SuccessRate: s.cfg.Outlier.SuccessRate,
		Latency:     float64(s.cfg.Outlier.Latency),
		Base:        s.cfg.Outlier.Base,
		MaxEjected:  s.cfg.Outlier.MaxEjected,
	}
	s.set.Retune()
	s.stallNext = 0
	s.giveFree()
}

// retire has the service end: what is in flight goes on, and its connections close
// when they carry nothing more.
func (s *service) retire() {
	for i := range s.set.Len() {
		s.set.At(i).Ext.(*endpoint).up.retire()
	}
}

// Entrance is a listener as the core knows it. It outlives reloads that keep its
// name, address and protocol; other goroutines only call Accept and Links.
type Entrance struct {
	name, address, protocol string

	trusted bool // its peers are on this host
	links   atomic.Int32
	doors   []door // by the worker's index
}

// door is one loop's part of an Entrance.
type door struct {
	of     *Entrance
	direct *route     // of a listener with a fixed service, else nil
	rate   *rateLimit // nil: none
	shut   bool       // the listener is gone, or about to go
}

// limited tells whether the listener's rate limit refuses a request or stream at
// now, which takes a token if not.
func (d *door) limited(now time.Duration) bool { return d.rate != nil && !d.rate.take(now) }

// enter adds the entrance of a listener, the one before if that is the same.
func (g *Generation) enter(l *config.Listener, loops int) {
	e := g.before.entrances[l.Name]
	if e == nil || e.address != l.Address || e.protocol != l.Protocol {
		e = newEntrance(l, loops)
	}
	g.entrances[l.Name] = e
	switch was := g.before.rates[l.Name]; {
	case l.RateLimit.Rate == 0:
	case was != nil && *was.cfg == l.RateLimit:
		g.rates[l.Name] = was
	default:
		g.rates[l.Name] = newRateLimit(&l.RateLimit)
	}
}

func newEntrance(l *config.Listener, loops int) *Entrance {
	e := &Entrance{name: l.Name, address: l.Address, protocol: l.Protocol, trusted: loopback(l.Address), doors: make([]door, loops)}
	for i := range e.doors {
		e.doors[i].of = e
	}
	return e
}

// Entrance is that of a listener of g.
func (g *Generation) Entrance(listener string) *Entrance { return g.entrances[listener] }

// Accept makes the session for a connection that came in there, on w's loop.
func (e *Entrance) Accept(w *Worker) Stream {
	at := &e.doors[w.index]
	switch e.protocol {
	case config.ProtocolLink:
		return newLinkSession(w, at)
	case config.ProtocolDubbo:
		return newDubboSession(w, at)
	}
	return newHTTPSession(w, at)
}

// Links is the number of links that came in there and may carry requests. Once the
// listener is gone from the configuration it only falls, but for a moment at each
// link that is turned away.
func (e *Entrance) Links() int { return int(e.links.Load()) }

// Retire has the connections of all listeners end as soon as nothing can be lost by
// it, as Switch does with those of listeners that are gone: the caller closes them,
// and another process serves there. Safe from any goroutine.
func (p *Process) Retire() {
	entrances := p.current.Load().entrances
	for _, w := range p.workers {
		w.loop.Post(func() {
			for _, e := range entrances {
				w.shut(&e.doors[w.index])
			}
		})
	}
}

// shut has the sessions that came in by a door end. Those that lead to a service
// which is gone too can't serve on.
func (w *Worker) shut(d *door) {
	d.shut = true
	orphan := d.direct != nil && w.services[d.direct.svc.cfg.Name] != d.direct.svc
	for s := w.sessions.head; s != nil; {
		next := s.link().next
		switch {
		case s.at() != d:
		case orphan:
			s.drain()
		default:
			s.retire()
		}
		s = next
	}
}
