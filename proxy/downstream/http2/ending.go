package http2

import (
	"time"

	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/loop"
)

// ending is how a connection ends: it drains, within a time that depends on why, and closes behind the last response.
//
// Calls in: the session says why (drain, distrust, endInput, fail, closeIdle, closeNow). finish is called when a response
// was written or input was decoded. noteResponse notes that the client gets something.
//
// Calls out: input, output and calls are stopped.
type ending struct {
	*session
	state     sessionState
	untrusted bool       // the client's certificate is no longer accepted
	ended     bool       // the client sends nothing more
	answered  bool       // it has got a response, or a part of one, since grace was armed
	grace     loop.Timer // armed while draining
}

func (e *ending) init(s *session) {
	e.session = s
	e.grace.Fire = e.onGrace
}

// over reports whether the session is closed.
func (e *ending) over() bool { return e.state == closed }

// noteResponse notes that the client gets a response, or a part of one.
func (e *ending) noteResponse() { e.answered = true }

// drain tells the client to send no more requests, and closes once all have their responses.
func (e *ending) drain() {
	if e.state != open {
		return
	}
	e.state.become(draining)
	e.codec.Drain()
	e.host.Loop.After(downstream.InTransit, &e.grace) // the client may say earlier that it knows
	if !e.input.busy() {
		e.output.later()
	}
}

// limit drains the session, and ends it after d. Later requests get no response.
func (e *ending) limit(d time.Duration) {
	e.drain()
	if e.state == closed {
		return
	}
	e.codec.GoAway(http2.NoError)
	e.host.Loop.After(d, &e.grace)
	e.output.schedule(false)
}

// distrust drains the session of a client that is no longer accepted. The requests in flight have timeouts.drain.
func (e *ending) distrust() {
	e.untrusted = true
	e.limit(e.host.Config.Timeouts.Drain)
}

// endInput is called when the client sends nothing more. Whole requests get their responses, unless none comes for
// timeouts.half_close. Those that are cut short are cancelled, as if the client had reset them. The client can't respond
// to a PING.
func (e *ending) endInput() (stays bool) {
	limit := e.host.Config.Timeouts.HalfClose
	if limit == 0 || e.over() {
		return false
	}
	e.calls.cancelIncomplete()
	if e.calls.len() == 0 && !e.codec.Ready() && e.conn.Buffered() == 0 {
		return false
	}
	e.host.Loop.Stop(&e.keepalive.timer)
	e.ended, e.answered = true, false
	e.limit(limit)
	e.finish()
	return true
}

// fail ends a connection whose client broke a rule. The codec has queued a GOAWAY.
func (e *ending) fail(err error) {
	e.input.report("HTTP/2 connection closed", err.(*http2.Error))
	e.output.last()
	e.drainAndClose()
}

// onGrace ends the time for requests that were on their way, or for the session of a peer that is no
// longer accepted, or counts as gone.
func (e *ending) onGrace() {
	switch {
	case e.ended && e.answered:
		e.answered = false
		e.host.Loop.After(e.host.Config.Timeouts.HalfClose, &e.grace)
	case e.ended:
		e.close()
		e.conn.Close()
	case e.untrusted:
		e.closeNow()
	case !e.codec.Final():
		e.codec.GoAway(http2.NoError)
		e.output.write()
	}
}

// finish closes a draining connection behind the last response.
func (e *ending) finish() {
	if e.state == draining && !e.input.busy() && e.codec.Final() && e.codec.StreamCount() == 0 && !e.codec.Ready() {
		e.drainAndClose()
	}
}

// closeIdle closes an idle session. The client learns that no request on its way was processed.
func (e *ending) closeIdle() {
	if e.over() {
		return
	}
	e.codec.GoAway(http2.NoError)
	e.output.last()
	e.drainAndClose()
}

// drainAndClose ends the session, and closes the connection once the responses are sent.
func (e *ending) drainAndClose() {
	e.close()
	e.conn.Drain()
}

// close ends the session. It cancels the requests of the client, which can't get their responses any more. The caller
// closes the connection.
func (e *ending) close() {
	if e.over() {
		return
	}
	e.state.become(closed)
	e.host.Loop.Stop(&e.grace)
	e.input.stop()
	e.host.Loop.Stop(&e.keepalive.timer)
	e.calls.cancelAll()
	e.codec.Close()
	e.memory.recount()
}

// closeNow closes the connection. Nobody learns of the responses to the requests in flight.
func (e *ending) closeNow() {
	inFlight := e.calls.inFlight()
	e.close()
	for _, ex := range inFlight {
		ex.AbandonNow()
	}
	e.host.Remove(e.session)
	e.output.stop()
	e.conn.Close()
}
