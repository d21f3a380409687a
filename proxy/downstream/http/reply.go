package http

import (
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
)

// startNext begins the next requests as long as none is in flight.
func (s *session) startNext() {
	if s.starting {
		return
	}
	s.starting = true
	for s.output.free() && len(s.calls) > 0 && !s.peerIsSlow() {
		if s.calls[0].handoff {
			if s.calls[0].tunnel {
				s.openTunnel()
				continue
			}
			if s.handOff() {
				break
			}
		}
		s.output.become(outputBusy)
		ex := s.calls[0].ex
		if f := s.calls[0].refuse; f != nil {
			exchange.Refuse(s.host.Shard, s, ex, f)
			s.Fail(ex, f)
			if ex != nil {
				s.host.Pool.Recycle(ex)
			}
			continue
		}
		// The route of a request that was to leave, could have been passed on, or waited
		// for 100 Continue, was found with its head. A reload meanwhile does not change that.
		r := ex.Route
		if r == nil {
			r = s.findRoute(ex, int(s.calls[0].minor))
		} else {
			downstream.FilterTrailers(&ex.Request, &s.origin)
		}
		ex.Route = nil // until Begin has admitted it
		ex.Begin(r, s.origin.Listener)
	}
	s.starting = false
}

// findRoute prepares a request received over HTTP/1.minor, and returns its route, or nil.
func (s *session) findRoute(ex *exchange.Exchange, minor int) *exchange.Route {
	if s.tunnel != nil && len(ex.Request.Authority) == 0 {
		ex.Request.Authority = s.tunnel.authority
	}
	return s.host.FindRoute(ex, &s.origin, protocol.ViaValues[minor&1])
}

// peerIsSlow reports whether the next request must wait for the client to read. A request that
// is to leave waits until all is read. onRoom calls startNext again then.
func (s *session) peerIsSlow() bool {
	room := maxUnread
	if s.calls[0].handoff {
		room = 0
	}
	if s.outbound.Conn.Buffered() <= room {
		return false
	}
	if s.output == outputIdle {
		s.output.become(outputWaiting)
	}
	s.awaitRoom(room)
	return true
}

// maxUnread is the largest number of unread bytes with which the next pipelined request may begin.
const maxUnread = 256 << 10

// Encode implements exchange.Caller. The head is in the loop's scratch memory until Respond.
func (s *session) Encode(ex *exchange.Exchange, res *race.Response) *fault.Failure {
	downstream.AddRequestID(&res.Response, ex.RequestID)
	if ex.Route.Edits != nil {
		res.Own()
		downstream.EditResponse(ex, &res.Response, &s.origin)
	}
	out := s.host.Scratch[:0]
	if res.Source != nil {
		head := res.StreamHead()
		out = http1.AppendStreamResponse(out, &res.Response, &head, int(s.calls[0].minor))
	} else {
		out = http1.AppendResponseHead(out, &res.Response, s.decideClose())
	}
	s.host.Scratch = out
	if len(out) == 0 {
		return fault.Malformed
	}
	return nil
}

func (s *session) Respond(_ *exchange.Exchange, res *race.Response) {
	if res.Source != nil {
		s.respondStream(res)
		return
	}
	out, flags := s.host.Scratch, s.calls[0].flags()
	if len(res.Body) > http1.WriteTogether && len(res.Trailers) == 0 && http1.HasBody(&res.Response, flags) {
		if len(res.Body) > pieceSize && res.Shares() {
			s.outbound.Write(out)
			s.host.KeepScratch(out)
			s.calls[0].ex, s.calls[0].res = nil, res
			s.writePieces()
			return
		}
		s.outbound.WriteBoth(out, res.Body)
	} else {
		out = http1.AppendResponseBody(out, &res.Response, flags)
		s.outbound.Write(out)
	}
	s.host.KeepScratch(out)
	res.Release()
	s.onResponded()
}

var _ exchange.InterimCaller = (*session)(nil)

// Interim implements exchange.InterimCaller. HTTP/1.0 knows none (RFC 9110 section 15.2).
func (s *session) Interim(_ *exchange.Exchange, res *protocol.Response) {
	if s.calls[0].minor == 0 || s.outbound.Conn.Buffered() > maxUnread {
		return
	}
	out := http1.AppendInterim(s.host.Scratch[:0], res)
	s.outbound.Write(out)
	s.host.KeepScratch(out)
	s.outbound.Watch()
}

// The connection copies what its client does not read. So a long body that is shared is written in pieces,
// and the next one when at most unreadPieces of those before are left.
const (
	pieceSize    = 256 << 10
	unreadPieces = 64 << 10
)

// writePieces writes the body of the first call's response as far as the client reads it.
func (s *session) writePieces() {
	res := s.calls[0].res
	for len(res.Body) > 0 {
		if s.outbound.Conn.Buffered() > unreadPieces {
			s.outbound.Watch()
			s.awaitRoom(unreadPieces)
			return
		}
		n := min(len(res.Body), pieceSize)
		s.outbound.Write(res.Body[:n])
		res.Body = res.Body[n:]
	}
	res.Release()
	s.calls[0].res = nil
	s.onResponded()
}

