package http

import (
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/loop"
)

// expectation serves a client that waits for 100 Continue before it sends the body of its request (RFC 9110 section
// 10.1.1).
//
// Calls in: input says that a body is awaited, or that an earlier request has its response (meet).
//
// Calls out: a request that gets its response without the body goes to turn.add, and the input ends behind it.
type expectation struct{ *session }

func (s *session) expectation() expectation { return expectation{s} }

// meet sends 100 Continue to a client that waits for it, once the requests before have their responses. The client
// has timeouts.body from then on. If the head alone decides the final response, the client gets that instead.
func (e expectation) meet() {
	switch {
	case !e.incoming.head.ExpectContinue || e.turn.waiting() > 0:
	case e.headDecides():
		e.addWithoutBody()
	default:
		e.outbound.Write([]byte(http1.Continue))
		e.incoming.head.ExpectContinue = false
		e.timeouts().start(loop.TimeoutBody, e.host.Config.Timeouts.Body)
	}
}

// headDecides reports whether the request whose body is awaited gets its final response without it. A
// request to upgrade may go on without a route, which is known once its body is complete.
func (e expectation) headDecides() bool {
	if e.leaving().mayTakeWhole() {
		return false
	}
	r := e.incoming.ex.Route
	if r == nil {
		r = e.findRoute(e.incoming.ex, e.incoming.head.Minor)
	}
	checks := e.incoming.ex.Checks(e.origin.Listener)
	if e.leaving().asksUpgrade() {
		return checks.Head(r)
	}
	return checks.MessageHead(r)
}

// addWithoutBody gives the request whose body is awaited to the turn, as the last one: the client may send the body,
// or another request.
func (e expectation) addWithoutBody() {
	e.turn.add(call{ex: e.input.finish(), minor: uint8(e.incoming.head.Minor), toHead: e.incoming.head.HeadMethod, end: thenDrain})
	e.input.stop()
}
