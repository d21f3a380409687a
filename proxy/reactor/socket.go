package reactor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// notifyTime bounds how long Close waits for a peer that does not read, to tell
// it of the end.
const notifyTime = time.Second

// outside is what an engine counts of a connection that is on none of its loops.
type outside struct {
	eng    *Engine
	place  place
	closed atomic.Bool
}

// begin counts a connection, which has the place at; end gives that back.
func (o *outside) begin(e *Engine, at place) {
	o.eng, o.place = e, at
	e.count.outside.Add(1)
}

// end is false when it was called before.
func (o *outside) end() bool {
	if o.closed.Swap(true) {
		return false
	}
	o.eng.count.outside.Add(-1)
	o.place.leave()
	return true
}

// plainSocket is a loop.Socket in plain text. Two of them are copied within the
// kernel by io.Copy.
type plainSocket struct {
	*net.TCPConn
	outside outside
}

// NetConn is the TCP connection.
func (s *plainSocket) NetConn() net.Conn { return s.TCPConn }

// Secure implements loop.Socket.
func (s *plainSocket) Secure() bool { return false }

// Close closes the connection and gives its place back, once.
func (s *plainSocket) Close() error {
	if !s.outside.end() {
		return net.ErrClosed
	}
	return s.TCPConn.Close()
}

// Reset implements loop.Socket.
func (s *plainSocket) Reset() {
	_ = s.SetLinger(0)
	_ = s.Close()
}

// secureSocket is a loop.Socket over TLS. Deadlines are those of the TCP
// connection below, where package tls can't set them: see wire.
type secureSocket struct {
	*tls.Conn
	raw     *net.TCPConn
	outside outside
}

// NetConn is the TCP connection, whose bytes are encrypted.
func (s *secureSocket) NetConn() net.Conn { return s.raw }

// Secure implements loop.Socket.
func (s *secureSocket) Secure() bool { return true }

// LocalAddr implements net.Conn.
func (s *secureSocket) LocalAddr() net.Addr { return s.raw.LocalAddr() }

// RemoteAddr implements net.Conn.
func (s *secureSocket) RemoteAddr() net.Addr { return s.raw.RemoteAddr() }

// SetDeadline implements loop.Socket.
func (s *secureSocket) SetDeadline(t time.Time) error { return s.raw.SetDeadline(t) }

// SetReadDeadline implements loop.Socket.
func (s *secureSocket) SetReadDeadline(t time.Time) error { return s.raw.SetReadDeadline(t) }

// SetWriteDeadline implements loop.Socket.
func (s *secureSocket) SetWriteDeadline(t time.Time) error { return s.raw.SetWriteDeadline(t) }

// CloseWrite implements loop.Socket: close_notify (RFC 8446, section 6.1), then
// the end of the TCP stream.
func (s *secureSocket) CloseWrite() error {
	return errors.Join(s.Conn.CloseWrite(), s.raw.CloseWrite())
}

// Close sends close_notify, for which it may wait for notifyTime, closes the
// connection and gives its place back, once.
func (s *secureSocket) Close() error {
	if !s.outside.end() {
		return net.ErrClosed
	}
	_ = s.raw.SetWriteDeadline(time.Now().Add(notifyTime)) // fails when NetConn was closed, as Close will
	return s.Conn.Close()
}

// Reset implements loop.Socket: from below, since the orderly end of TLS would tell
// the peer that this was all.
func (s *secureSocket) Reset() {
	_ = s.raw.SetLinger(0)
	_ = s.raw.Close()
	_ = s.Close()
}

// DialSocket connects to addr ("ip:port") of a service as Loop.Dial does, with
// TLS if Options.DialTLS has a configuration for the service, and blocks until
// the connection is ready for use, ctx ends or the engine is stopped
// (ErrStopped). The Socket is the caller's and outlives the engine. Any
// goroutine may call it; how many do at once is theirs to bound.
func (e *Engine) DialSocket(ctx context.Context, addr, service string) (loop.Socket, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	s, err := e.dialSocket(ctx, addr, service)
	switch {
	case err == nil:
		e.count.dialed.Add(1)
		return s, nil
	case e.ctx.Err() != nil:
		err = ErrStopped
	}
	e.count.dialErrors.Add(1)
	return nil, fmt.Errorf("reactor: dial: %w", err)
}

func (e *Engine) dialSocket(ctx context.Context, addr, service string) (loop.Socket, error) {
	var d net.Dialer
	d.SetMultipathTCP(false)
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	raw := nc.(*net.TCPConn)
	config := e.configOf(service)
	if config == nil {
		s := &plainSocket{TCPConn: raw}
		s.outside.begin(e, place{})
		return s, nil
	}
	below := &wire{nc: raw}
	over := tls.Client(below, config())
	if err := e.shaken(raw, addr, over.HandshakeContext(ctx)); err != nil {
		return nil, err
	}
	below.shaken = true
	s := &secureSocket{Conn: over, raw: raw}
	s.outside.begin(e, place{})
	return s, nil
}
