package proxy

import (
	"net/netip"
	"sync/atomic"

	"github.com/remora-proxy/remora/internal/unixaddr"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/loop"
)

// Listener is a listener of the configuration. It survives reloads after which it continues, as
// config.Listener.Continues says. Any goroutine may call Links and DrainLast.
type Listener struct {
	began    *config.Listener // the configuration that made it
	protocol string

	links   atomic.Int32        // accepted links that may carry requests
	perLoop []exchange.Listener // by the shard's index
}

func newListener(c *config.Listener, loops int) *Listener {
	l := &Listener{began: c, protocol: c.Protocol, perLoop: make([]exchange.Listener, loops)}
	for i := range l.perLoop {
		l.perLoop[i] = exchange.Listener{
			Name: c.Name, Protocol: c.Protocol, Local: isLocal(c),
			Sidecars: protocolOf(c.Protocol).sidecars, Secure: c.TLS.Enabled(), Links: &l.links,
		}
	}
	return l
}

// Accept returns the session for a connection that the listener has accepted, on w's loop.
func (l *Listener) Accept(w *Worker) loop.Receiver {
	return w.acceptors[l.protocol](&l.perLoop[w.shard.Index])
}

// Links returns the number of links that the listener has accepted and that may carry
// requests. A link that is refused counts for a moment. Apart from that the number only
// falls once the listener is removed from the configuration.
func (l *Listener) Links() int { return int(l.links.Load()) }

// DrainLast reports whether the listener must close after the others when the process
// ends, because another sidecar may fetch a response there.
func (l *Listener) DrainLast() bool { return protocolOf(l.protocol).sidecars }

// PlaintextResponse returns the response to a client that does not use TLS although the listener
// does; nil if the protocol has none.
func (l *Listener) PlaintextResponse() []byte {
	if response := protocolOf(l.protocol).plaintext; response != nil {
		return response()
	}
	return nil
}

// isLocal reports whether all clients of a listener are on this host. Those of a proxy may be anywhere.
func isLocal(c *config.Listener) bool { return loopback(c.Address) && !c.ProxyProtocol.Enabled() }

// loopback reports whether only this host can reach a listener's address.
func loopback(addr string) bool {
	ap, err := netip.ParseAddrPort(addr)
	return err == nil && ap.Addr().IsLoopback() || unixaddr.Is(addr)
}
