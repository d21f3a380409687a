package proxy

import (
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/limit"
)

// prepare makes this loop's part of the services that are new in g.
func (w *Worker) prepare(g *Generation) {
	for _, m := range g.added {
		m.Prepare(w.shard, g.cfg.Node.Zone, w.speaks)
	}
}

// switchTo works by g, in the place of before, from now on.
func (w *Worker) switchTo(g, before *Generation) {
	w.generation = g.number
	w.shard.Configure(g.cfg)
	w.shard.AccessLog.Configure(&g.cfg.AccessLog, g.lines)
	old := w.services
	w.services = make(map[string]*exchange.Service, len(g.services))
	for name, m := range g.services {
		w.services[name] = m.Follow(w.shard)
	}
	w.router.Adopt(g.table, g.routes, w.services)
	for i := range g.cfg.Listeners {
		l := &g.cfg.Listeners[i]
		at := &g.listeners[l.Name].perLoop[w.shard.Index]
		at.Rate, at.Direct = g.rates[l.Name], w.router.Direct[l.Service]
	}
	w.removed = make(map[string]*exchange.Service)
	for name, s := range old {
		if w.services[name] != s {
			s.Retire()
			w.removed[name] = s
		}
	}
	for name, e := range before.listeners {
		if g.listeners[name] != e {
			w.shut(&e.perLoop[w.shard.Index])
		}
	}
}

// enter adds the entrance of a listener, the one before if that is the same.
func (g *Generation) enter(l *config.Listener, loops int) {
	e := g.previous.listeners[l.Name]
	if e == nil || e.address != l.Address || e.protocol != l.Protocol {
		e = newEntrance(l, loops)
	}
	g.listeners[l.Name] = e
	switch was := g.previous.rates[l.Name]; {
	case l.RateLimit.Rate == 0:
	case was != nil && *was.Config == l.RateLimit:
		g.rates[l.Name] = was
	default:
		g.rates[l.Name] = limit.NewRate(&l.RateLimit)
	}
}

// Listener is that of a listener of g.
func (g *Generation) Listener(listener string) *Listener { return g.listeners[listener] }
