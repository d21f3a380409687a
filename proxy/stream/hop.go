package stream

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/remora-proxy/remora/proxy/fault"
)

// passTimeout limits connecting to the original destination of a client, for which the
// connection is open already.
const passTimeout = 10 * time.Second

// hop is the addresses of a connection. Connection tracking in the kernel keeps them when it
// redirects the connection.
type hop struct{ from, to netip.AddrPort }

// hops are the open connections that this sidecar has made to original destinations. If the kernel redirects such a
// connection to the sidecar, the sidecar must refuse it: it would pass the connection on to itself for ever.
type hops struct{ open sync.Map } // keys of type hop

func (h *hops) has(a hop) bool {
	_, ours := h.open.Load(a)
	return ours
}

func (h *hops) add(a hop) { h.open.Store(a, nil) }

func (h *hops) remove(a hop) { h.open.Delete(a) }

// dialDestination connects to the original destination of a redirected connection. The caller must call forgetHop at
// the end of the stream.
func (c *connector) dialDestination(to netip.AddrPort) *fault.Failure {
	srv := c.p.srv
	if srv.hops.has(hop{addrPort(c.p.down.RemoteAddr()), to}) {
		srv.opt.Logger.Warn("connection refused: it was made by this sidecar and redirected to it; exclude the sidecar's user id from redirection",
			"destination", to.String())
		return fault.Loop
	}
	ctx, cancel := context.WithTimeout(srv.ctx, passTimeout)
	defer cancel()
	sock, err := srv.opt.Dial(ctx, to.String(), "", "", nil)
	if err == nil {
		err = c.p.attachUp(endOf(sock), endpointID{})
	}
	if err != nil {
		srv.opt.Logger.Debug("original destination not connected", "destination", to.String(), "error", err)
		return fault.Connect
	}
	// The hop is added before a byte is sent: if the kernel redirects this connection to the
	// sidecar too, it must be found.
	c.onward = hop{addrPort(c.p.up.LocalAddr()), to}
	srv.hops.add(c.onward)
	return nil
}

// forgetHop is called at the end of the stream, whose connections are closed.
func (c *connector) forgetHop() {
	if c.onward != (hop{}) {
		c.p.srv.hops.remove(c.onward)
	}
}

func addrPort(a net.Addr) netip.AddrPort {
	at := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}
