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
	"github.com/remora-proxy/remora/proxy/identity"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// session is a downstream Dubbo connection. Calls begin as they arrive, up to MaxStreams at a
// time. Responses are sent as they arrive, in any order; those of one turn in one write.
type session struct {
	host     *downstream.Host
	conn     loop.Conn
	listener *exchange.Listener

	invocation *dubbo.Invocation // scratch memory of the loop

	state   sessionState
	reader  dubbo.FrameReader
	refusal *fault.Failure // why the call that is being received is skipped; nil for none
	account shard.Account
	calls   []*exchange.Exchange // in flight; CallIndex is the index of each

	outgoingFrames *bytebufferpool.ByteBuffer // not written yet; may be nil
	out            loop.Flush
	graceTimer     loop.Timer // armed in grace

	timeout  loop.Timeout   // idle, head and body timeouts
	outbound shard.Outbound // write timeout

	downstream.SessionNode
}

// NewAcceptor returns the Acceptor of Dubbo connections on a loop.
func NewAcceptor(h *downstream.Host) downstream.Acceptor {
	scratch := new(dubbo.Invocation)
	return func(l *exchange.Listener) loop.Stream { return newSession(h, l, scratch) }
}

func newSession(h *downstream.Host, l *exchange.Listener, scratch *dubbo.Invocation) *session {
	s := &session{host: h, listener: l, invocation: scratch}
	s.reader.Buffers = &h.Buffers
	s.timeout.Init(h.Loop, s.onTimeout)
	s.outbound.Init(h.Shard)
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
		s.drainAndClose()
		return
	}
	s.recount()
	s.finishDrain()
	s.startTimeout()
}

// startTimeout starts the timeout for the rest of a frame, or for the next one.
func (s *session) startTimeout() {
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

// onTimeout closes a connection that is idle, or whose frame is incomplete for too long.
func (s *session) onTimeout(k loop.TimeoutKind) {
	if k == loop.TimeoutIdle && (len(s.calls) > 0 || s.HasInput()) {
		s.timeout.StartIdle(s.host.Config.Timeouts.Idle)
		return
	}
	if f := &s.reader.Frame; k == loop.TimeoutBody && f.Request && !f.Event {
		s.refuse(f, cmp.Or(s.refusal, fault.SlowBody))
	}
	s.drainAndClose()
}

var _ dubbo.FrameHandler = (*session)(nil)

// OnHeader implements dubbo.FrameHandler. The connection has many callers, so it stays open when
// a call is refused: the body of the call is skipped.
func (s *session) OnHeader(f *dubbo.Frame, length int) (keep bool) {
	s.timeout.Stop()
	s.refusal = nil
	switch {
	case f.Event:
		return length <= dubbo.MaxEvent
	case !f.Request: // a response, although nothing was requested
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
	s.host.Buffers.Release(&body)
}

// begin begins the call f, whose body is complete.
func (s *session) begin(f *dubbo.Frame, body *bytebufferpool.ByteBuffer) {
	inv := s.invocation
	if err := inv.Parse(f.Serialization, body.B); err != nil {
		s.host.Buffers.Put(body)
		s.refuse(f, fault.OfCall(err))
		return
	}
	s.recount() // the exchange counts the body from here on
	ex := s.host.Pool.Exchange(s)
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
	ex.Charge()
	ex.CallIndex = len(s.calls)
	s.calls = append(s.calls, ex)
	r := s.listener.Fixed
	if r == nil {
		r = s.host.Router.Find(req)
	}
	ex.Begin(r, s.listener)
}

// refuse sends a failure for a call whose exchange has not begun.
func (s *session) refuse(f *dubbo.Frame, why *fault.Failure) {
	exchange.Refuse(s.host.Shard, s, nil, why)
	shard.LogExample(s.host.Shard, exchange.ClientOf(s), "", shard.Example{}, why)
	if f.TwoWay {
		out := s.outgoing()
		out.B = dubbo.AppendFailure(out.B, f.Serialization, f.ID, statusOf(why), why.Code, why.Text)
	}
}

func (s *session) Listener() *exchange.Listener { return s.listener }

func (s *session) RemoteAddr() string { return s.conn.RemoteAddr() }

func (s *session) PeerNames() *identity.Names { return identity.Of(s.conn) }

// Retire drains the connection: the consumer sends its calls elsewhere.
func (s *session) Retire() { s.Drain() }

// drainGrace is how long calls may follow the read-only event, since some are on their way.
const drainGrace = time.Second

// Drain tells the consumer to send no more calls, and closes once all have their responses.
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
	s.finishDrain()
}

// finishDrain closes a draining connection when no call is in flight or being received.
func (s *session) finishDrain() {
	if s.state == draining && len(s.calls) == 0 && !s.reader.Midway() {
		s.drainAndClose()
	}
}

// drainAndClose ends the session, and closes the connection once the responses are sent.
func (s *session) drainAndClose() {
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

// close ends the session, and cancels the calls in flight. The caller closes the connection.
func (s *session) close() {
	if s.state == closed {
		return
	}
	s.state.become(closed)
	s.reader.Close()
	s.recount()
	s.timeout.Stop()
	s.host.Loop.Stop(&s.graceTimer)
	s.host.Buffers.Release(&s.outgoingFrames)
	for _, ex := range s.calls {
		ex.Cancel()
	}
	s.calls = nil
}

// recount charges the memory of an incomplete frame to limits.buffered.
func (s *session) recount() { s.account.Count(s.host.Shard, s.reader.Held()) }
