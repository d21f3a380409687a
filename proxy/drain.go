package proxy

import "github.com/remora-proxy/remora/proxy/exchange"

// drain makes the worker finish: idle connections close, busy ones once they
// are answered, other sidecars are told to go elsewhere. It runs on the loop.
func (w *Worker) drain() {
	for s := range w.host.Sessions.All {
		s.Drain()
	}
}

// Drain stops the intake of all loops: what is in flight is finished, new
// requests on open connections are still answered, the last with "Connection:
// close". It is done when Pending is 0 and no accepted connection is open. Safe
// from any goroutine.
func (p *Process) Drain() {
	p.shared.Draining.Store(true)
	for _, w := range p.workers {
		w.shard.Loop.Post(w.drain)
	}
}

// Retire has the connections of all listeners end as soon as nothing can be lost by
// it, as Switch does with those of listeners that are gone: the caller closes them,
// and another process serves there. Safe from any goroutine.
func (p *Process) Retire() {
	entrances := p.current.Load().listeners
	for _, w := range p.workers {
		w.shard.Loop.Post(func() {
			for _, e := range entrances {
				w.shut(&e.perLoop[w.shard.Index])
			}
		})
	}
}

// shut has the sessions that came in at a listener end. Those that lead to a service
// which is gone too can't serve on.
func (w *Worker) shut(l *exchange.Listener) {
	l.Closing = true
	orphan := l.Direct != nil && w.services[l.Direct.Service.Config.Name] != l.Direct.Service
	for s := range w.host.Sessions.All {
		switch {
		case s.Listener() != l:
		case orphan:
			s.Drain()
		default:
			s.Retire()
		}
	}
}
