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

// leaving gives the connection to Streams with a request or a response that is no message.
//
// Calls in: input offers what has arrived (takeConnection, takeRequest, takeLong, takeWhole), and what follows (keep).
// The turn says when it is the turn of a call that leaves (leave), and gives responses that are streams (answer).
//
// Calls out: turn.add gets the request that leaves. input keeps the bytes behind it, and is stopped when nothing
// leaves. tunnel and redirect take what is theirs first.
type leaving struct{ *session }

func (s *session) leaving() leaving { return leaving{s} }

// handoff is how a request leaves. It is a part of incoming: only the last request can leave.
type handoff struct {
	kind   stats.StreamKind
	moment moment
	direct bool // it has no route, and goes to the host that it names
}

// moment is when a request leaves.
type moment uint8

const (
	inTurn      moment = iota // before it has a response
	afterAccept               // a CONNECT, once tunnel has accepted it
	fromTunnel                // a CONNECT that tunnel has accepted, and whose first bytes have arrived
)

// kindOf returns the kind of the request decoded with err, if it must leave the loop.
func (l leaving) kindOf(err error) (kind stats.StreamKind, leaves bool) {
	long := err == http1.ErrMessageTooLarge
	head := &l.incoming.head
	switch {
	case !l.host.Process.Streams, err != nil && !long:
		return 0, false
	case head.Connect:
		return stats.StreamConnect, true
	case long, head.ExpectContinue && l.origin.Listener.Expects && !l.asksUpgrade():
		return stats.StreamBody, true
	}
	return stats.StreamWebSocket, l.asksUpgrade() && head.Framing == http1.NoBody
}

// asksUpgrade reports whether the request that is being received leaves the loop to ask for an upgrade. One with a
// body does so once the body, which must come before what the upgrade begins, is complete.
func (l leaving) asksUpgrade() bool {
	head := &l.incoming.head
	return head.Protocols != nil && l.host.Process.Streams && head.Length <= downstream.MaxUpgradeBody
}

// takeConnection takes the connection with all its input, whose head was decoded with err, if it goes to a session of
// HTTP/2 or to its original destination. It reports whether it does.
func (l leaving) takeConnection(err error) (taken bool) {
	return (err != nil || l.redirect().active()) && l.takeInput(err)
}

// takeInput is the part of takeConnection that is not inlined: few requests come so far.
func (l leaving) takeInput(err error) (taken bool) {
	if err != nil && l.switching().begins() {
		l.input.toHTTP2()
		return true
	}
	return l.redirect().takeInput(err)
}

// takeRequest takes the request whose head is the input's first n bytes: by itself as kind, if leaves is true, or
// because no route takes it. It reports whether it does.
func (l leaving) takeRequest(kind stats.StreamKind, leaves bool, n int) (taken bool) {
	switch {
	case leaves:
	case l.hasDestination() && !l.asksUpgrade() && l.goesDirect():
		kind = stats.StreamBody
	default:
		return false
	}
	l.input.keep(l.input.takeHead(n))
	if kind == stats.StreamBody {
		l.incoming.body.Reset(&l.incoming.head, l.host.BodyLimits())
		l.incoming.ex.BodyBuffer = l.host.Buffers.Get(0)
	}
	l.queue(kind, !leaves)
	return true
}

// takeLong takes the request whose body is being received, if that is too long for a message. It reports whether it does.
func (l leaving) takeLong() (taken bool) {
	if int64(l.incoming.body.Length()) <= l.host.MessageLimits.Message {
		return false
	}
	l.queue(stats.StreamBody, false)
	return true
}

// takeWhole takes the complete request, which asks for an upgrade, unless it must stay. It reports whether it does.
func (l leaving) takeWhole() (taken bool) {
	switch req := &l.incoming.ex.Request; {
	case len(req.Body) <= downstream.MaxUpgradeBody && len(req.Trailers) == 0:
		l.queue(stats.StreamWebSocket, false)
	case l.hasDestination() && l.goesDirect(): // the upgrade is ignored
		l.queue(stats.StreamBody, true)
	default:
		return false
	}
	return true
}

