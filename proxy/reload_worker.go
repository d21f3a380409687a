package proxy

import "github.com/remora-proxy/remora/proxy/config"

// prepare makes this loop's part of the services that are new in g.
func (w *Worker) prepare(g *Generation) {
	for _, m := range g.fresh {
		m.prepare(w.shard, g.cfg.Node.Zone, w.speaks)
	}
}

// switchTo works by g, in the place of before, from now on.
func (w *Worker) switchTo(g, before *Generation) {
	w.generation = g.number
	w.shard.configure(g.cfg)
	w.shard.access.configure(&g.cfg.AccessLog, g.lines)
	old := w.services
	w.services = make(map[string]*service, len(g.services))
	for name, m := range g.services {
		w.services[name] = m.follow(w.shard)
	}
	w.router.adopt(g.table, g.routes, w.services)
	for i := range g.cfg.Listeners {
		l := &g.cfg.Listeners[i]
		at := &g.entrances[l.Name].perLoop[w.shard.index]
		at.rate, at.direct = g.rates[l.Name], w.router.direct[l.Service]
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
			w.shut(&e.perLoop[w.shard.index])
		}
	}
}

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

// Entrance is that of a listener of g.
func (g *Generation) Entrance(listener string) *Entrance { return g.entrances[listener] }
