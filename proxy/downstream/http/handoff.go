package http

import (
	"bytes"
	"errors"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// streamKind returns the kind of the request decoded with err, if it must leave the loop.
func (s *session) streamKind(err error) (kind stats.StreamKind, leaves bool) {
	long := err == http1.ErrMessageTooLarge
	switch {
	case !s.host.Process.Streams, err != nil && !long:
		return 0, false
	case s.head.Connect:
		return stats.StreamConnect, true
	case long, s.head.ExpectContinue && s.origin.Listener.Expects && !s.asksUpgrade():
		return stats.StreamBody, true
	}
	return stats.StreamWebSocket, s.asksUpgrade() && s.head.Framing == http1.NoBody
}

// asksUpgrade reports whether the request that is being received leaves the loop to ask for an upgrade. One with a
// body does so once the body, which must come before what the upgrade begins, is complete.
func (s *session) asksUpgrade() bool {
	return s.head.Protocols != nil && s.host.Process.Streams && s.head.Length <= downstream.MaxUpgradeBody
}

// queueHandoffAtHead is queueHandoff for a request whose head is the input's first n bytes.
func (s *session) queueHandoffAtHead(kind stats.StreamKind, n int, unrouted bool) {
	ex := s.cur
	ex.HeadBuffer, s.in = s.in, nil
	s.keepInput(ex.HeadBuffer.B[n:])
	ex.HeadBuffer.B = ex.HeadBuffer.B[:n]
	if kind == stats.StreamBody {
		s.body.Reset(&s.head, s.host.BodyLimits())
		ex.BodyBuffer = s.host.Buffers.Get(0)
	}
	s.queueHandoff(kind, unrouted)
}

// queueHandoff queues the request that is being received. The connection leaves the loop with
// it once the client has read all earlier responses. Input is kept until then. No timeout runs
// for the client: the deadlines of earlier requests and the write timeout bound the wait.
// unrouted reports that a route was looked for, and there is none.
func (s *session) queueHandoff(kind stats.StreamKind, unrouted bool) {
	ex := s.cur
	s.cur = nil
	s.input.become(inputHandoff)
	s.kind = kind
	s.stopTimeout()
	s.requests++
	ex.Charge()
	if ex.Route == nil && !unrouted {
		ex.Route = s.findRoute(ex, s.head.Minor)
	}
	c := call{ex: ex, handoff: true, minor: uint8(s.head.Minor), last: true, toHead: s.head.HeadMethod}
	c.direct = ex.Route == nil && s.hasDestination()
	c.tunnel = kind == stats.StreamConnect && s.opensTunnel(ex, c.direct || ex.Route != nil)
	c.direct = c.direct && (c.tunnel || s.mayPass(ex))
	if c.direct {
		s.restorePath(ex)
	}
	s.addCall(c)
	if ex.Route != nil && ex.Route.Answer != nil {
		s.refuseHandoff(nil)
		return
	}
	if f := s.checkHandoff(&c); f != nil {
		s.refuseHandoff(f)
	}
}

func (s *session) checkHandoff(c *call) *fault.Failure {
	ex := c.ex
	toCheck := !ex.HeadChecked()
	switch {
	case toCheck && exchange.Limited(s.origin.Listener.Rate, s.host.Loop.Now(), s, &ex.Request):
		return fault.RateLimited
	case s.kind == stats.StreamConnect && s.origin.Listener.Fixed != nil:
		return fault.Unsupported
	case ex.Refusal != nil:
		return ex.Refusal
	}
	if toCheck && !c.tunnel { // else each request within is checked, and bytes that are none
		if f := s.checkRoute(c); f != nil {
			return f
		}
	}
	switch {
	case s.head.Length > protocol.NoLimit: // otherwise found only after the application has the head
		return fault.OfRequest(http1.ErrMessageTooLarge)
	case s.kind == stats.StreamConnect && s.head.Framing != http1.NoBody: // the start of the tunnel would be unclear
		return fault.BadRequest
	}
	if f := s.host.CheckStream(s.account.Messages()+ex.Held, s.kind != stats.StreamBody); f != nil {
		return f
	}
	if toCheck && ex.Route != nil && exchange.Limited(ex.Route.Rate, s.host.Loop.Now(), s, &ex.Request) {
		return fault.RateLimited
	}
	return nil
}

func (s *session) checkRoute(c *call) *fault.Failure {
	switch r := c.ex.Route; {
	case s.origin.Listener.Ruled(r) && c.ex.Forbidden(r, s.origin.Listener):
		return fault.NotAllowed
	case r == nil && !c.direct:
		return fault.NoRoute
	case r != nil && r.Answer != nil: // in a tunnel, where no response can be
		return fault.Unsupported
	}
	return nil
}

// refuseHandoff refuses the request that was to leave, in its turn. Without a failure its route
// answers it. A tunnel ends at once.
func (s *session) refuseHandoff(f *fault.Failure) {
	call := &s.calls[len(s.calls)-1]
	if call.opened {
		s.closeTunnel(f)
		return
	}
	s.input.become(inputClosed)
	s.dropInput()
	call.handoff, call.refuse = false, f
	if f != nil {
		var e shard.Example
		if call.ex != nil { // else a connection that was to pass on
			e = call.ex.Example()
		}
		shard.LogExample(s.host.Shard, exchange.ClientOf(s), "", e, f)
	}
}

// keepForHandoff keeps input that followed the request which waits to leave. More than
// limits.message is refused, since the loop can't stop reading.
func (s *session) keepForHandoff(b []byte) {
	kept := 0
	if s.in != nil {
		kept = len(s.in.B)
	}
	switch {
	case int64(kept+len(b)) > s.host.MessageLimits.Message:
		s.refuseHandoff(fault.OfRequest(http1.ErrMessageTooLarge))
	case s.overBudget():
		s.refuseHandoff(fault.Overloaded)
	default:
		s.appendInput(b)
	}
}

// handOff gives the connection to Streams with its last request, whose turn it is. It reports
// whether that ends the session; else the request is handled as if there were no streams.
func (s *session) handOff() (done bool) {
	if ex := s.calls[0].ex; ex != nil && s.host.TimeLeft(ex) <= 0 {
		s.refuseHandoff(fault.Deadline)
		return s.output == outputClosed
	}
	client, err := s.outbound.Conn.Detach()
	switch {
	case err == nil && s.kind == stats.StreamPass:
		s.passThrough(client)
		return true
	case err == nil:
		s.host.Stats.Handoffs[s.kind]++
		r := s.streamRequest(&s.calls[0])
		s.close()
		s.host.Streams.Request(client, r)
		return true
	case err == loop.ErrDetachClosed: // OnClose follows
		return true
	case s.kind == stats.StreamPass: // no response can say so: it may not be HTTP
		s.close()
		s.outbound.Conn.Close()
		return true
	case !errors.Is(err, errors.ErrUnsupported): // the system has no descriptor left
		s.refuseHandoff(fault.Overloaded)
	case s.kind == stats.StreamWebSocket: // the upgrade is ignored (RFC 9110 section 7.8)
		s.input.become(inputClosed)
		s.dropInput()
		s.calls[0].handoff = false
	case s.kind == stats.StreamConnect:
		s.refuseHandoff(fault.Unsupported)
	default:
		s.refuseHandoff(fault.OfRequest(http1.ErrMessageTooLarge))
	}
	return s.output == outputClosed
}

// streamRequest returns the request of c as one that owns its memory.
func (s *session) streamRequest(c *call) *downstream.StreamRequest {
	ex := c.ex
	r := s.host.StreamRequest(s.kind, s, ex, &s.origin, max(time.Millisecond, s.host.TimeLeft(ex)))
	r.Opened, r.Minor, r.ToHead = c.opened, s.head.Minor, s.head.HeadMethod
	switch {
	case r.Direct == nil:
	case s.redirected:
		r.Direct.To = s.outbound.Conn.OriginalDst()
	case s.tunnel != nil && !s.head.Absolute && !s.head.Connect:
		r.Direct.Authority = string(s.tunnel.authority)
	}
	switch s.kind {
	case stats.StreamBody:
		r.Head = http1.AppendStreamRequest(nil, &ex.Request, &s.head)
		r.Body, r.Chunks, r.Continue = s.body, s.head.Framing == http1.Chunked, s.head.ExpectContinue
		r.Buffer, ex.BodyBuffer = ex.BodyBuffer, nil
	case stats.StreamWebSocket:
		r.Protocols = bytes.Clone(s.head.Protocols)
		r.Head = http1.AppendUpgradeRequest(nil, &ex.Request, r.Protocols)
	}
	if s.in != nil {
		r.Rest, s.in = s.in.B, nil // r owns the array now
	}
	return r
}

// respondStream responds to the first call with a response whose body is a stream. It is the
// last of the connection: Streams sends the body to the client as it arrives, off the loop.
func (s *session) respondStream(res *race.Response) {
	call := &s.calls[0]
	call.ex, call.last = nil, true
	s.pendingStream = &downstream.StreamAnswer{
		Head: bytes.Clone(s.host.Scratch), Source: res.TakeSource(), Opener: s.host.Opener.From(exchange.ClientOf(s)),
		Chunks: res.DeclaredLength < 0 && call.minor >= 1,
	}
	res.Release()
	s.output.become(outputHandoff)
	s.input.become(inputClosed)
	s.stopTimeout()
	s.dropInput()
	s.recount()
	s.handOffStream()
}

// handOffStream gives the connection to Streams with its last response, once the client has
// read those before. The write timeout bounds the wait.
func (s *session) handOffStream() {
	client, err := s.outbound.Conn.Detach()
	switch err {
	case nil:
		a := s.pendingStream
		s.pendingStream = nil
		s.host.Stats.Handoffs[stats.HandoffAnswer]++
		s.close()
		s.host.Streams.Answer(client, a)
	case loop.ErrDetachBuffered:
		s.awaitRoom(0)
	case loop.ErrDetachClosed: // OnClose follows
	default:
		shard.ReportStream(s.host.Shard, exchange.ClientOf(s), s.pendingStream.Source.Service, fault.ResponseTooLarge)
		s.pendingStream.Source.Refuse(fault.ResponseTooLarge)
		s.pendingStream = nil
		s.Fail(nil, fault.ResponseTooLarge)
	}
}

// dropPendingStream closes a stream that did not leave.
func (s *session) dropPendingStream() {
	if s.pendingStream != nil {
		s.pendingStream.Source.Close()
		s.pendingStream = nil
	}
}

// awaitRoom makes onRoom run when a slow client has left at most left bytes unread.
func (s *session) awaitRoom(left int) {
	if s.room == nil {
		s.room = &loop.Flush{Do: s.onRoom}
	}
	s.outbound.Conn.AwaitRoom(left, s.room)
}

// onRoom goes on after a slow client has read. The session may have ended in the same turn.
func (s *session) onRoom() {
	switch {
	case s.output == outputHandoff:
		s.handOffStream()
	case s.output == outputBusy && s.calls[0].res != nil:
		s.writePieces()
	default:
		s.startNext()
	}
}
