package http

import (
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/identity"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
)

// session is a downstream HTTP/1.1 connection: it hands the events of the connection to its parts. Each part has one job,
// which the part's comment says. The parts share incoming, and hand call to each other. Idle connections are many, so
// the parts that keep next to nothing are made when they are asked.
type session struct {
	host   *host
	origin downstream.Origin

	input  input
	turn   turn
	tunnel tunnel

	incoming *incoming      // set while a request is being received or waits to leave, or after the end of the input; else nil
	account  shard.Account  // of memory, which has no fields
	outbound shard.Outbound // the connection, and its write timeout

	downstream.SessionNode
}

// NewAcceptor returns the Acceptor of HTTP connections on a loop.
func NewAcceptor(h *downstream.Host) downstream.Acceptor {
	shared := &host{Host: h}
	return func(l *exchange.Listener) loop.Receiver { return newSession(shared, l) }
}

func newSession(h *host, l *exchange.Listener) *session {
	s := &session{host: h, origin: downstream.Origin{Listener: l}}
	s.input.session, s.turn.session, s.tunnel.session = s, s, s
	s.outbound.Init(h.Shard)
	return s
}

func (s *session) OnOpen(c loop.Conn) {
	if s.origin.Listener.Secure && c.Protocol() == alpnHTTP2 {
		s.switching().hand(c)
		return
	}
	s.outbound.Conn = c
	s.origin = downstream.OriginOf(s.origin.Listener, c.RemoteAddr())
	s.redirect().open()
	s.host.Add(s)
	s.timeouts().startIdle()
	switch { // accepted just before the listener closed
	case s.host.Process.Draining.Load():
		s.ending().drain()
	case s.origin.Listener.Closing:
		s.ending().retire()
	}
}

func (s *session) OnData(b []byte) {
	s.input.receive(b)
	s.memory().recount()
	s.turn.next()
}

var _ loop.Roomy = (*session)(nil)

// Room implements loop.Roomy.
func (s *session) Room() []byte { return s.input.room() }

var _ loop.HalfCloser = (*session)(nil)

// OnEnd implements loop.HalfCloser.
func (s *session) OnEnd() (stays bool) { return s.ending().endInput() }

var _ loop.Verified = (*session)(nil)

// OnUntrusted implements loop.Verified.
func (s *session) OnUntrusted() { s.ending().distrust() }

func (s *session) OnClose(error) {
	s.ending().close()
	s.outbound.Stop()
	s.host.OnClosed(s)
}

// findRoute prepares a request received over HTTP/1.minor, and returns its route, or nil.
func (s *session) findRoute(ex *exchange.Exchange, minor int) *exchange.Route {
	s.tunnel.nameHost(ex)
	return s.host.FindRoute(ex, &s.origin, protocol.ViaValues[minor&1])
}

func (s *session) Listener() *exchange.Listener { return s.origin.Listener }

func (s *session) RemoteAddr() string { return s.outbound.Conn.RemoteAddr() }

func (s *session) PeerNames() *identity.Names { return identity.Of(s.outbound.Conn) }

// Retire implements downstream.session.
func (s *session) Retire() { s.ending().retire() }

// Drain implements downstream.session.
func (s *session) Drain() { s.ending().drain() }

// CloseIdle implements downstream.session.
func (s *session) CloseIdle() { s.ending().closeIdle() }

// CloseNow implements shard.Holder.
func (s *session) CloseNow() { s.ending().closeNow() }

// HasInput implements downstream.session.
func (s *session) HasInput() bool { return s.outbound.Conn.HasInput() }

// IdleFor implements downstream.session.
func (s *session) IdleFor() time.Duration { return s.timeouts().idleFor() }

// Buffered implements downstream.session.
func (s *session) Buffered() int { return s.memory().buffered() }

// ShedLargest implements shard.Holder. HTTP/1.1 can't take one response back.
func (s *session) ShedLargest() bool { return false }

// leastMoved is how many requests a connection must have made before it may move to another loop. One
// that lasts for a few would not be worth it.
const leastMoved = 8

var _ loop.Movable = (*session)(nil)

// MoveOut implements loop.Movable. The requests so far count on.
func (s *session) MoveOut() (requests int, ok bool) {
	requests, empty := s.input.count()
	return requests, requests >= leastMoved && empty && s.turn.unused() && !s.tunnel.opened()
}

// MoveIn implements loop.Movable. OnOpen may have begun to drain the session, which then waits for
// the request that has made it move.
func (s *session) MoveIn(requests int) { s.input.setCount(requests) }
