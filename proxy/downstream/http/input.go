package http

import (
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
)

// input makes requests of the client's bytes, as they arrive, within the limits of memory and limits.pipelined.
//
// Calls in: the session gives it bytes (receive), and the ending ends it (stop). The turn says when a response was written
// (onResponded). When a request leaves, leaving takes it (finish) with the bytes behind it (keep, bytes, takeBytes).
// tunnel waits for its first bytes (openTunnel), and gives the input back (resume).
//
// Calls out: turn.add gets each whole request, and a failure if no request can begin behind it. leaving is offered each
// head, and bytes that are no head (takeConnection, takeRequest, takeLong, takeWhole). tunnel gets the bytes in a tunnel.
// timeouts runs while input waits for bytes, and expectation while the client waits to send a body.
type input struct {
	*session
	undecoded
	requests uint32 // received so far: 2^32 take more than half a day
	state    inputState

	redirected bool // kept for redirect, which has no fields: here the bool costs an idle session nothing
}

// setRedirected keeps whether the connection was redirected, and may go on.
func (in *input) setRedirected(is bool) { in.redirected = is }

// isRedirected returns what setRedirected kept.
func (in *input) isRedirected() bool { return in.redirected }

// receive takes b from the client.
func (in *input) receive(b []byte) {
	for len(b) > 0 && in.state != inputClosed {
		switch in.state {
		case inputBody:
			b = in.receiveBody(b)
		case inputHead:
			var head []byte
			head, b = http1.SplitHead(b)
			in.keep(head)
			in.decode()
			switch in.state {
			case inputHTTP2:
				in.switching().become(b)
			case inputHandoff:
				in.keep(b)
				b = nil
			}
		case inputTunnel:
			b = in.tunnel.receiveFirst(b)
		default:
			in.leaving().keep(b)
			b = nil
		}
	}
}

// room returns the memory for the rest of the body that is being received.
func (in *input) room() []byte {
	if in.state != inputBody {
		return nil
	}
	return in.incoming.body.Room(in.incoming.ex.BodyBuffer)
}

// keep adds b to the bytes that are not decoded, unless the input has ended.
func (in *input) keep(b []byte) {
	if len(b) > 0 && in.state != inputClosed {
		in.append(&in.host.Buffers, b)
	}
}

// decode decodes the heads that have arrived. leaving may take the whole connection before a refusal: bytes that are no
// HTTP must get no response. A refusal comes first, whether the request leaves or stays.
func (in *input) decode() {
	for in.state == inputHead && in.buffer != nil {
		if in.incoming == nil {
			in.begin()
		}
		n, err := http1.DecodeRequest(in.buffer.B, &in.incoming.ex.Request, &in.incoming.head, in.host.MessageLimits)
		if err == http1.ErrIncomplete {
			in.awaitHead()
			return
		}
		if in.leaving().takeConnection(err) {
			return
		}
		kind, leaves := in.leaving().kindOf(err)
		if f := in.refusal(err, leaves); f != nil {
			in.refuse(f)
			return
		}
		if !in.leaving().takeRequest(kind, leaves, n) {
			in.onHead(n)
		}
	}
}

// awaitHead bounds the wait for the rest of a head, in time and memory.
func (in *input) awaitHead() {
	switch {
	case in.blank():
		in.dropIncoming()
	case in.memory().overBudget():
		in.refuse(fault.Overloaded)
	case !in.incoming.timeout.Running(loop.TimeoutHead):
		in.timeouts().start(loop.TimeoutHead, in.host.Config.Timeouts.Header)
	}
}

// refusal returns why the request that was decoded with err gets no other response. leaves reports whether the request
// must leave the loop, with a route or without.
func (in *input) refusal(err error, leaves bool) *fault.Failure {
	switch {
	case err != nil && !leaves:
		return in.failureOf(err)
	case in.incoming.head.Connect && !leaves:
		return fault.Unsupported
	case in.turn.waiting() >= in.host.Config.Limits.Pipelined:
		return fault.Pipelined
	}
	return nil
}

