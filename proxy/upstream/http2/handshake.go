package http2

import (
	"bytes"
	"errors"
	"fmt"
	"io"

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
)

// notHTTP2 returns why the connection did not open, if b is the first that the endpoint sent.
func notHTTP2(b []byte, err error) error {
	if bytes.HasPrefix(b, []byte("HTTP/1.")) {
		return errHTTP1
	}
	return fmt.Errorf("%w: %w", errNotHTTP2, err)
}

// handshake opens a connection that was dialled. No request is sent before the endpoint's SETTINGS arrive: they tell
// how many it takes, and a peer that speaks another protocol gets none.
//
// Calls in: the connection says what has happened (onConnected, onSettings, onClose), or why it can't open (fail).
//
// Calls out: the pool gets the connection, or its failure.
type handshake struct {
	*conn
	limit  loop.Timer // armed while the state is greeting
	newest uint64     // of the waiting requests when the connection was dialled
}

func (h *handshake) init(c *conn) {
	h.conn, h.newest = c, c.pool.arrivals
	h.limit.Fire = func() { h.fail(errSilent) }
}

// onConnected begins the handshake.
func (h *handshake) onConnected() {
	h.state.become(greeting)
	h.shard.Loop.After(h.pool.service.Config.ConnectTimeout, &h.limit)
	h.flush()
}

// onSettings opens the connection. An endpoint that allows no stream counts as one that can't be connected to.
func (h *handshake) onSettings() {
	if h.h2.MayOpen() == 0 {
		h.fail(errNoRoom)
		return
	}
	h.stop()
	h.state.become(open)
	h.pool.dials.limit = min(streamLimit, h.h2.MayOpen())
	h.shard.Loop.After(keepaliveInterval, &h.keepalive.timer)
	h.pool.onDialed(h.conn)
}

// onClose is called when the connection was not made, or closed before it was open. err is nil when the process ends.
func (h *handshake) onClose(err error) {
	switch {
	case h.state == dialing:
	case err == nil || err == io.EOF:
		err = errClosed
	default:
		err = errors.Join(errClosed, err)
	}
	h.fail(err)
}

// fail ends a connection that did not open, because of err.
func (h *handshake) fail(err error) {
	f := h.pool.service.DialFailed(h.pool.endpoint.LB.Addr, err)
	h.close(f)
	h.pool.onDialFailed(f, h.newest)
}

// stop ends the time for the handshake.
func (h *handshake) stop() { h.shard.Loop.Stop(&h.limit) }
