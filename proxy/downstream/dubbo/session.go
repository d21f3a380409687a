package dubbo

import (
	"cmp"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// session is a downstream Dubbo connection. Calls begin as they come, up to
// MaxStreams of them at a time, and are answered in the order in which their
// answers are there. What one turn brings leaves in one write.
type session struct {
	host     *downstream.Host
	conn     loop.Conn
	listener *exchange.Listener

	invocation *dubbo.Invocation // scratch memory of the loop

	state   sessionState
	reader  dubbo.FrameReader
	refusal *fault.Failure       // of the call that is being received, if it is skipped
	held    int                  // bytes in reader counted against limits.buffered
	calls   []*exchange.Exchange // out; each knows its place

	replies    *bytebufferpool.ByteBuffer // not written yet; may be nil
	out        loop.Flush
	graceTimer loop.Timer // armed in grace: until draining

	timeout  loop.Timeout   // idle, head and body timeouts
	outbound shard.Outbound // write timeout

	downstream.SessionNode
}

// acceptor makes the Dubbo sessions of one loop.
type acceptor struct {
	w          *downstream.Host
	invocation dubbo.Invocation // being read
}

func NewAcceptor(w *downstream.Host) downstream.Acceptor { return &acceptor{w: w} }

func (d *acceptor) Accept(at *exchange.Listener) loop.Stream {
	return newSession(d.w, at, &d.invocation)
}

func newSession(w *downstream.Host, at *exchange.Listener, scratch *dubbo.Invocation) *session {
	s := &session{host: w, listener: at, invocation: scratch}
	s.reader.Buffers = &w.Buffers
	s.timeout.Init(w.Loop, s.onTimeout)
	s.outbound.Init(w.Shard)
	s.out.Do = s.flush
	s.graceTimer.Fire = s.onGrace
	return s
}

func (s *session) OnOpen(c loop.Conn) {
	s.conn, s.outbound.Conn = c, c
	s.host.Add(s)
	s.timeout.StartIdle(s.host.Config.Timeouts.Idle)
	if s.listener.Closing || s.host.Process.Draining.Load() { // accepted just before the listener closed
		s.Drain()
	}
}

func (s *session) OnData(b []byte) {
	if s.state == closed {
		return
	}
	if err := s.reader.Feed(b, s); err != nil {
		s.host.Log.Warn("connection closed: malformed input", "peer", s.conn.RemoteAddr(), "error", err)
		s.shut()
		return
	}
	s.account()
	s.finish()
	s.wait()
}

// wait sets the timeout for what is to come: the rest of a frame, or the next
// one.
func (s *session) wait() {
	t := &s.host.Config.Timeouts
	switch {
	case s.state == closed:
	case !s.reader.Midway():
		s.timeout.StartIdle(t.Idle)
	case s.reader.InHead():
		if !s.timeout.Running(loop.TimeoutHead) {
			s.timeout.Start(loop.TimeoutHead, t.Header)
		}
	case !s.timeout.Running(loop.TimeoutBody):
		s.timeout.Start(loop.TimeoutBody, t.Body)
	}
}

// onTimeout: an idle connection closes, and one whose frame does not end.
func (s *session) onTimeout(k loop.TimeoutKind) {
	if k == loop.TimeoutIdle && len(s.calls) > 0 {
		s.timeout.StartIdle(s.host.Config.Timeouts.Idle)
		return
	}
	if f := &s.reader.Frame; k == loop.TimeoutBody && f.Request && !f.Event {
		s.refuse(f, cmp.Or(s.refusal, fault.SlowBody))
	}
	s.shut()
}

var _ dubbo.FrameHandler = (*session)(nil)

// OnHeader implements FrameHandler. A call that is refused for its header is skipped,
// for the connection is that of many callers.
func (s *session) OnHeader(f *dubbo.Frame, length int) (keep bool) {
	s.timeout.Stop()
	s.refusal = nil
	switch {
	case f.Event:
		return length <= dubbo.MaxEvent
	case !f.Request: // an answer to nothing
		return false
	case int64(length) > s.host.MessageLimits.Message:
		s.refusal = fault.CallTooLarge
	case s.state == draining:
		s.refusal = fault.Draining
	case len(s.calls) == mux.MaxStreams:
		s.refusal = fault.Pipelined
	case s.overBudget(length):
		s.refusal = fault.Overloaded
	}
	return s.refusal == nil
}

// OnFrame implements FrameHandler.
func (s *session) OnFrame(f *dubbo.Frame, body *bytebufferpool.ByteBuffer) {
	switch {
	case f.Request && !f.Event && body != nil:
		s.begin(f, body)
		return
	case s.refusal != nil:
		s.refuse(f, s.refusal)
		s.refusal = nil
	case f.Request && f.TwoWay && body != nil && s.conn.Buffered() <= mux.MaxOutbound:
		f.Body = body.B
		out := s.outgoing()
		out.B = dubbo.AppendHeartbeatAnswer(out.B, f)
	}
	if body != nil {
		s.host.Buffers.Put(body)
	}
}

// begin starts on the call f, whose body is here.
func (s *session) begin(f *dubbo.Frame, body *bytebufferpool.ByteBuffer) {
	inv := s.invocation
	if err := inv.Parse(f.Serialization, body.B); err != nil {
		s.host.Buffers.Put(body)
		s.refuse(f, fault.OfCall(err))
		return
	}
	s.account() // what came in parts is the exchange's from here on
	ex := s.host.Pool.Exchange(s)
	req := &ex.Request
	req.Codec, _ = dubbo.CodecOf(f.Serialization)
	req.Path, req.Method, req.Version, req.Group = inv.Path, inv.Method, inv.Version, inv.Group
	req.Body, req.OneWay = body.B, !f.TwoWay
	if _, ok := trace.Parse(inv.TraceParent); ok {
		// For the sidecars: the body has it for the provider, with what later
		// versions may put behind, which could be anything of any length.
		req.Headers = append(req.Headers, protocol.Header{Name: trace.NameParent, Value: inv.TraceParent[:trace.TextLen]})
	}
	if inv.Timeout > 0 {
		req.Deadline = s.host.Loop.Now() + inv.Timeout
	}
	ex.HeadBuffer, ex.StreamID = body, uint64(f.ID)
	ex.Hold()
	ex.CallIndex = len(s.calls)
	s.calls = append(s.calls, ex)
	r := s.listener.Direct
	if r == nil {
		r = s.host.Router.Find(req)
	}
	ex.Begin(r, s.listener)
}

// refuse answers a call that has not begun.
func (s *session) refuse(f *dubbo.Frame, why *fault.Failure) {
	s.host.Stats.Failed(why)
	exchange.LogRefused(&s.host.AccessLog, s, nil, why)
	if f.TwoWay {
		out := s.outgoing()
		out.B = dubbo.AppendFailure(out.B, f.Serialization, f.ID, statusOf(why), why.Code, why.Text)
	}
}

func (s *session) Listener() *exchange.Listener { return s.listener }

func (s *session) RemoteAddr() string { return s.conn.RemoteAddr() }

// Retire is drain: a consumer that was told goes elsewhere.
func (s *session) Retire() { s.Drain() }

// drainGrace is how long after it was told that this sidecar goes down a consumer
// may still send calls; some are on their way.
const drainGrace = time.Second

// Drain tells the consumer to send no more, and closes once all is answered.
func (s *session) Drain() {
	if s.state != open {
		return
	}
	s.state.become(grace)
	out := s.outgoing()
	out.B = dubbo.AppendReadOnly(out.B, dubbo.Hessian2)
	s.host.Loop.After(drainGrace, &s.graceTimer)
}

func (s *session) onGrace() {
	s.state.become(draining)
	s.finish()
}

// finish closes a draining connection when the last answer was written.
func (s *session) finish() {
	if s.state == draining && len(s.calls) == 0 && !s.reader.Midway() {
		s.shut()
	}
}

// shut closes the connection behind what was answered.
func (s *session) shut() {
	s.write()
	s.close()
	s.conn.Drain()
}

func (s *session) OnClose(error) {
	s.close()
	s.timeout.Close()
	s.outbound.Stop()
	s.host.OnClosed(s)
}

// close ends the session's part: calls that are not answered are withdrawn.
func (s *session) close() {
	if s.state == closed {
		return
	}
	s.state.become(closed)
	s.reader.Close()
	s.account()
	s.timeout.Stop()
	s.host.Loop.Stop(&s.graceTimer)
	if s.replies != nil {
		s.host.Buffers.Put(s.replies)
		s.replies = nil
	}
	for _, ex := range s.calls {
		ex.Cancel()
	}
	s.calls = nil
}

// account keeps limits.buffered up to date with what is being received.
func (s *session) account() {
	if held := s.reader.Held(); held != s.held {
		s.host.Charge(held - s.held)
		s.held = held
	}
}
