package proxy

import (
	"slices"

	"github.com/remora-proxy/remora/proxy/exchange"
)

// drain closes idle connections, and busy ones after their last response. Other
// sidecars are told to use other endpoints. It runs on the loop.
func (w *Worker) drain() {
	for _, s := range slices.Backward(w.host.Sessions) {
		s.Drain()
	}
}

// Drain begins the end of the process: requests in flight are finished. New requests on open
// connections are still served, the last one of each with "Connection: close". The drain has
// ended when Pending is 0 and no accepted connection is open. Any goroutine may call it.
func (p *Process) Drain() {
	p.shared.Draining.Store(true)
	for _, w := range p.workers {
		w.shard.Loop.Post(w.drain)
	}
}

// Retire ends the connections of all listeners as soon as no request can be lost by it,
// as Switch does for listeners that were removed. The caller closes the listeners; another
// process serves at their addresses. Any goroutine may call it.
func (p *Process) Retire() {
	listeners := p.current.Load().listeners
	for _, w := range p.workers {
		w.shard.Loop.Post(func() {
			for _, l := range listeners {
				w.retireSessions(&l.perLoop[w.shard.Index])
			}
		})
	}
}

// retireSessions ends the sessions of a listener as soon as no request can be lost by it.
// If its fixed service was removed, too, they can't serve and only finish.
func (w *Worker) retireSessions(l *exchange.Listener) {
	l.Closing = true
	orphan := l.Fixed != nil && w.services[l.Fixed.Service.Config.Name] != l.Fixed.Service
	for _, s := range slices.Backward(w.host.Sessions) {
		switch {
		case s.Listener() != l:
		case orphan:
			s.Drain()
		default:
			s.Retire()
		}
	}
}
