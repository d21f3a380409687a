package http2

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/remora-proxy/remora/proxy/loop"
)

// These are the reasons for which a connection did not open.
var (
	errSilent    = errors.New("proxy: the peer did not begin to speak HTTP/2 within connect_timeout")
	errUntrusted = errors.New("proxy: the peer is no longer accepted")
	errClosed    = errors.New("proxy: the peer closed before it spoke HTTP/2; it may want TLS, or speak HTTP/1.1")
	errHTTP1     = errors.New("proxy: the peer speaks HTTP/1.1, not HTTP/2; expected a service with protocol: http")
	errNotHTTP2  = errors.New("proxy: the peer does not speak HTTP/2")
	errNoRoom    = errors.New("proxy: the peer takes no requests: its SETTINGS allow no stream")
	errGoesAway  = errors.New("proxy: the peer goes away before it took a request")
)

// notHTTP2 returns why the connection did not open, if b is the first that the endpoint sent.
func notHTTP2(b []byte, err error) error {
	if bytes.HasPrefix(b, []byte("HTTP/1.")) {
		return errHTTP1
	}
	return fmt.Errorf("%w: %w", errNotHTTP2, err)
}

// OnOpen implements loop.Stream. No request is sent before the endpoint's SETTINGS arrive: they tell
// how many it takes, and a peer that speaks another protocol gets none.
func (c *conn) OnOpen(conn loop.Conn) {
	c.transport, c.outbound.Conn = conn, conn
	if c.state == closed {
		conn.Close()
		return
	}
	c.state.become(greeting)
	c.shard.Loop.After(c.pool.service.Config.ConnectTimeout, &c.handshake)
	c.flush()
}

// onSettings is called when the endpoint's settings were received or have changed. One that allows
// no stream at first counts as one that can't be connected to.
func (c *conn) onSettings() {
	switch {
	case c.state != greeting:
		c.pool.onRoom(c)
		c.pool.dialMore()
		return
	case c.h2.MayOpen() == 0:
		c.onDialFailed(errNoRoom)
		return
	}
	c.shard.Loop.Stop(&c.handshake)
	c.state.become(open)
	c.pool.dials.limit = min(streamLimit, c.h2.MayOpen())
	c.shard.Loop.After(keepaliveInterval, &c.keepalive.timer)
	c.pool.onDialed(c)
}

// onDialFailed ends a connection that did not open, because of err. It is nil when the process ends.
func (c *conn) onDialFailed(err error) {
	f := c.pool.service.DialFailed(c.pool.endpoint.LB.Addr, err)
	c.close(f)
	c.pool.onDialFailed(f, c.newest)
}
