package link

import (
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/identity"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux/linkconn"
)

// session is the accepting end of one link, in four parts. They use no field of each other.
type session struct {
	linkconn.Conn
	host     *downstream.Host
	listener *exchange.Listener // its Fixed route leads to the service

	input   input
	calls   calls
	leaving leaving
	ending  ending

	downstream.SessionNode
}

// NewAcceptor returns the Acceptor of links on a loop.
func NewAcceptor(h *downstream.Host) downstream.Acceptor {
	return func(l *exchange.Listener) loop.Receiver { return newSession(h, l) }
}

func newSession(h *downstream.Host, l *exchange.Listener) *session {
	s := &session{host: h, listener: l}
	s.input.session, s.leaving.session, s.ending.session = s, s, s
	s.calls.init(s)
	limits := linkconn.Limits(h.Shard, s.overBudget)
	s.Init(h.Shard, link.NewAcceptor(linkconn.Settings(h.Shard.Process), limits, &s.input), &s.input)
	return s
}

func (s *session) Listener() *exchange.Listener { return s.listener }

func (s *session) RemoteAddr() string { return s.Transport.RemoteAddr() }

func (s *session) PeerNames() *identity.Names { return identity.Of(s.Transport) }

func (s *session) serviceName() string { return s.listener.Fixed.Service.Config.Name }

// opaque reports whether the service takes streams of bytes, and no requests.
func (s *session) opaque() bool { return s.listener.Fixed.Service.Opaque }

// InFlight implements linkconn.Handler.
func (s *session) InFlight() int { return s.calls.len() }

// BeforeFlush implements linkconn.Handler.
func (s *session) BeforeFlush() { s.calls.reportLoad() }

// OnLost implements linkconn.Handler.
func (s *session) OnLost() {
	s.close()
	s.Transport.Close()
}

// OnIdle implements linkconn.Handler. It sends a GOAWAY first: the peer then knows that a request on its way was not
// processed.
func (s *session) OnIdle() {
	if s.State() == linkconn.Open {
		s.Drain()
		return
	}
	s.OnLost()
}

func (s *session) OnOpen(c loop.Conn) {
	s.Attach(c)
	s.host.Add(s)
}

func (s *session) OnData(b []byte) {
	if s.State() == linkconn.Closed {
		return
	}
	if !s.Receive(b) {
		if s.InputError == link.ErrVersion {
			s.Transport.Write(link.AppendRefusal(nil))
			s.Transport.Drain()
		} else {
			s.Transport.Close()
		}
		s.close()
		return
	}
	if s.host.Tables.Full() {
		s.host.Reclaim()
	}
	s.ending.finish()
}

func (s *session) OnClose(error) {
	s.close()
	s.host.OnClosed(s)
}

// Retire drains the link: the peer sends elsewhere what a GOAWAY excludes.
func (s *session) Retire() { s.Drain() }

// Drain tells the peer to send no more requests, and closes the link after the last response.
func (s *session) Drain() { s.ending.drain() }

var _ loop.Verified = (*session)(nil)

// OnUntrusted implements loop.Verified. Requests in flight get their responses.
func (s *session) OnUntrusted() { s.ending.distrust() }

// close cancels the requests of the peer, which can't get their responses any more. The caller
// closes the connection.
func (s *session) close() {
	if s.State() == linkconn.Closed {
		return
	}
	if s.State() != linkconn.Opening {
		s.host.Process.Links.Add(-1)
		s.listener.Links.Add(-1)
	}
	s.Stop()
	s.input.stop()
	s.calls.cancelAll()
}
