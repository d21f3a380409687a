package http

import (
	"time"

	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
)

// timeouts bounds how long the session waits for its client: for a request, for the rest of one, and for the client to
// take the responses that are due after its end.
//
// Calls in: input and tunnel start and stop the timeouts of what they wait for. The ending says that the client has
// ended its side (awaitResponses).
//
// Calls out: input refuses a slow request. tunnel and redirect take a connection on which the first bytes do not come.
type timeouts struct{ *session }

func (s *session) timeouts() timeouts { return timeouts{s} }

// start starts a timeout of the request that is being received.
func (t timeouts) start(k loop.TimeoutKind, d time.Duration) {
	t.host.StopIdle(&t.SessionNode)
	t.incoming.timeout.Start(k, d)
}

// startIdle starts timeouts.idle.
func (t timeouts) startIdle() {
	if t.incoming != nil { // in a tunnel, which is idle until its first bytes
		t.incoming.timeout.Stop()
	}
	t.host.StartIdle(&t.SessionNode)
}

// stop stops the timeouts of the client.
func (t timeouts) stop() {
	t.host.StopIdle(&t.SessionNode)
	if t.incoming != nil {
		t.incoming.timeout.Stop()
	}
}

// idleFor returns how long the session has waited for a request, 0 if it has one.
func (t timeouts) idleFor() time.Duration {
	if t.turn.waiting() > 0 {
		return 0
	}
	return t.host.IdleFor(&t.SessionNode)
}

// onTimeout refuses a slow request.
func (t timeouts) onTimeout(k loop.TimeoutKind) {
	switch {
	case k == loop.TimeoutBody:
		t.input.refuse(fault.SlowBody)
	case k == loop.TimeoutEnd:
		t.onResponsesLate()
	case !t.tunnel.takeEnd() && !t.redirect().takeSilent():
		t.input.refuse(fault.SlowHead)
	}
	t.memory().recount()
	t.turn.next()
}

// awaitResponses bounds by limit the wait for the responses that are due, now that the client has ended its side.
func (t timeouts) awaitResponses(limit time.Duration) {
	t.incoming = t.host.newIncoming(t.session)
	t.incoming.awaited = t.turn.waiting()
	t.start(loop.TimeoutEnd, limit)
}

// onResponsesLate closes the connection of a client that has ended its side, and has got no response for
// timeouts.half_close. While the client reads a response, timeouts.write bounds the wait.
func (t timeouts) onResponsesLate() {
	if due := t.turn.waiting(); due < t.incoming.awaited || t.outbound.Conn.Buffered() > 0 {
		t.incoming.awaited = due
		t.start(loop.TimeoutEnd, t.host.Config.Timeouts.HalfClose)
		return
	}
	t.ending().close()
	t.outbound.Conn.Close()
}
