package http2

import (
	"strings"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
)

// input receives frames, as the handler of the codec, and makes requests of them.
//
// Calls in: the session gives it bytes (receive). output starts its timeout anew (startTimeout).
//
// Calls out: calls.add makes the call of a stream, which gets what follows. The last request that limits.requests
// allows starts the ending.
type input struct {
	*session
	requests int          // received so far
	decoding bool         // the codec is in Feed
	timeout  loop.Timeout // idle and head timeouts
}

var _ http2.RequestHandler = (*input)(nil)

func (in *input) init(s *session) {
	in.session = s
	in.timeout.Init(s.host.Loop, in.onTimeout)
}

// receive takes b from the client.
func (in *input) receive(b []byte) error {
	in.decoding = true
	in.codec.Advance(in.host.Loop.Now())
	err := in.codec.Feed(b)
	in.decoding = false
	return err
}

// busy reports whether the codec is decoding. Output waits until it has decoded all.
func (in *input) busy() bool { return in.decoding }

// report counts and logs what the client did wrong.
func (in *input) report(what string, why *http2.Error) {
	f := fault.HTTP2Error
	if strings.HasPrefix(why.Reason, floodPrefix) {
		f = fault.HTTP2Flood
	}
	in.host.Stats.CountFailure(in.origin.Listener.Name, f)
	in.host.Stats.CountUnrouted(in.origin.Listener.Name)
	in.host.Stats.CountMisuse(why.Reason)
	if omitted, due := in.host.Log.Due(what, in.origin.Listener.Name, why.Reason); due {
		in.host.Log.Example(what, omitted, "listener", in.origin.Listener.Name, "code", f.Code,
			"peer", in.conn.RemoteAddr(), "reason", why.Reason, "error", why.Text)
	}
}

const floodPrefix = "h2_flood_"

// startTimeout starts the timeout for the rest of a head, or for the next request.
func (in *input) startTimeout() {
	t := &in.host.Config.Timeouts
	switch {
	case in.ending.over():
	case in.codec.InHead():
		if !in.timeout.Running(loop.TimeoutHead) {
			in.timeout.Start(loop.TimeoutHead, t.Header)
		}
	case in.calls.len() > 0:
		in.timeout.Stop()
	case !in.timeout.Running(loop.TimeoutIdle):
		in.timeout.StartIdle(t.Idle)
	}
}

// idleFor returns how long the client has sent nothing, 0 while it waits for a response.
func (in *input) idleFor() time.Duration {
	if in.calls.len() > 0 {
		return 0
	}
	return in.timeout.IdleFor()
}

// stop ends the timeouts of a session that closes.
func (in *input) stop() { in.timeout.Stop() }

// release gives up the timeouts of a session whose connection is closed.
func (in *input) release() { in.timeout.Close() }

// onTimeout closes a connection whose head is incomplete for too long, and drains an idle one.
func (in *input) onTimeout(k loop.TimeoutKind) {
	if k == loop.TimeoutIdle {
		in.ending.drain()
		return
	}
	in.host.Refuse(&in.calls, nil, fault.SlowHead)
	in.codec.GoAway(http2.EnhanceYourCalm)
	in.output.last()
	in.ending.drainAndClose()
}

// NewRequest implements http2.RequestHandler.
func (in *input) NewRequest(st *http2.Stream) (*protocol.Request, *bytebufferpool.ByteBuffer) {
	ex := in.calls.add(st).ex
	ex.HeadBuffer = in.host.Buffers.Get(0)
	return &ex.Request, ex.HeadBuffer
}

// MayGrow implements http2.Handler. It charges the head before that takes the memory.
func (in *input) MayGrow(st *http2.Stream, n int) bool {
	ex := st.Owner.(*call).ex
	if in.memory.overBudget(ex, n-ex.HeldByRequest()) {
		return false
	}
	ex.ChargeHead(n)
	return true
}

// OnNoRoom implements http2.RequestHandler.
func (in *input) OnNoRoom(st *http2.Stream) {
	in.count()
	st.Owner.(*call).refuse(fault.Overloaded)
}

// OnRequest implements http2.RequestHandler.
func (in *input) OnRequest(st *http2.Stream, end bool) {
	c := st.Owner.(*call)
	in.count()
	c.ex.Charge()
	switch {
	case len(c.ex.Request.Path) == 0: // CONNECT
		c.refuse(fault.Unsupported)
		return
	case end:
		c.begin()
		return
	case in.memory.overBudget(c.ex, 0): // a client can keep it open, and send no body that would be refused
		c.refuse(fault.Overloaded)
		return
	}
	now := in.host.Loop.Now()
	c.ex.Arrived, c.heard = now, now
	waits, ex := st.ExpectsContinue(), c.ex
	switch {
	case st.Length() > in.host.MessageLimits.Message, waits && in.origin.Listener.Expects && in.host.Process.Streams:
		c.leave()
	case waits && ex.Checks(in.origin.Listener).MessageHead(in.host.FindRoute(ex, &in.origin, protocol.ViaHTTP2)):
		c.begin()
	case waits:
		in.codec.Interim(st, &protocol.Response{Status: 100})
	}
}

// count counts a request. The last one that limits.requests allows drains the connection.
func (in *input) count() {
	if in.requests++; in.requests == in.host.Config.Limits.Requests {
		in.ending.drain()
	}
}

// OnOversize implements http2.RequestHandler.
func (in *input) OnOversize(st *http2.Stream) {
	in.count()
	st.Owner.(*call).refuse(fault.OfRequest(http1.ErrHeaderTooLarge))
}

// OnData implements http2.Handler.
func (in *input) OnData(st *http2.Stream, b []byte, end bool) {
	c := st.Owner.(*call)
	if c.state == receiving && !c.keep(b) {
		c.leave()
	}
	switch {
	case c.state == streaming && c.pipe.receives:
		c.pipe.data(b, end)
	case c.state == receiving && end:
		c.complete(nil)
	case c.state == receiving, !end:
		in.codec.Consumed(st, len(b))
	}
}

// OnTrailers implements http2.Handler.
func (in *input) OnTrailers(st *http2.Stream, hs []protocol.Header) {
	switch c := st.Owner.(*call); {
	case c.state == streaming && c.pipe.receives:
		c.pipe.trailers(hs)
	case c.state == receiving:
		c.complete(hs)
	}
}

// OnSent implements http2.Handler: the client gets the whole response. It need not send the rest of
// its request.
func (in *input) OnSent(st *http2.Stream) {
	c := st.Owner.(*call)
	if !st.Ended() {
		in.codec.Reset(st, http2.NoError)
	}
	c.over()
}

// OnWritable implements http2.Handler.
func (in *input) OnWritable(st *http2.Stream) {
	if p := st.Owner.(*call).pipe; p != nil {
		p.pump()
	}
}

// OnReset implements http2.Handler.
func (in *input) OnReset(st *http2.Stream, _ http2.Code, why *http2.Error) {
	if why != nil {
		in.report("HTTP/2 stream reset", why)
	}
	st.Owner.(*call).cancel()
}