// mayTakeWhole reports whether takeWhole may find that no route takes the request whose body is awaited.
func (l leaving) mayTakeWhole() bool { return l.asksUpgrade() && l.hasDestination() }

// queue makes the request that is being received the last call. The connection leaves the loop with
// it once the client has read all earlier responses. Input is kept until then.
// unrouted reports that a route was looked for, and there is none.
func (l leaving) queue(kind stats.StreamKind, unrouted bool) {
	m := l.incoming
	l.input.awaitHandoff()
	ex := l.input.finish()
	if ex.Route == nil && !unrouted {
		ex.Route = l.findRoute(ex, m.head.Minor)
	}
	d := handoff{kind: kind, direct: ex.Route == nil && l.hasDestination()}
	if kind == stats.StreamConnect && l.tunnel.accepts(ex, d.direct || ex.Route != nil) {
		d.moment = afterAccept
	}
	d.direct = d.direct && (d.moment == afterAccept || l.mayPass(ex))
	if d.direct {
		l.restorePath(ex)
	}
	m.handoff = d
	l.turn.add(call{ex: ex, leaves: true, minor: uint8(m.head.Minor), end: thenDrain, toHead: m.head.HeadMethod})
	if kind == stats.StreamConnect && l.origin.Listener.Fixed != nil {
		ex.Refusal = fault.Unsupported
	}
	stays, f := ex.Checks(l.origin.Listener).Leaving(&exchange.Leaving{
		Counted: l.memory().messages(), Lasting: kind != stats.StreamBody,
		Direct: d.direct, Accepted: d.moment == afterAccept, Body: l.bodyFailure(),
	})
	if stays || f != nil {
		l.refuse(f)
	}
}

// bodyFailure returns why the body of the request that is being received can't be that of a stream, or nil.
func (l leaving) bodyFailure() *fault.Failure {
	switch m := l.incoming; {
	case m.head.Length > protocol.NoLimit: // otherwise found only after the application has the head
		return fault.OfRequest(http1.ErrMessageTooLarge)
	case m.kind == stats.StreamConnect && m.head.Framing != http1.NoBody: // the start of the tunnel would be unclear
		return fault.BadRequest
	}
	return nil
}

// refuse refuses the request that was to leave, in its turn. Without a failure its route
// answers it. A tunnel ends at once.
func (l leaving) refuse(f *fault.Failure) {
	c := l.turn.last()
	if l.incoming.moment == fromTunnel {
		l.tunnel.refuse(c.ex, f)
		return
	}
	l.input.stop()
	c.leaves, c.refuse = false, f
	if f != nil {
		var e shard.Example
		if c.ex != nil { // else a connection that was to pass on
			e = c.ex.Example()
		}
		shard.LogExample(l.host.Shard, exchange.ClientOf(&l.turn), "", e, f)
	}
}

// keep keeps input that followed the request which waits to leave. More than
// limits.message is refused, since the loop can't stop reading.
func (l leaving) keep(b []byte) {
	switch {
	case int64(len(l.input.bytes())+len(b)) > l.host.MessageLimits.Message:
		l.refuse(fault.OfRequest(http1.ErrMessageTooLarge))
	case l.memory().overBudget():
		l.refuse(fault.Overloaded)
	default:
		l.input.keep(b)
	}
}

// leave gives the connection to Streams with c, its last request, whose turn it is. It reports
// whether that ends the session. Else c was accepted as a tunnel, or is handled as if there were no streams.
func (l leaving) leave(c *call) (gone bool) {
	kind := l.incoming.kind
	if l.incoming.moment == afterAccept {
		l.tunnel.open(c)
		return false
	}
	if c.ex != nil {
		if f := c.ex.Checks(l.origin.Listener).InTime(); f != nil {
			l.refuse(f)
			return l.turn.closed()
		}
	}
	client, err := l.outbound.Conn.Detach()
	switch {
	case err == nil && kind == stats.StreamPass:
		l.redirect().pass(client)
		return true
	case err == nil:
		l.host.Stats.Handoffs[kind]++
		r := l.streamRequest(c)
		l.ending().close()
		l.host.Streams.Request(client, r)
		return true
	case err == loop.ErrDetachClosed: // OnClose follows
		return true
	case kind == stats.StreamPass: // no response can say so: it may not be HTTP
		l.ending().close()
		l.outbound.Conn.Close()
		return true
	case !errors.Is(err, errors.ErrUnsupported): // the system has no descriptor left
		l.refuse(fault.Overloaded)
	case kind == stats.StreamWebSocket: // the upgrade is ignored (RFC 9110 section 7.8)
		l.refuse(nil)
	case kind == stats.StreamConnect:
		l.refuse(fault.Unsupported)
	default:
		l.refuse(fault.OfRequest(http1.ErrMessageTooLarge))
	}
	return l.turn.closed()
}

