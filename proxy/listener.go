package proxy

import (
	"net/netip"
	"sync/atomic"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/loop"
)

// Listener is a listener as the core knows it. It outlives reloads that keep its
// name, address and protocol; other goroutines only call Accept and Links.
type Listener struct {
	name, address, protocol string

	links   atomic.Int32
	perLoop []exchange.Listener // by the shard's index
}

func newEntrance(l *config.Listener, loops int) *Listener {
	e := &Listener{name: l.Name, address: l.Address, protocol: l.Protocol, perLoop: make([]exchange.Listener, loops)}
	for i := range e.perLoop {
		e.perLoop[i] = exchange.Listener{
			Name: l.Name, Protocol: l.Protocol, Trusted: loopback(l.Address),
			Sidecars: protocolOf(l.Protocol).sidecars, Links: &e.links,
		}
	}
	return e
}

// Accept makes the session for a connection that came in there, on w's loop.
func (e *Listener) Accept(w *Worker) loop.Stream {
	return w.accept[e.protocol].Accept(&e.perLoop[w.shard.Index])
}

// Links is the number of links that came in there and may carry requests. Once the
// listener is gone from the configuration it only falls, but for a moment at each
// link that is turned away.
func (e *Listener) Links() int { return int(e.links.Load()) }

// DrainLast reports whether the listener closes after the others when the process
// goes down: another sidecar may come there for an answer that it asked for.
func (e *Listener) DrainLast() bool { return protocolOf(e.protocol).sidecars }

// loopback reports whether a listener's address can be reached from this host
// only.
func loopback(addr string) bool {
	ap, err := netip.ParseAddrPort(addr)
	return err == nil && ap.Addr().IsLoopback()
}
