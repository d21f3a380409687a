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

// notifyTime limits how long Close waits to send close_notify to a peer that does not read.
const notifyTime = time.Second

// offLoop counts a connection that is on no loop, and holds its reservation.
type offLoop struct {
	reactor     *Reactor
	reservation reservation
	closed      atomic.Bool
}

func (o *offLoop) begin(r *Reactor, at reservation) {
	o.reactor, o.reservation = r, at
	r.count.offLoop.Add(1)
}

// end uncounts the connection and releases its reservation. A second call returns false.
func (o *offLoop) end() bool {
	if o.closed.Swap(true) {
		return false
	}
	o.reactor.count.offLoop.Add(-1)
	o.reservation.release()
	return true
}

// rawConn is a connection of the system: a *net.TCPConn or a *net.UnixConn.
type rawConn interface {
	net.Conn
	CloseWrite() error
}

// resetOnClose makes the next close of nc a reset. Unix sockets have none: their peers see the end
// of the bytes, or an error if some of theirs were not read.
func resetOnClose(nc rawConn) {
	if tcp, ok := nc.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}

// plainSocket is a loop.Socket in plain text.
type plainSocket struct {
	rawConn
	peer    net.Addr // who the peer is; nil means the address of the connection
	offLoop offLoop
}

// NetConn returns the connection.
func (s *plainSocket) NetConn() net.Conn { return s.rawConn }

// RemoteAddr implements net.Conn.
func (s *plainSocket) RemoteAddr() net.Addr {
	if s.peer != nil {
		return s.peer
	}
	return s.rawConn.RemoteAddr()
}

// Secure implements loop.Socket.
func (s *plainSocket) Secure() bool { return false }

// Close closes the connection and releases its reservation. Later calls return net.ErrClosed.
func (s *plainSocket) Close() error {
	if !s.offLoop.end() {
		return net.ErrClosed
	}
	return s.rawConn.Close()
}

// Reset implements loop.Socket.
func (s *plainSocket) Reset() {
	resetOnClose(s.rawConn)
	_ = s.Close()
}

// secureSocket is a loop.Socket over TLS. Deadlines are set on the TCP connection below, out
// of reach of package tls: see wire.
type secureSocket struct {
	*tls.Conn
	raw     rawConn
	peer    net.Addr // who the peer is; nil means the address of the connection
	offLoop offLoop
}

// NetConn returns the connection below, whose bytes are encrypted.
func (s *secureSocket) NetConn() net.Conn { return s.raw }

// Secure implements loop.Socket.
func (s *secureSocket) Secure() bool { return true }

// LocalAddr implements net.Conn.
func (s *secureSocket) LocalAddr() net.Addr { return s.raw.LocalAddr() }

// RemoteAddr implements net.Conn.
func (s *secureSocket) RemoteAddr() net.Addr {
	if s.peer != nil {
		return s.peer
	}
	return s.raw.RemoteAddr()
}

// SetDeadline implements loop.Socket.
func (s *secureSocket) SetDeadline(t time.Time) error { return s.raw.SetDeadline(t) }

// SetReadDeadline implements loop.Socket.
func (s *secureSocket) SetReadDeadline(t time.Time) error { return s.raw.SetReadDeadline(t) }

// SetWriteDeadline implements loop.Socket.
func (s *secureSocket) SetWriteDeadline(t time.Time) error { return s.raw.SetWriteDeadline(t) }

// CloseWrite implements loop.Socket. It sends close_notify (RFC 8446, section 6.1) and then
// the end of the TCP stream.
func (s *secureSocket) CloseWrite() error {
	return errors.Join(s.Conn.CloseWrite(), s.raw.CloseWrite())
}

// Close sends close_notify, waiting at most notifyTime, closes the connection and releases its
// reservation. A second call returns net.ErrClosed.
func (s *secureSocket) Close() error {
	if !s.offLoop.end() {
		return net.ErrClosed
	}
	_ = s.raw.SetWriteDeadline(time.Now().Add(notifyTime)) // fails if NetConn was closed, and so does Close
	return s.Conn.Close()
}

// Reset implements loop.Socket. It closes the TCP connection first, since a close_notify would
// look complete to the peer.
func (s *secureSocket) Reset() {
	resetOnClose(s.raw)
	_ = s.raw.Close()
	_ = s.Close()
}

// DialSocket connects to addr ("ip:port" or a Unix socket) of a service, with TLS if Options.DialTLS has a
// configuration for its key; name is as of a loop.Named. It blocks until the connection is ready for use, ctx ends, or
// the reactor is stopped (ErrStopped). The caller owns the Socket, which may outlive the
// reactor. DialSocket may be called from any goroutine; maxDials does not limit it.
func (r *Reactor) DialSocket(ctx context.Context, addr, key, name string) (loop.Socket, error) {
	return r.DialSocketWith(ctx, addr, key, name, nil)
}

// DialSocketWith is DialSocket, and sends first before anything else, in plain text.
func (r *Reactor) DialSocketWith(ctx context.Context, addr, key, name string, first []byte) (loop.Socket, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	at, ok := r.limits.reserveDial()
	err := loop.ErrDialQueue
	var s loop.Socket
	if ok {
		s, err = r.dialSocket(ctx, addr, r.dialOther(key, addr), r.dialTLS(key, addr, name), first, at)
	}
	switch {
	case err == nil:
		r.count.dialled.Add(1)
		return s, nil
	case r.ctx.Err() != nil:
		err = ErrStopped
	}
	at.release()
	if !errors.Is(ctx.Err(), context.Canceled) { // by the caller, or by the end of the reactor
		r.count.dialErrors.Add(1)
	}
	return nil, fmt.Errorf("reactor: dial: %w", err)
}

func (r *Reactor) dialSocket(ctx context.Context, addr, other string, config func() *tls.Config, first []byte, at reservation) (loop.Socket, error) {
	var d net.Dialer
	d.SetMultipathTCP(false)
	nc, err := dialFirst(ctx, &d, addr, other)
	if err != nil {
		return nil, err
	}
	raw := nc.(rawConn)
	if _, err := raw.Write(first); len(first) > 0 && err != nil { // the kernel has room for it
		_ = raw.Close()
		return nil, err
	}
	if config == nil {
		return r.newSocket(raw, nil, at, nil), nil
	}
	below := &wire{nc: raw}
	over := tls.Client(below, config())
	if err := r.dialledTLS(raw, addr, over.HandshakeContext(ctx)); err != nil {
		return nil, err
	}
	r.tls.succeed(over)
	below.handshakeDone = true
	return r.newSocket(raw, over, at, nil), nil
}

// newSocket returns a Socket on raw, in plain text if over is nil, with the reservation at. peer is
// who the peer is; nil means the address of raw.
func (r *Reactor) newSocket(raw rawConn, over *tls.Conn, at reservation, peer net.Addr) loop.Socket {
	if over == nil {
		s := &plainSocket{rawConn: raw, peer: peer}
		s.offLoop.begin(r, at)
		return s
	}
	s := &secureSocket{Conn: over, raw: raw, peer: peer}
	s.offLoop.begin(r, at)
	return s
}