// failureOf returns the failure for input that can't be decoded because of err.
func (in *input) failureOf(err error) *fault.Failure {
	if in.requests == 0 {
		if f := downstream.OtherProtocol(in.buffer.B); f != nil {
			return f
		}
	}
	return fault.OfRequest(err)
}

// takeHead makes the first n bytes of the input, a head, those of the exchange, and returns the rest. The caller
// copies it to a new buffer.
func (in *input) takeHead(n int) (rest []byte) {
	ex := in.incoming.ex
	ex.HeadBuffer, in.buffer = in.buffer, nil
	rest = ex.HeadBuffer.B[n:]
	ex.HeadBuffer.B = ex.HeadBuffer.B[:n]
	return rest
}

// onHead is called when the first n bytes of the input are the head of a request that stays.
func (in *input) onHead(n int) {
	ex, rest := in.incoming.ex, in.takeHead(n)
	if in.incoming.head.Framing == http1.NoBody {
		in.keep(rest)
		in.onRequest()
		return
	}
	if in.incoming.head.Framing == http1.FixedLength && int64(len(rest)) >= in.incoming.head.Length {
		size := int(in.incoming.head.Length)
		ex.Request.Body = rest[:size:size]
		in.keep(rest[size:])
		ex.HeadBuffer.B = ex.HeadBuffer.B[:n+size]
		in.onRequest()
		return
	}
	in.state.become(inputBody)
	ex.Arrived = in.host.Loop.Now()
	in.incoming.body.Reset(&in.incoming.head, in.host.BodyLimits())
	ex.BodyBuffer = in.host.Buffers.Get(0)
	in.memory().recount()
	in.timeouts().start(loop.TimeoutBody, in.host.Config.Timeouts.Body)
	if in.incoming.head.ExpectContinue && in.turn.waiting() > 0 { // the client waits for 100 Continue
		in.timeouts().stop()
	}
	rest = in.receiveBody(rest) // ex may not belong to the session any more
	in.keep(rest)
	if in.state == inputBody {
		in.expectation().meet()
	}
}

// receiveBody decodes the body, and returns the input after the message.
func (in *input) receiveBody(b []byte) (rest []byte) {
	if in.memory().overBudget() {
		in.refuse(fault.Overloaded)
		return nil
	}
	ex := in.incoming.ex
	http1.ReserveBody(&in.host.Buffers, ex.BodyBuffer, &in.incoming.head, b)
	n, done, err := in.incoming.body.Decode(b, ex.BodyBuffer)
	if err != nil {
		in.refuse(fault.OfRequest(err))
		return nil
	}
	if in.leaving().takeLong() || !done {
		return nil
	}
	in.state.become(inputHead)
	size := in.incoming.body.Length()
	ex.Request.Body = ex.BodyBuffer.B[:size:size]
	ex.Request.Trailers = in.incoming.body.Trailers(ex.BodyBuffer, ex.Request.Trailers[:0])
	in.onRequest()
	return b[n:]
}

// onRequest gives a complete request to the turn, if it does not leave.
func (in *input) onRequest() {
	if in.leaving().asksUpgrade() && in.leaving().takeWhole() {
		return
	}
	c := call{
		minor: uint8(in.incoming.head.Minor), toHead: in.incoming.head.HeadMethod,
		ex: in.finish(),
	}
	switch {
	case !in.incoming.head.KeepAlive:
		c.end = thenFinish
	case int(in.requests) == in.host.Config.Limits.Requests:
		c.end = thenDrain
	}
	if in.turn.waiting() > 0 && c.ex.Arrived == 0 {
		c.ex.Arrived = in.host.Loop.Now()
	}
	in.turn.add(c)
	in.dropIncoming()
}

