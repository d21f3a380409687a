package link

import (
	"errors"
	"fmt"
	"io"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux/linkconn"
)

var (
	_ loop.Destined = (*client)(nil)
	_ loop.Verified = (*client)(nil)
)

// client is the dialling end of one link: it opens the link, drains it, and closes it. The attempts on the link are its calls.
type client struct {
	linkconn.Conn
	up        *upstream
	calls     calls
	handshake loop.Timer // armed until the peer's preface arrives
	probes    probes
}

// These are the reasons for which a connection did not become a link.
var (
	errLinkSilent = errors.New("proxy: the peer did not begin to speak the link protocol within connect_timeout")
	errUntrusted  = errors.New("proxy: the peer is no longer accepted")
	errLinkClosed = errors.New("proxy: the peer closed before it spoke the link protocol; it may want TLS, or speak another protocol")
)

func (c *client) ServiceKey() string { return c.up.service.Shared.Key }

func dialLink(u *upstream) *client {
	c := &client{up: u}
	u.all = append(u.all, c)
	c.calls.init(c)
	settings := linkconn.Settings(u.service.Shard.Process)
	limits := linkconn.Limits(u.service.Shard, c.calls.unasked) // other responses are no new work
	c.Init(u.service.Shard, link.NewDialer(settings, limits, &c.calls), c)
	c.handshake.Fire = func() { c.onDialFailed(errLinkSilent) }
	c.Writer.Preface(link.Dialer, settings)
	c.Shard.Loop.Dial(u.endpoint.LB.Addr, u.service.Config.ConnectTimeout, c)
	return c
}

func (c *client) InFlight() int { return c.calls.len() }
func (c *client) BeforeFlush()  {}
func (c *client) OnFlushed()    {}
func (c *client) OnLost()       { c.close(fault.Reset) }
func (c *client) OnIdle()       { c.close(nil) }

func (c *client) OnOpen(conn loop.Conn) {
	if c.State() == linkconn.Closed {
		conn.Close()
		return
	}
	c.Attach(conn)
	c.Shard.Loop.After(c.up.service.Config.ConnectTimeout, &c.handshake)
	c.Flush()
}

func (c *client) OnData(b []byte) {
	if !c.Receive(b) {
		c.close(fault.Reset)
		return
	}
	c.finishDrain()
}

func (c *client) OnClose(err error) {
	switch {
	case c.State() == linkconn.Closed:
	case c.State() != linkconn.Opening:
		c.close(fault.Reset)
	case c.Transport == nil || err == nil:
		c.onDialFailed(err)
	case err == io.EOF:
		c.onDialFailed(errLinkClosed)
	default:
		c.onDialFailed(fmt.Errorf("%w: %w", errLinkClosed, err))
	}
}

// onDialFailed ends a link that did not open, because of err. It is nil when the process ends.
func (c *client) onDialFailed(err error) {
	c.close(c.up.service.DialFailed(c.up.endpoint.LB.Addr, err))
}

// OnPreface opens the link: requests that were queued may be sent.
func (c *client) OnPreface(version uint8, peer link.Settings) {
	c.Shard.Loop.Stop(&c.handshake)
	c.calls.setPeer(peer)
	c.probes.taken = peer.Features&link.FeatureProbes != 0
	c.Establish(version, peer)
	if c.up.gone {
		c.StartDraining()
	}
}

// OnGoAway fails the attempts that the peer did not accept. A GOAWAY before the first request counts as a refused
// connection, lest the endpoint be picked because it has nothing in flight. No request is put on the link from then on.
func (c *client) OnGoAway(last uint64, _ link.Reason) {
	c.detach()
	c.StartDraining()
	f := fault.GoAway
	if last == 0 {
		f = fault.Connect
	}
	c.calls.rejectAbove(last, f)
}

// OnLoad passes the load of the peer's service to the load balancer.
func (c *client) OnLoad(l link.Load) {
	c.up.service.HeardLoad(c.Shard.Loop.Now(), c.up.endpoint.LB, loadOf(l))
}

func loadOf(l link.Load) lb.Load {
	return lb.Load{Pending: int(l.Pending), Queued: int(l.Queued), Latency: l.Latency, SinceResponse: l.SinceResponse}
}

// detach makes the next attempt dial a new link.
func (c *client) detach() {
	if c.up.cur == c {
		c.up.cur = nil
	}
}

// drain closes the link once nothing is in flight on it.
func (c *client) drain() {
	if c.State() == linkconn.Open {
		c.StartDraining()
	}
	c.finishDrain()
}

// OnUntrusted implements loop.Verified. The next attempt dials a new link, and so verifies the
// endpoint again.
func (c *client) OnUntrusted() {
	if c.State() == linkconn.Opening {
		c.onDialFailed(errUntrusted)
		return
	}
	c.detach()
	c.drain()
	c.LimitDrain()
}

func (c *client) finishDrain() {
	if c.State() == linkconn.Draining && c.calls.len() == 0 {
		c.close(nil)
	}
}

// close closes the link, and fails with f the attempts in flight on it. A request of which no
// byte was sent counts as unsent, whatever f says.
func (c *client) close(f *fault.Failure) {
	if c.State() == linkconn.Closed {
		return
	}
	opened := c.State() != linkconn.Opening
	c.up.remove(c)
	c.Shard.Loop.Stop(&c.handshake)
	left := c.calls.unsend(opened)
	c.Stop()
	if c.Transport != nil {
		c.Transport.Close()
	}
	c.calls.fail(left, f)
}
