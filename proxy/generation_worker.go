package proxy

import (
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/forwarded"
	"github.com/remora-proxy/remora/proxy/route"
	"github.com/remora-proxy/remora/proxy/service"
)

// prepare makes the services that are new in g on this loop.
func (w *Worker) prepare(g *Generation) {
	for _, m := range g.added {
		m.Prepare(w.shard, g.cfg.Node.Zone, w.connectors)
	}
}

func (w *Worker) switchTo(g, previous *Generation) {
	w.generation = g.number
	w.shard.Configure(g.cfg)
	w.shard.AccessLog.Configure(&g.cfg.AccessLog, g.accessLog)

	before := w.services
	w.services = make(map[string]*service.Service, len(g.services))
	for name, m := range g.services {
		w.services[name] = m.Follow(w.shard)
	}
	w.router.Adopt(g.table, g.routes, w.services, g)
	for i := range g.cfg.Listeners {
		c := &g.cfg.Listeners[i]
		l := &g.listeners[c.Name].perLoop[w.shard.Index]
		l.Rate, l.Fixed, l.Trust, l.Paths = g.rates[listenerRules(c.Name)], w.router.Fixed[c.Service], g.trust[c.Name], nil
		l.Allow = g.rules[listenerRules(c.Name)]
		l.Unrouted = c.Unrouted == config.UnroutedDirect
		l.Expects = c.Expect == config.ExpectForward
		if c.Service == "" && g.table.ByPath {
			l.Paths = route.NewPathRules(&c.Path)
		}
	}

	w.removed = make(map[string]*service.Service)
	for name, s := range before {
		if w.services[name] != s {
			s.Retire()
			w.removed[name] = s
		}
	}
	for name, l := range previous.listeners {
		if g.listeners[name] != l {
			w.retireSessions(&l.perLoop[w.shard.Index])
		}
	}
}

// addListener adds a listener, or keeps one that has not changed.
func (g *Generation) addListener(c *config.Listener, loops int) {
	l := g.previous.listeners[c.Name]
	if l == nil || !c.Continues(l.began) {
		l = newListener(c, loops)
	}
	g.listeners[c.Name] = l
	g.trust[c.Name] = forwarded.New(&c.Forwarded, isLocal(c))
}

// Listener returns the listener of g with that name, or nil.
func (g *Generation) Listener(name string) *Listener { return g.listeners[name] }
