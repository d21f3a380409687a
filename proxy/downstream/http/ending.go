package http

import (
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/loop"
)

// ending is how a connection ends: behind the last response, or at once. The package comment lists its ways, the
// gentlest first.
//
// Calls in: the session says why (retire, drain, distrust, endInput, closeIdle, closeNow). Who gives the connection away,
// or has written the last response, ends the session (close, drainAndClose).
//
// Calls out: input and turn are stopped. timeouts bounds the wait for responses behind the client's end.
type ending struct{ *session }

func (s *session) ending() ending { return ending{s} }

// over reports whether the session is closed.
func (e ending) over() bool { return e.turn.closed() }

// waits reports whether no request is in flight or being received.
func (e ending) waits() bool { return e.turn.waiting() == 0 && !e.input.receiving() }

// retire closes the connection after its next response, which says so: a request sent at this
// moment still gets its response. Without a request the idle timeout closes the connection.
func (e ending) retire() { e.turn.retire() }

// drain closes the connection after its next response. Without a request in flight it closes at once, or after
// InTransit if it has had none yet: clients retry a request that fails on a used connection. They don't
// retry a request that fails on a new connection.
func (e ending) drain() {
	e.retire()
	if e.input.untouched() && e.waits() {
		e.closeLater()
		return
	}
	e.closeIdle()
}

// distrust retires the connection of a client that is no longer accepted. The request in flight, or being received, gets
// its response. Later ones get none.
func (e ending) distrust() {
	e.retire()
	if e.waits() && !e.over() {
		e.drainAndClose()
	}
}

// endInput is called when the client sends nothing more. Whole requests get their responses, and one that is cut short is
// dropped. A request that waits to leave the loop meets the end there.
func (e ending) endInput() (stays bool) {
	limit := e.host.Config.Timeouts.HalfClose
	switch {
	case e.tunnel.takeEnd():
		e.turn.next()
		return true
	case limit == 0:
		return false
	case e.input.handsOff(), e.turn.handsOff():
		return true
	case e.turn.waiting() == 0:
		return e.closeBehindOutput()
	}
	e.input.stop()
	e.memory().recount()
	e.turn.last().end = thenFinish
	e.timeouts().awaitResponses(limit)
	return true
}

// closeBehindOutput ends a session that has written all its responses, and reports whether the client has to
// read some of them.
func (e ending) closeBehindOutput() (unread bool) {
	if e.outbound.Conn.Buffered() == 0 {
		return false
	}
	e.drainAndClose()
	return true
}

// closeIdle closes the connection if no request is in flight or being received. A request that the loop has not read
// yet gets its response, the last.
func (e ending) closeIdle() {
	switch {
	case !e.waits() || e.over():
	case e.HasInput():
		e.retire()
		e.closeLater()
	default:
		e.drainAndClose()
	}
}

// closeLater closes the connection after InTransit, if it is idle then.
func (e ending) closeLater() {
	e.host.Loop.After(downstream.InTransit, &loop.Timer{Fire: e.closeIdle})
}

// drainAndClose ends the session, and closes the connection once the responses are sent.
func (e ending) drainAndClose() {
	e.close()
	e.outbound.Conn.Drain()
}

// close ends the session. It cancels the request in flight and drops later ones. The caller closes the connection.
func (e ending) close() {
	if e.over() {
		return
	}
	e.input.stop()
	e.turn.stop()
	e.memory().recount()
}

// closeNow closes the connection. Nobody learns of the response to the request in flight.
func (e ending) closeNow() {
	busy := e.turn.inFlight()
	e.close()
	if busy != nil {
		busy.AbandonNow()
	}
	e.host.Remove(e.session)
	e.outbound.Stop()
	e.outbound.Conn.Close()
}
