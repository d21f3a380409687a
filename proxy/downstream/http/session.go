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

// session is a downstream HTTP/1.1 connection. Each of its parts has one job, which the part's comment says. The parts
// share incoming, and hand call to each other. Idle connections
// are many, so the parts that keep next to nothing are made when they are asked.
type session struct {
	host   *host
	origin downstream.Origin

	input  input
	turn   turn
	tunnel tunnel

	incoming *incoming      // set while a request is being received or waits to leave, or after the end of the input; else nil
	account  shard.Account  // of what the input keeps, and of a stream that waits to leave; an exchange counts its own
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
		s.handToHTTP2(c)
		return
	}
	s.outbound.Conn = c
	s.origin = downstream.OriginOf(s.origin.Listener, c.RemoteAddr())
	s.redirect().open()
	s.host.Add(s)
	s.timeouts().startIdle()
	switch { // accepted just before the listener closed
	case s.host.Process.Draining.Load():
		s.Drain()
	case s.origin.Listener.Closing:
		s.Retire()
	}
}

func (s *session) OnData(b []byte) {
	s.input.receive(b)
	s.recount()
	s.turn.next()
}

// findRoute prepares a request received over HTTP/1.minor, and returns its route, or nil.
func (s *session) findRoute(ex *exchange.Exchange, minor int) *exchange.Route {
	s.tunnel.nameHost(ex)
	return s.host.FindRoute(ex, &s.origin, protocol.ViaValues[minor&1])
}

func (s *session) Listener() *exchange.Listener { return s.origin.Listener }

func (s *session) RemoteAddr() string { return s.outbound.Conn.RemoteAddr() }

func (s *session) PeerNames() *identity.Names { return identity.Of(s.outbound.Conn) }

// Retire closes the connection after its next response, which says so: a request sent at this
// moment still gets its response. Without a request the idle timeout closes the connection.
func (s *session) Retire() { s.turn.retire() }

// Drain closes the connection after its next response. Without a request in flight it closes at once, or after
// InTransit if it has had none yet: clients retry a request that fails on a used connection, not on a new one.
func (s *session) Drain() {
	s.Retire()
	if s.input.untouched() && s.waits() {
		s.closeLater()
		return
	}
	s.CloseIdle()
}

// waits reports whether no request is in flight or being received.
func (s *session) waits() bool { return s.turn.waiting() == 0 && !s.input.receiving() }

var _ loop.Verified = (*session)(nil)

// OnUntrusted implements loop.Verified. The request in flight, or being received, gets its response. Later ones get
// none.
func (s *session) OnUntrusted() {
	s.Retire()
	if s.waits() && !s.turn.closed() {
		s.closeWaiting()
	}
}

var _ loop.HalfCloser = (*session)(nil)

// OnEnd implements loop.HalfCloser. Whole requests get their responses, and one that is cut short is
// dropped. A request that waits to leave the loop meets the end there.
func (s *session) OnEnd() (stays bool) {
	limit := s.host.Config.Timeouts.HalfClose
	switch {
	case s.tunnel.takeEnd():
		s.turn.next()
		return true
	case limit == 0:
		return false
	case s.input.handsOff(), s.turn.handsOff():
		return true
	case s.turn.waiting() == 0:
		return s.closeBehindOutput()
	}
	s.input.stop()
	s.recount()
	s.turn.last().end = thenFinish
	s.timeouts().awaitResponses(limit)
	return true
}

// closeBehindOutput ends a session that has written all its responses, and reports whether the client has to
// read some of them.
func (s *session) closeBehindOutput() (unread bool) {
	if s.outbound.Conn.Buffered() == 0 {
		return false
	}
	s.close()
	s.outbound.Conn.Drain()
	return true
}

func (s *session) OnClose(error) {
	s.close()
	s.outbound.Stop()
	s.host.OnClosed(s)
}

// close cancels the request in flight and drops later ones. The caller closes the connection.
func (s *session) close() {
	if s.turn.closed() {
		return
	}
	s.input.stop()
	s.turn.stop()
	s.recount()
}

// CloseIdle closes the connection if no request is in flight or being received. A request that the loop has not read
// yet gets its response, the last.
func (s *session) CloseIdle() {
	switch {
	case !s.waits() || s.turn.closed():
	case s.HasInput():
		s.Retire()
		s.closeLater()
	default:
		s.closeWaiting()
	}
}

// closeLater closes the connection after InTransit, if it is idle then.
func (s *session) closeLater() {
	s.host.Loop.After(downstream.InTransit, &loop.Timer{Fire: s.CloseIdle})
}

// closeWaiting closes a connection that waits for a request.
func (s *session) closeWaiting() {
	s.close()
	s.outbound.Conn.Drain()
}

// CloseNow closes the connection. Nobody learns of the response to the request in flight.
func (s *session) CloseNow() {
	busy := s.turn.inFlight()
	s.close()
	if busy != nil {
		busy.AbandonNow()
	}
	s.host.Remove(s)
	s.outbound.Stop()
	s.outbound.Conn.Close()
}

// HasInput reports whether bytes have arrived that the loop has not read.
func (s *session) HasInput() bool { return s.outbound.Conn.HasInput() }

// IdleFor returns how long the session has waited for a request, 0 if it has one.
func (s *session) IdleFor() time.Duration {
	if s.turn.waiting() > 0 {
		return 0
	}
	return s.host.IdleFor(&s.SessionNode)
}

// ShedLargest implements shard.Holder. HTTP/1.1 can't take one response back.
func (s *session) ShedLargest() bool { return false }

// OverShare implements exchange.Caller.
func (s *session) OverShare(*exchange.Exchange) bool { return s.Buffered() > s.host.Share() }

func (s *session) Buffered() int { return s.incomplete() + s.outbound.Counted() + s.turn.held() }

// overBudget reports whether the client must not send more: memory is short, and the
// connection holds more than its share.
func (s *session) overBudget() bool {
	return s.host.Process.Budget.Full(s.incomplete()) && s.OverShare(nil)
}

// incomplete returns how many bytes are counted of input that is not a complete request.
func (s *session) incomplete() int { return s.account.Messages() + s.input.charged() }

// recount charges the memory of incomplete requests, and of a stream that waits to leave, to limits.buffered.
func (s *session) recount() {
	s.account.Count(s.host.Shard, s.input.held()+s.turn.heldByStream())
	s.input.charge()
}

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
