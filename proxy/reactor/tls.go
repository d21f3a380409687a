package reactor

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/identity"
)

// maxRecord is the most plain text of a TLS record (RFC 8446, section 5.1), and so the most
// that one Read of a tls.Conn returns.
const maxRecord = 16 << 10

// maxGather limits the plain text whose records are gathered for one write to the socket.
const maxGather = 256 << 10

// secure is the TLS of one connection. The handshake blocks on a goroutine. Then the same tls.Conn is a codec on the
// connection's loop: it reads the input of an event, and errNoMore at its end. When the connection is detached, the
// tls.Conn goes with it and blocks again. docs/decisions/0005-tls.md has the reasons.
type secure struct {
	c      *conn
	config func() *tls.Config // as it is now: it may have changed since the handshake
	tls    *tls.Conn
	wire   *wire
	peer   *identity.Names // of an accepted connection
	trust  peerTrust
}

// wire is the net.Conn below a tls.Conn. During the handshake it is nc, the socket of a dial or the flights of a
// newcomer, and after Detach the socket nc; on a loop it is the input of the current event and the writes of c.
type wire struct {
	untimed
	c             *conn    // nil for a connection that is on no loop
	nc            net.Conn // nil while the connection is on its loop
	in            []byte   // input not read yet; on a loop that of the current event
	gotInput      bool     // nc has received a byte
	handshakeDone bool     // nc is used after the handshake: an end of file without close_notify is an error
	gather        bool     // writes go to eventLoop.encrypted

	reading bool          // the tls.Conn reads: what it writes responds to the peer
	replies int           // such writes since the time
	since   time.Duration // of the loop
}

// maxReplies is how many messages of a peer a tls.Conn may respond to in a second. These are KeyUpdates
// (RFC 8446, section 4.6.3), of which nobody needs many: each costs as much as a small request, and its
// response waits in memory for a peer that does not read.
const maxReplies = 16

var errReplies = errors.New("reactor: the peer updates its keys too often")

// handshake returns the TLS of c over nc, which has received input already. It blocks until ctx ends or
// the deadline of nc. The caller still owns nc, and must close it after an error.
func handshake(ctx context.Context, c *conn, config func() *tls.Config, nc net.Conn, input []byte, side func(net.Conn, *tls.Config) *tls.Conn) (*secure, error) {
	s := &secure{c: c, config: config, wire: &wire{c: c, nc: nc, in: input, gotInput: len(input) > 0}}
	s.trust = newPeerTrust(s)
	s.tls = side(s.wire, config())
	if err := c.loop.reactor.handshakes.do(func() error { return s.tls.HandshakeContext(ctx) }); err != nil {
		if err == io.EOF && !s.wire.gotInput {
			return nil, errClosedSilently
		}
		return nil, err
	}
	s.wire.nc = nil
	return s, nil
}

// Protocol implements loop.Conn.
func (c *conn) Protocol() string {
	if c.secure == nil {
		return ""
	}
	return c.secure.tls.ConnectionState().NegotiatedProtocol
}

// PeerNames implements identity.Named.
func (c *conn) PeerNames() *identity.Names {
	if c.secure == nil {
		return nil
	}
	return c.secure.peer
}

var _ identity.Named = (*conn)(nil)

// identify keeps the names in the certificate of the client, which the handshake has verified.
func (s *secure) identify() {
	if chain := s.tls.ConnectionState().PeerCertificates; len(chain) > 0 {
		s.peer = certs.Names(chain[0])
	}
}

// detach returns the tls.Conn, which continues over nc with the input that it holds and the
// rest of the current event. The loop must not use it afterwards.
func (s *secure) detach(nc net.Conn) *tls.Conn {
	*s.wire = wire{nc: nc, in: bytes.Clone(s.wire.in), handshakeDone: true}
	return s.tls
}

// decryptInput passes all available plain text to the receiver. It is also called without an
// event, for input that arrived with the end of the handshake.
func (s *secure) decryptInput() {
	c := s.c
	for c.state == connOpen && !c.toldEnd {
		s.wire.reading = true
		n, err := s.tls.Read(c.loop.plain())
		s.wire.reading = false
		if n > 0 && c.state == connOpen {
			c.receiver.OnData(c.loop.decrypted[:n])
		}
		if err == nil || c.state != connOpen {
			continue
		}
		switch err {
		case errNoMore:
		case io.EOF: // close_notify, the peer's orderly end
			if !c.stays() {
				c.end(io.EOF)
			}
		default:
			c.loop.reactor.tls.fail(c.remote, err)
			c.end(err)
		}
		return
	}
}

