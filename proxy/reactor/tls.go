package reactor

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"time"
)

// maxRecord is the most plain text that a TLS record carries (RFC 8446, section
// 5.1), and so what one Read of a tls.Conn returns.
const maxRecord = 16 << 10

// maxGather bounds the records gathered for one write to the socket.
const maxGather = 256 << 10

// secure is the TLS of one connection. The handshake runs on a goroutine and
// blocks like any; then the socket goes to its loop and the same tls.Conn goes
// on there as a codec: it reads from what an event brought, and is told to come
// back when there is no more. When the connection leaves its loop, the tls.Conn
// goes along and blocks again. Why so: docs/decisions/0005-tls.md.
type secure struct {
	c    *conn
	tls  *tls.Conn
	wire *wire
}

// wire is the socket of a tls.Conn: the real one off the loops, which is during
// the handshake and after Detach, and in between the events and writes of one.
type wire struct {
	c      *conn    // nil: there is no loop
	nc     net.Conn // nil: the loop has it
	in     []byte   // arrived and not read yet: on a loop, of the current event
	heard  bool     // the socket has brought something, off the loops
	shaken bool     // the handshake is over, off the loops: TLS says when the end is
	gather bool     // writes go to the loop's sealed buffer
}

// handshake makes c a TLS connection over nc, or returns why not; nc stays the
// caller's. It blocks, for as long as ctx and until allow.
func (c *conn) handshake(ctx context.Context, nc net.Conn, until time.Time, side func(net.Conn, *tls.Config) *tls.Conn, config *tls.Config) error {
	s := &secure{c: c, wire: &wire{c: c, nc: nc}}
	s.tls = side(s.wire, config)
	if err := nc.SetDeadline(until); err != nil {
		return err
	}
	if err := s.tls.HandshakeContext(ctx); err != nil {
		if err == io.EOF && !s.wire.heard {
			return errSilent
		}
		return err
	}
	s.wire.nc = nil
	c.secure = s
	return nil
}

// received decrypts b, all of it while the connection is open, so that nothing
// is left in wire when the event is over.
func (s *secure) received(b []byte) {
	s.wire.in = b
	s.pump()
}

// leave gives the tls.Conn away, to go on over nc, with what it holds and what
// the current event still has for it. From here on the loop has no way to it.
func (s *secure) leave(nc net.Conn) *tls.Conn {
	*s.wire = wire{nc: nc, in: bytes.Clone(s.wire.in), shaken: true}
	s.c.secure = nil
	return s.tls
}

// pump hands on all plain text there is. Some may be there without an event:
// what came with the end of the handshake.
func (s *secure) pump() {
	c := s.c
	for c.state == connOpen {
		n, err := s.tls.Read(c.loop.plain())
		if n > 0 {
			c.stream.OnData(c.loop.opened[:n])
		}
		if err == nil || c.state != connOpen {
			continue
		}
		switch err {
		case errNoMore:
		case io.EOF: // close_notify, the peer's orderly end
			c.end(io.EOF)
		default:
			c.loop.eng.tlsFailed(c.remote, err)
			c.end(err)
		}
		return
	}
}

// write encrypts b and sends it, in one write as far as that is reasonable: a
// tls.Conn writes record by record.
func (s *secure) write(b []byte) {
	l := s.c.loop
	for len(b) > 0 && s.c.state == connOpen {
		part := b[:min(len(b), maxGather)]
		b = b[len(part):]
		s.wire.gather = len(part) > maxRecord
		_, err := s.tls.Write(part)
		if s.wire.gather {
			s.wire.gather = false
			if err == nil {
				_ = s.c.put(l.sealed) // an error has ended it
			}
			l.sealed = l.sealed[:0]
		}
		if err != nil && s.c.state == connOpen {
			s.c.end(err)
		}
	}
}

// notify sends close_notify, so that the peer can tell the end from a cut.
func (s *secure) notify() {
	_ = s.tls.CloseWrite() // an error has been through lost
}

// plain is the buffer that the loop's connections decrypt into, one at a time.
func (l *eventLoop) plain() []byte {
	if l.opened == nil {
		l.opened = make([]byte, maxRecord)
	}
	return l.opened
}

// Read implements net.Conn.
func (w *wire) Read(b []byte) (int, error) {
	switch {
	case len(w.in) > 0:
		n := copy(b, w.in)
		if w.in = w.in[n:]; len(w.in) == 0 {
			w.in = nil // off the loops it is memory of its own
		}
		return n, nil
	case w.nc != nil:
		n, err := w.nc.Read(b)
		w.heard = w.heard || n > 0
		if err == io.EOF && w.shaken {
			err = errTruncated // package tls takes an io.EOF between two records for an orderly end
		}
		return n, err
	}
	return 0, errNoMore
}

// Write implements net.Conn.
func (w *wire) Write(b []byte) (int, error) {
	switch {
	case w.nc != nil:
		return w.nc.Write(b)
	case w.gather:
		w.c.loop.sealed = append(w.c.loop.sealed, b...)
		return len(b), nil
	}
	if err := w.c.put(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close implements net.Conn. On the loop nothing calls it: conn closes.
func (w *wire) Close() error {
	if w.nc != nil {
		return w.nc.Close()
	}
	return nil
}

// LocalAddr implements net.Conn; nobody asks.
func (w *wire) LocalAddr() net.Addr { return nil }

// RemoteAddr implements net.Conn; nobody asks.
func (w *wire) RemoteAddr() net.Addr { return nil }

// SetDeadline implements net.Conn by nothing, as the next two. A loop has timers
// instead; off the loops the socket's own deadlines hold, which must not be those
// that package tls sets around close_notify: five seconds, and then now. A peer
// that reads slower than that would lose the end of its stream.
func (w *wire) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (w *wire) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// errNoMore tells a tls.Conn that its input is at its end for now. Temporary is
// what makes it keep its state and go on at the next Read.
var errNoMore net.Error = noMore{}

type noMore struct{}

func (noMore) Error() string   { return "reactor: no more input in this event" }
func (noMore) Timeout() bool   { return true }
func (noMore) Temporary() bool { return true }
