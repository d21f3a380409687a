package dubbo

import (
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/identity"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
)

// session is a downstream Dubbo connection, in four parts. They use no field of each other.
type session struct {
	host     *downstream.Host
	conn     loop.Conn
	listener *exchange.Listener

	input  input
	calls  calls
	output output
	ending ending

	account shard.Account // of an incomplete frame

	downstream.SessionNode
}

// NewAcceptor returns the Acceptor of Dubbo connections on a loop.
func NewAcceptor(h *downstream.Host) downstream.Acceptor {
	scratch := new(dubbo.Invocation)
	return func(l *exchange.Listener) loop.Receiver { return newSession(h, l, scratch) }
}

func newSession(h *downstream.Host, l *exchange.Listener, scratch *dubbo.Invocation) *session {
	s := &session{host: h, listener: l}
	s.calls.session = s
	s.input.init(s, scratch)
	s.output.init(s)
	s.ending.init(s)
	return s
}

func (s *session) OnOpen(c loop.Conn) {
	s.conn = c
	s.output.open(c)
	s.host.Add(s)
	s.input.startIdle()
	if s.listener.Closing || s.host.Process.Draining.Load() { // accepted just before the listener closed
		s.Drain()
	}
}

func (s *session) OnData(b []byte) {
	if s.ending.over() {
		return
	}
	if err := s.input.receive(b); err != nil {
		s.host.Log.Warn("connection closed: malformed input", "peer", s.conn.RemoteAddr(), "error", err)
		s.drainAndClose()
		return
	}
	s.recount()
	s.ending.finish()
	s.input.startTimeout()
}

func (s *session) Listener() *exchange.Listener { return s.listener }

func (s *session) RemoteAddr() string { return s.conn.RemoteAddr() }

func (s *session) PeerNames() *identity.Names { return identity.Of(s.conn) }

// Retire drains the connection: the consumer sends its calls elsewhere.
func (s *session) Retire() { s.Drain() }

// Drain tells the consumer to send no more calls, and closes once all have their responses.
func (s *session) Drain() { s.ending.drain() }

// drainAndClose ends the session, and closes the connection once the responses are sent.
func (s *session) drainAndClose() {
	s.output.write()
	s.close()
	s.conn.Drain()
}

func (s *session) OnClose(error) {
	s.close()
	s.input.release()
	s.output.stop()
	s.host.OnClosed(s)
}

// close ends the session, and cancels the calls in flight. The caller closes the connection.
func (s *session) close() {
	if s.ending.over() {
		return
	}
	s.ending.stop()
	s.input.stop()
	s.output.drop()
	s.calls.cancelAll()
}