// streamRequest returns the request of c as one that owns its memory.
func (l leaving) streamRequest(c *call) *downstream.StreamRequest {
	ex, m := c.ex, l.incoming
	r := l.host.StreamRequest(m.kind, &l.turn, ex, &l.origin)
	r.Opened, r.Minor, r.ToHead = m.moment == fromTunnel, m.head.Minor, m.head.HeadMethod
	switch {
	case r.Unrouted == nil:
	case l.redirect().active():
		r.Unrouted.To = l.outbound.Conn.OriginalDst()
	case l.tunnel.opened() && !m.head.Absolute && !m.head.Connect:
		r.Unrouted.Authority = string(l.tunnel.authority())
	}
	switch m.kind {
	case stats.StreamBody:
		r.Head = http1.AppendStreamRequest(nil, &ex.Request, &m.head)
		r.Body, r.Chunks, r.Continue = m.body, m.head.Framing == http1.Chunked, m.head.ExpectContinue
		r.Buffer, ex.BodyBuffer = ex.BodyBuffer, nil
	case stats.StreamWebSocket:
		r.Protocols = bytes.Clone(m.head.Protocols)
		r.Head = http1.AppendUpgradeRequest(nil, &ex.Request, r.Protocols)
	}
	r.Rest = l.input.takeBytes()
	return r
}

// answer responds to c, the first call, with a response whose body is a stream. It is the
// last of the connection: Streams sends the body to the client as it arrives, off the loop.
// The head is in the loop's scratch memory.
func (l leaving) answer(c *call, res *race.Response) {
	c.stream = l.host.StreamAnswer(&l.turn, res, c.minor)
	l.input.stop()
	l.memory().recount()
	l.sendStream(c, l.descriptorUntil())
}

// detachPause is the time until the next try of a response for whose client the system had no descriptor.
const detachPause = 100 * time.Millisecond

// descriptorUntil returns until when a response waits for a descriptor, from now on.
func (l leaving) descriptorUntil() time.Duration {
	return l.host.Loop.Now() + l.host.Config.Timeouts.Write
}

// sendStream gives the connection to Streams with its last response, that of c, once the client has
// read those before. The write timeout bounds the wait. Without a descriptor sendStream tries again until that time.
// Then it fails with ResponseTooLarge, and not Overloaded, with which any request may be sent again: the application
// has processed this one.
func (l leaving) sendStream(c *call, until time.Duration) {
	client, err := l.outbound.Conn.Detach()
	unsupported := errors.Is(err, errors.ErrUnsupported)
	switch {
	case err == nil:
		a := c.stream
		c.stream = nil
		l.host.Stats.Handoffs[stats.HandoffAnswer]++
		l.ending().close()
		l.host.Streams.Answer(client, a)
	case err == loop.ErrDetachBuffered:
		l.turn.awaitRoom(0)
	case err == loop.ErrDetachClosed: // OnClose follows
	case !unsupported && l.host.Loop.Now() < until:
		l.host.Loop.After(detachPause, &loop.Timer{Fire: func() {
			if l.turn.handsOff() {
				l.sendStream(l.turn.first(), until)
			}
		}})
	default:
		f := fault.ResponseTooLarge
		shard.ReportStream(l.host.Shard, exchange.ClientOf(&l.turn), c.stream.Source.Service, f)
		c.stream.Source.Refuse(f)
		c.stream = nil
		l.turn.Fail(nil, f)
	}
}
