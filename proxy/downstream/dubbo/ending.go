package dubbo

import (
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/loop"
)

// ending is how a connection ends: it drains, and closes behind the last response.
//
// Calls in: the session says why (drain, drainAndClose, closeNow). input closes a connection that is idle or slow. finish
// is called when a response was written or input was decoded.
//
// Calls out: input, output and calls are stopped.
type ending struct {
	*session
	state sessionState
	grace loop.Timer // armed in the state grace
}

func (e *ending) init(s *session) {
	e.session = s
	e.grace.Fire = e.onGrace
}

// over reports whether the session is closed.
func (e *ending) over() bool { return e.state == closed }

// refuses reports whether calls are refused, since the consumer had time to learn of the end.
func (e *ending) refuses() bool { return e.state == draining }

// drain tells the consumer to send no more calls, and closes once all have their responses.
func (e *ending) drain() {
	if e.state != open {
		return
	}
	e.state.become(grace)
	out := e.output.buffer()
	out.B = dubbo.AppendReadOnly(out.B, dubbo.Hessian2)
	e.host.Loop.After(downstream.InTransit, &e.grace)
}

func (e *ending) onGrace() {
	e.state.become(draining)
	e.finish()
}

// finish closes a draining connection when no call is in flight or being received.
func (e *ending) finish() {
	if e.state == draining && e.calls.len() == 0 && !e.input.midway() {
		e.drainAndClose()
	}
}

// drainAndClose ends the session, and closes the connection once the responses are sent.
func (e *ending) drainAndClose() {
	e.output.write()
	e.close()
	e.conn.Drain()
}

// close ends the session, and cancels the calls in flight. The caller closes the connection.
func (e *ending) close() {
	if e.over() {
		return
	}
	e.state.become(closed)
	e.host.Loop.Stop(&e.grace)
	e.input.stop()
	e.output.drop()
	e.calls.cancelAll()
}

// closeNow closes the connection. Nobody learns of the responses to the calls in flight.
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
