package dubbo

import (
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/loop"
)

// ending is how a connection ends: it drains, and closes behind the last response.
//
// Calls in: the session drains it (drain). finish is called when a response was written or input was decoded.
//
// Calls out: the session closes.
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

// stop makes the session closed.
func (e *ending) stop() {
	e.state.become(closed)
	e.host.Loop.Stop(&e.grace)
}

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