// write encrypts and sends b. A tls.Conn writes record by record, so write gathers the records
// of up to maxGather bytes for one write to the socket.
func (s *secure) write(b []byte) {
	l := s.c.loop
	for len(b) > 0 && s.c.state == connOpen && s.c.err == nil {
		part := b[:min(len(b), maxGather)]
		b = b[len(part):]
		s.wire.gather = len(part) > maxRecord
		_, err := s.tls.Write(part)
		if s.wire.gather {
			s.wire.gather = false
			if err == nil {
				_ = s.c.writeSocket(l.encrypted) // an error has closed it
			}
			l.encrypted = l.encrypted[:0]
		}
		if err != nil && s.c.state == connOpen { // an error of the socket has closed it; no other may pass unseen
			s.c.end(err)
		}
	}
}

// writeParts encrypts and sends parts. It joins those up to the size of a record, since each write
// begins a record, which costs more than a copy.
func (s *secure) writeParts(parts [][]byte) {
	l := s.c.loop
	for _, b := range parts {
		if len(b) <= maxRecord {
			l.joined = append(l.joined, b...)
			continue
		}
		s.writeJoined()
		s.write(b)
	}
	s.writeJoined()
}

func (s *secure) writeJoined() {
	l := s.c.loop
	b := l.joined
	l.joined = b[:0] // also after a panic: they are not for the next connection
	s.write(b)
}

// Read implements net.Conn.
func (w *wire) Read(b []byte) (int, error) {
	switch {
	case len(w.in) > 0:
		n := copy(b, w.in)
		if w.in = w.in[n:]; len(w.in) == 0 {
			w.in = nil // without a loop this memory is held by nothing else
		}
		return n, nil
	case w.nc != nil:
		n, err := w.nc.Read(b)
		w.gotInput = w.gotInput || n > 0
		if err == io.EOF && w.handshakeDone {
			err = errTruncated // package tls accepts an io.EOF between two records as an orderly end
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
	case w.reading && !w.mayReply():
		w.c.loop.reactor.tls.fail(w.c.remote, errReplies)
		w.c.end(errReplies)
		return 0, errReplies
	case w.gather:
		w.c.loop.encrypted = append(w.c.loop.encrypted, b...)
		return len(b), nil
	}
	return len(b), w.c.writeSocket(b)
}

// mayReply counts a response to the peer. It reports false for the first one above maxReplies.
func (w *wire) mayReply() bool {
	if now := w.c.loop.now; now-w.since >= time.Second {
		w.since, w.replies = now, 0
	}
	w.replies++
	return w.replies <= maxReplies || w.c.state != connOpen
}

// Close implements net.Conn. On a loop nothing calls it: conn closes the socket.
func (w *wire) Close() error {
	if w.nc != nil {
		return w.nc.Close()
	}
	return nil
}

// untimed is a part of a net.Conn whose addresses nobody asks for, and whose deadlines package tls must not
// change. A loop has timers instead, and a Socket sets the deadlines of its TCP connection itself. Around
// close_notify package tls sets five seconds, and then now. A peer that reads slower would lose the end of its
// stream.
type untimed struct{}

// LocalAddr implements net.Conn. It is never called.
func (untimed) LocalAddr() net.Addr { return nil }

// RemoteAddr implements net.Conn. It is never called.
func (untimed) RemoteAddr() net.Addr { return nil }

// SetDeadline implements net.Conn and does nothing, as the next two.
func (untimed) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (untimed) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (untimed) SetWriteDeadline(time.Time) error { return nil }

// errNoMore reports to a tls.Conn that it has read all input of the event. Since it is
// Temporary, the tls.Conn keeps its state and continues at the next Read. On a loop nothing
// else fails with this error.
var errNoMore = os.ErrDeadlineExceeded

var errALPN = errors.New("reactor: the peer does not select the application protocol (ALPN)")

// requireALPN returns the function for the configuration of a dialled connection whose peer must
// select protocol.
func requireALPN(config func() *tls.Config, protocol string) func() *tls.Config {
	return func() *tls.Config {
		c := config().Clone()
		c.NextProtos = []string{protocol}
		verify := c.VerifyConnection
		c.VerifyConnection = func(cs tls.ConnectionState) error {
			if cs.NegotiatedProtocol != protocol {
				return fmt.Errorf("%w: %s", errALPN, protocol)
			}
			if verify == nil {
				return nil
			}
			return verify(cs)
		}
		return c
	}
}
