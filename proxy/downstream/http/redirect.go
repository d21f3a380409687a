package http

import (
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// redirect passes a redirected connection on to its original destination with what no route takes. While routes have
// rules, a later request could go round them. So then each request that no route takes goes on by itself (see
// leaving.hasDestination), and nothing else does.
//
// Calls in: the session opens it. input offers what has arrived (takeInput), or that nothing has (takeSilent). leaving
// gives it the connection when it is its turn (pass).
//
// Calls out: input keeps what follows. The turn gets a call without a request. Streams get the connection.
type redirect struct{ *session }

func (s *session) redirect() redirect { return redirect{s} }

func (r redirect) open() {
	r.input.setRedirected(r.host.Process.Streams && r.outbound.Conn.OriginalDst().IsValid())
}

// active reports whether the connection was redirected, and may go on.
func (r redirect) active() bool { return r.input.isRedirected() }

func (r redirect) passes() bool { return r.active() && !r.host.Router.Guarded }

// takeInput makes the connection go on if the request whose head was decoded with err has no route, and reports whether
// it does. Input that is no request has no route, unless a request came before it: then the client speaks HTTP, and
// gets an error response.
func (r redirect) takeInput(err error) (taken bool) {
	if !r.passes() {
		return false
	}
	if err != nil && err != http1.ErrMessageTooLarge {
		taken = r.input.untouched()
	} else {
		ex := r.incoming.ex
		ex.Route = r.findRoute(ex, r.incoming.head.Minor)
		taken = ex.Route == nil
	}
	if taken {
		r.queue()
	}
	return taken
}

// takeSilent makes the connection of a client that sends nothing, since it waits for the other side, go on. It reports
// whether it does.
func (r redirect) takeSilent() (taken bool) {
	if taken = r.passes() && r.input.untouched(); taken {
		r.queue()
	}
	return taken
}

// queue makes the connection go on with all input, once the client has read the responses to the requests before.
// Input is kept until then.
func (r redirect) queue() {
	r.host.Pool.Recycle(r.incoming.takeExchange())
	r.incoming.handoff = handoff{kind: stats.StreamPass}
	r.input.awaitHandoff()
	r.turn.add(call{leaves: true, minor: 1, end: thenDrain})
}

// pass gives the client's connection to Streams.
func (r redirect) pass(client loop.Socket) {
	first := r.input.takeBytes()
	r.ending().close()
	r.host.Streams.Pass(r.origin.Listener.Name, client, r.outbound.Conn.OriginalDst(), first)
}