// finish ends the reception of a request, and returns it. The caller owns it.
func (in *input) finish() *exchange.Exchange {
	ex := in.incoming.takeExchange()
	in.timeouts().stop()
	in.requests++
	ex.Charge()
	return ex
}

// onResponded is called when a response was written. idle reports whether it was the last one due.
func (in *input) onResponded(idle bool) {
	switch {
	case in.state == inputBody:
		in.expectation().meet()
	case idle && in.state == inputHead && in.blank():
		in.timeouts().startIdle()
	}
}

// refuse makes f the last response, since the beginning of the next message is unknown.
func (in *input) refuse(f *fault.Failure) {
	e := in.example()
	shard.LogExample(in.host.Shard, exchange.ClientOf(&in.turn), "", e, f)
	in.turn.add(call{refuse: f, minor: 1, end: thenDrain, toHead: string(e.Method) == "HEAD"})
	in.stop()
}

// example returns the example of the request that is being received.
func (in *input) example() shard.Example {
	switch {
	case in.state == inputBody:
		return in.incoming.ex.Example()
	case in.buffer != nil:
		return downstream.ExampleOf(in.buffer.B)
	}
	return shard.Example{}
}

// begin prepares for a request whose first bytes have arrived.
func (in *input) begin() {
	in.incoming = in.host.newIncoming(in.session)
	in.incoming.ex = in.host.Pool.Exchange(&in.turn)
	in.incoming.head.Secure = in.origin.Listener.Secure && !in.tunnel.opened()
}

// dropIncoming gives incoming back: the request was received, or will not be.
func (in *input) dropIncoming() {
	if in.incoming != nil {
		in.host.putIncoming(in.incoming)
		in.incoming = nil
	}
}

// stop ends the input. It drops what is left of it.
func (in *input) stop() {
	in.state.become(inputClosed)
	in.timeouts().stop()
	in.host.Buffers.Release(&in.buffer)
	in.dropIncoming()
}

// awaitHandoff makes the input keep what follows for the request that leaves. No timeout runs for the client: the
// deadlines of earlier requests and the write timeout bound the wait.
func (in *input) awaitHandoff() {
	in.state.become(inputHandoff)
	in.timeouts().stop()
}

// toHTTP2 makes receive give the rest of the input to switching.
func (in *input) toHTTP2() { in.state.become(inputHTTP2) }

// openTunnel waits for the first bytes in a tunnel, which begins with the CONNECT ex. Requests in it count from 0.
func (in *input) openTunnel(ex *exchange.Exchange) {
	in.state.become(inputTunnel)
	in.incoming.ex, in.requests = ex, 0
}

// resume makes what follows in the tunnel requests.
func (in *input) resume() {
	in.timeouts().stop()
	in.dropIncoming()
	in.state.become(inputHead)
}

// handsOff reports whether the last request waits to leave the loop with the input.
func (in *input) handsOff() bool { return in.state == inputHandoff }

// inTunnel reports whether the first bytes in a tunnel are awaited.
func (in *input) inTunnel() bool { return in.state == inputTunnel }

// receiving reports whether a request is being received. The CONNECT of a tunnel was.
func (in *input) receiving() bool {
	return in.incoming.holdsRequest() && in.state != inputTunnel
}

// setCount makes the requests of another loop count.
func (in *input) setCount(requests int) { in.requests = uint32(requests) }

// untouched reports whether no request was received, on the connection or in its tunnel.
func (in *input) untouched() bool { return in.requests == 0 }

// count returns the number of requests received, and reports whether no part of another has arrived.
func (in *input) count() (requests int, empty bool) {
	return int(in.requests), in.buffer == nil && in.incoming == nil
}

// charge counts the memory of the request that is being received.
func (in *input) charge() {
	if in.incoming.holdsRequest() {
		in.incoming.ex.Charge()
	}
}

// charged returns what charge has counted.
func (in *input) charged() int {
	if in.incoming.holdsRequest() {
		return in.incoming.ex.Held
	}
	return 0
}
