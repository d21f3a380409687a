package dubbo

import (
	"cmp"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// input makes calls of frames, as they arrive, up to mux.MaxStreams at a time.
//
// Calls in: the session gives it bytes (receive), and the ending ends it (stop). The reader calls it for each frame.
//
// Calls out: a whole call goes to calls.add. The response to a heartbeat, and to a call that is refused, goes into
// output.buffer.
type input struct {
	*session
	invocation *dubbo.Invocation // scratch memory of the loop
	reader     dubbo.FrameReader
	refusal    *fault.Failure // why the call that is being received is skipped; nil for none
	timeout    loop.Timeout   // idle, head and body timeouts
}

func (in *input) init(s *session, scratch *dubbo.Invocation) {
	in.session, in.invocation = s, scratch
	in.reader.Buffers = &s.host.Buffers
	in.timeout.Init(s.host.Loop, in.onTimeout)
}

// receive takes b from the consumer.
func (in *input) receive(b []byte) error { return in.reader.Feed(b, in) }

// midway reports whether a frame has arrived in part.
func (in *input) midway() bool { return in.reader.Midway() }

// held returns the bytes of an incomplete frame.
func (in *input) held() int { return in.reader.Held() }

// startTimeout starts the timeout for the rest of a frame, or for the next one.
func (in *input) startTimeout() {
	t := &in.host.Config.Timeouts
	switch {
	case in.ending.over():
	case !in.reader.Midway():
		in.startIdle()
	case in.reader.InHead():
		if !in.timeout.Running(loop.TimeoutHead) {
			in.timeout.Start(loop.TimeoutHead, t.Header)
		}
	case !in.timeout.Running(loop.TimeoutBody):
		in.timeout.Start(loop.TimeoutBody, t.Body)
	}
}

// startIdle starts timeouts.idle.
func (in *input) startIdle() { in.timeout.StartIdle(in.host.Config.Timeouts.Idle) }

// idleFor returns how long the consumer has sent nothing, 0 while it waits for a response.
func (in *input) idleFor() time.Duration {
	if in.calls.len() > 0 {
		return 0
	}
	return in.timeout.IdleFor()
}

// onTimeout closes a connection that is idle, or whose frame is incomplete for too long.
func (in *input) onTimeout(k loop.TimeoutKind) {
	if k == loop.TimeoutIdle && (in.calls.len() > 0 || in.HasInput()) {
		in.startIdle()
		return
	}
	if f := &in.reader.Frame; k == loop.TimeoutBody && f.Request && !f.Event {
		in.refuse(f, cmp.Or(in.refusal, fault.SlowBody))
	}
	in.ending.drainAndClose()
}

var _ dubbo.FrameHandler = (*input)(nil)

// OnHeader implements dubbo.FrameHandler. The connection has many callers, so it stays open when
// a call is refused: the body of the call is skipped.
func (in *input) OnHeader(f *dubbo.Frame, length int) (keep bool) {
	in.timeout.Stop()
	in.refusal = nil
	switch {
	case f.Event:
		return length <= dubbo.MaxEvent
	case !f.Request: // a response, although nothing was requested
		return false
	case int64(length) > in.host.MessageLimits.Message:
		in.refusal = fault.CallTooLarge
	case in.ending.refuses():
		in.refusal = fault.Draining
	case in.calls.len() == mux.MaxStreams:
		in.refusal = fault.Pipelined
	case in.memory.overBudget(length):
		in.refusal = fault.Overloaded
	}
	return in.refusal == nil
}

// OnFrame implements dubbo.FrameHandler.
func (in *input) OnFrame(f *dubbo.Frame, body *bytebufferpool.ByteBuffer) {
	switch {
	case f.Request && !f.Event && body != nil:
		in.begin(f, body)
		return
	case in.refusal != nil:
		in.refuse(f, in.refusal)
	case f.Request && f.TwoWay && body != nil && in.conn.Buffered() <= mux.MaxOutbound:
		f.Body = body.B
		out := in.output.buffer()
		out.B = dubbo.AppendHeartbeatAnswer(out.B, f)
	}
	in.host.Buffers.Release(&body)
}

// begin begins the call f, whose body is complete.
func (in *input) begin(f *dubbo.Frame, body *bytebufferpool.ByteBuffer) {
	inv := in.invocation
	if err := inv.Parse(f.Serialization, body.B); err != nil {
		in.host.Buffers.Put(body)
		in.refuse(f, fault.OfCall(err))
		return
	}
	in.memory.recount() // the exchange counts the body from here on
	ex := in.host.Pool.Exchange(&in.calls)
	req := &ex.Request
	req.Codec, _ = dubbo.CodecOf(f.Serialization)
	req.Path, req.Method, req.Version, req.Group = inv.Path, inv.Method, inv.Version, inv.Group
	req.Body, req.OneWay = body.B, !f.TwoWay
	if _, ok := trace.Parse(inv.TraceParent); ok {
		// This is for sidecars: the provider finds it in the body. Later versions
		// may append anything of any length, which is cut off.
		req.Headers = append(req.Headers, protocol.Header{Name: trace.NameParent, Value: inv.TraceParent[:trace.TextLen]})
	}
	if inv.Timeout > 0 {
		ex.SetTimeout(inv.Timeout)
	}
	ex.HeadBuffer, ex.StreamID = body, uint64(f.ID)
	in.calls.add(ex)
	r := in.listener.Fixed
	if r == nil {
		r = in.host.Router.Find(req)
	}
	ex.Begin(r, in.listener)
}

// refuse sends a failure for a call whose exchange has not begun.
func (in *input) refuse(f *dubbo.Frame, why *fault.Failure) {
	in.host.Refuse(&in.calls, nil, why)
	if f.TwoWay {
		out := in.output.buffer()
		out.B = dubbo.AppendFailure(out.B, f.Serialization, f.ID, statusOf(why), why.Code, why.Text)
	}
}

// stop ends the input, and drops an incomplete frame.
func (in *input) stop() {
	in.reader.Close()
	in.memory.recount()
	in.timeout.Stop()
}

// release ends the timeouts for good.
func (in *input) release() { in.timeout.Close() }