// decideClose decides whether the connection closes after the response to the first call, and
// returns how that is framed.
func (s *session) decideClose() http1.ResponseFlags {
	call := &s.calls[0]
	call.last = call.last || s.retiring || s.host.Process.Draining.Load()
	return call.flags()
}

func (c *call) flags() http1.ResponseFlags {
	return http1.ResponseFlags{Minor: int(c.minor), Close: c.last, ToHead: c.toHead}
}

// Fail implements exchange.Caller. ex is nil when the input was no request.
func (s *session) Fail(ex *exchange.Exchange, f *fault.Failure) {
	var id []byte
	if ex != nil {
		id = ex.RequestID
		if f == fault.NoRoute && ex.Route == nil { // not a refusal of the other sidecar
			f = downstream.NoRouteFor(&ex.Request)
		}
	}
	out := downstream.AppendFailure(s.host.Scratch[:0], f, s.host.DateValue(), id, s.decideClose())
	s.outbound.Write(out)
	s.host.KeepScratch(out)
	s.onResponded()
}

// Finished implements exchange.Caller. HTTP/1.1 has no word for it.
func (s *session) Finished(*exchange.Exchange) {}

// onResponded removes the first call, whose response was written, and begins the next one.
func (s *session) onResponded() {
	last, final := s.calls[0].last, s.calls[0].final && s.blank()
	s.output.become(outputIdle)
	s.outbound.Watch()
	n := s.removeCall()
	if last {
		s.close()
		if final {
			s.outbound.Conn.Finish()
		} else {
			s.outbound.Conn.Drain()
		}
		return
	}
	if n == 0 && s.input == inputHead && s.blank() {
		s.startIdle()
	}
	if s.input == inputBody {
		s.sendContinue()
	}
	s.startNext()
}

// addCall adds the last call that was received.
func (s *session) addCall(c call) {
	if s.calls == nil {
		s.calls, _ = s.host.freeCalls.Take()
	}
	s.calls = append(s.calls, c)
}

// removeCall removes the first call, and returns how many are left.
func (s *session) removeCall() int {
	n := copy(s.calls, s.calls[1:])
	s.calls[n] = call{}
	s.calls = s.calls[:n]
	if n == 0 {
		if cap(s.calls) <= maxFreeCalls {
			s.host.freeCalls.Put(s.calls)
		}
		s.calls = nil
	}
	return n
}

// sendContinue sends 100 Continue to a client that waits for it, once the requests before have
// their responses. The client has timeouts.body from then on. If the head alone decides the final
// response, the client gets that instead (RFC 9110 section 10.1.1).
func (s *session) sendContinue() {
	switch {
	case !s.head.ExpectContinue || len(s.calls) > 0:
	case s.headDecides():
		s.queueWithoutBody()
	default:
		s.outbound.Write([]byte(http1.Continue))
		s.head.ExpectContinue = false
		s.startTimeout(loop.TimeoutBody, s.host.Config.Timeouts.Body)
	}
}

// headDecides reports whether the request whose body is awaited gets its final response without it. A
// request to upgrade may go on without a route, which is known once its body is complete.
func (s *session) headDecides() bool {
	if s.asksUpgrade() && s.hasDestination() {
		return false
	}
	r := s.cur.Route
	if r == nil {
		r = s.findRoute(s.cur, s.head.Minor)
	}
	if s.asksUpgrade() {
		return s.cur.CheckHead(r, s.origin.Listener)
	}
	return s.cur.CheckMessageHead(r, s.origin.Listener)
}

// queueWithoutBody queues the request whose body is awaited as the last one: the client may send the body,
// or another request.
func (s *session) queueWithoutBody() {
	ex := s.cur
	s.cur = nil
	s.requests++
	ex.Charge()
	s.addCall(call{ex: ex, minor: uint8(s.head.Minor), toHead: s.head.HeadMethod, last: true})
	s.stopTimeout()
	s.input.become(inputClosed)
	s.dropInput()
}

// PlaintextResponse returns the response to a client in plain text of a listener with TLS.
func PlaintextResponse() []byte {
	return downstream.AppendFailure(nil, fault.TLSRequired, nil, nil, http1.ResponseFlags{Minor: 1, Close: true})
}

// failureOf returns the failure for input that can't be decoded because of err.
func (s *session) failureOf(err error) *fault.Failure {
	if s.requests == 0 {
		if f := downstream.OtherProtocol(s.in.B); f != nil {
			return f
		}
	}
	return fault.OfRequest(err)
}

// refuse queues f as the last response, since the beginning of the next message is unknown.
func (s *session) refuse(f *fault.Failure) {
	shard.LogExample(s.host.Shard, exchange.ClientOf(s), "", s.example(), f)
	s.input.become(inputClosed)
	s.dropInput()
	s.stopTimeout()
	s.addCall(call{refuse: f, minor: 1, last: true})
}

// example returns the example of the request that is being received.
func (s *session) example() shard.Example {
	switch {
	case s.input == inputBody:
		return s.cur.Example()
	case s.in != nil:
		return downstream.ExampleOf(s.in.B)
	}
	return shard.Example{}
}
