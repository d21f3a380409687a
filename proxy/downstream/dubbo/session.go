package dubbo

import (
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/identity"
	"github.com/remora-proxy/remora/proxy/loop"
)

// session is a downstream Dubbo connection: it hands the events of the connection to its parts, which use no field of each
// other.
type session struct {
	host     *downstream.Host
	conn     loop.Conn
	listener *exchange.Listener

	input  input
	calls  calls
	output output
	ending ending
	memory memory

	downstream.SessionNode
}

// NewAcceptor returns the Acceptor of Dubbo connections on a loop.
func NewAcceptor(h *downstream.Host) downstream.Acceptor {
	scratch := new(dubbo.Invocation)
	return func(l *exchange.Listener) loop.Receiver { return newSession(h, l, scratch) }
}

func newSession(h *downstream.Host, l *exchange.Listener, scratch *dubbo.Invocation) *session {
	s := &session{host: h, listener: l}
	s.calls.session, s.memory.session = s, s
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
		s.ending.drain()
	}
}

func (s *session) OnData(b []byte) {
	if s.ending.over() {
		return
	}
	if err := s.input.receive(b); err != nil {
		s.host.Log.Warn("connection closed: malformed input", "peer", s.conn.RemoteAddr(), "error", err)
		s.ending.drainAndClose()
		return
	}
	s.memory.recount()
	s.ending.finish()
	s.input.startTimeout()
}

func (s *session) Listener() *exchange.Listener { return s.listener }

func (s *session) RemoteAddr() string { return s.conn.RemoteAddr() }

func (s *session) PeerNames() *identity.Names { return identity.Of(s.conn) }

func (s *session) OnClose(error) {
	s.ending.close()
	s.input.release()
	s.output.stop()
	s.host.OnClosed(s)
}

// Retire implements downstream.session. The consumer sends its calls elsewhere.
func (s *session) Retire() { s.ending.drain() }

// Drain implements downstream.session.
func (s *session) Drain() { s.ending.drain() }

// CloseIdle implements downstream.session.
func (s *session) CloseIdle() { s.input.onTimeout(loop.TimeoutIdle) }

// CloseNow implements shard.Holder.
func (s *session) CloseNow() { s.ending.closeNow() }

// HasInput implements downstream.session.
func (s *session) HasInput() bool { return s.conn.HasInput() }

// IdleFor implements downstream.session.
func (s *session) IdleFor() time.Duration { return s.input.idleFor() }

// Buffered implements downstream.session.
func (s *session) Buffered() int { return s.memory.buffered() }

// ShedLargest implements shard.Holder.
func (s *session) ShedLargest() bool { return s.memory.shedLargest() }
