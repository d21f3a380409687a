package reactor

import (
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// notifyTime limits how long Close waits to send close_notify to a peer that does not read.
const notifyTime = time.Second

// offLoop counts a connection that is on no loop, and holds its reservation.
type offLoop struct {
	of          *Connections
	reservation reservation
	closed      atomic.Bool
}

func (o *offLoop) begin(of *Connections, at reservation) {
	o.of, o.reservation = of, at
	of.others.Add(1)
}

// end uncounts the connection and releases its reservation. A second call returns false.
func (o *offLoop) end() bool {
	if o.closed.Swap(true) {
		return false
	}
	o.of.others.Add(-1)
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

// newSocket returns a Socket on raw, in plain text if over is nil, with the reservation at. peer is
// who the peer is; nil means the address of raw.
func newSocket(of *Connections, raw rawConn, over *tls.Conn, at reservation, peer net.Addr) loop.Socket {
	if over == nil {
		s := &plainSocket{rawConn: raw, peer: peer}
		s.offLoop.begin(of, at)
		return s
	}
	s := &secureSocket{Conn: over, raw: raw, peer: peer}
	s.offLoop.begin(of, at)
	return s
}
