package proxy

import (
	"net/netip"
	"sync/atomic"

	"github.com/remora-proxy/remora/proxy/config"
)

// Entrance is a listener as the core knows it. It outlives reloads that keep its
// name, address and protocol; other goroutines only call Accept and Links.
type Entrance struct {
	name, address, protocol string

	links   atomic.Int32
	perLoop []listener // by the shard's index
}

func newEntrance(l *config.Listener, loops int) *Entrance {
	e := &Entrance{name: l.Name, address: l.Address, protocol: l.Protocol, perLoop: make([]listener, loops)}
	for i := range e.perLoop {
		e.perLoop[i] = listener{
			name: l.Name, protocol: l.Protocol, trusted: loopback(l.Address),
			sidecars: protocolOf(l.Protocol).sidecars, links: &e.links,
		}
	}
	return e
}

// Accept makes the session for a connection that came in there, on w's loop.
func (e *Entrance) Accept(w *Worker) Stream {
	return w.accept[e.protocol].accept(&e.perLoop[w.shard.index])
}

// Links is the number of links that came in there and may carry requests. Once the
// listener is gone from the configuration it only falls, but for a moment at each
// link that is turned away.
func (e *Entrance) Links() int { return int(e.links.Load()) }

// DrainLast reports whether the listener closes after the others when the process
// goes down: another sidecar may come there for an answer that it asked for.
func (e *Entrance) DrainLast() bool { return protocolOf(e.protocol).sidecars }

// loopback reports whether a listener's address can be reached from this host
// only.
func loopback(addr string) bool {
	ap, err := netip.ParseAddrPort(addr)
	return err == nil && ap.Addr().IsLoopback()
}
