package proxy

import (
	"cmp"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/trace"
)

// dubboSession is a downstream Dubbo connection. Calls begin as they come, up to
// maxStreams of them at a time, and are answered in the order in which their
// answers are there. What one turn brings leaves in one write.
type dubboSession struct {
	w    *host
	conn Conn
	door *listener

	invocation *dubbo.Invocation // scratch memory of the loop

	closed   bool
	draining bool // no call begins any more; closes when all are answered
	reader   dubboReader
	refusal  *Failure    // of the call that is being received, if it is skipped
	held     int         // bytes in reader counted against limits.buffered
	calls    []*exchange // out; each knows its place

	replies *bytebufferpool.ByteBuffer // not written yet; may be nil
	out     Flush
	grace   Timer // until draining

	clock    clock    // idle, head and body timeouts
	outbound outbound // write timeout

	sessionLink
}

// dubboAcceptor makes the Dubbo sessions of one loop.
type dubboAcceptor struct {
	w          *host
	invocation dubbo.Invocation // being read
}

func newDubboAcceptor(w *host) acceptor { return &dubboAcceptor{w: w} }

func (d *dubboAcceptor) accept(at *listener) Stream { return newDubboSession(d.w, at, &d.invocation) }

func newDubboSession(w *host, at *listener, scratch *dubbo.Invocation) *dubboSession {
	s := &dubboSession{w: w, door: at, invocation: scratch}
	s.reader.buffers = &w.buffers
	s.clock.init(w.loop, s.onTimeout)
	s.outbound.init(w.shard)
	s.out.Do = s.flush
	s.grace.Fire = s.onGrace
	return s
}

func (s *dubboSession) OnOpen(c Conn) {
	s.conn, s.outbound.conn = c, c
	s.w.add(s)
	s.clock.set(s.w.cfg.Timeouts.Idle)
	if s.door.shut || s.w.shared.draining.Load() { // accepted just before the listener closed
		s.drain()
	}
}

func (s *dubboSession) OnData(b []byte) {
	if s.closed {
		return
	}
	if err := s.reader.feed(b, s); err != nil {
		s.w.log.Warn("connection closed: malformed input", "peer", s.conn.RemoteAddr(), "error", err)
		s.shut()
		return
	}
	s.account()
	s.finish()
	s.wait()
}

// wait sets the timeout for what is to come: the rest of a frame, or the next
// one.
func (s *dubboSession) wait() {
	t := &s.w.cfg.Timeouts
	switch {
	case s.closed:
	case !s.reader.midway():
		s.clock.set(t.Idle)
	case s.reader.inHead():
		if !s.clock.running(clockHead) {
			s.clock.start(clockHead, t.Header)
		}
	case !s.clock.running(clockBody):
		s.clock.start(clockBody, t.Body)
	}
}

// onTimeout: an idle connection closes, and one whose frame does not end.
func (s *dubboSession) onTimeout(k clockKind) {
	if k == clockIdle && len(s.calls) > 0 {
		s.clock.set(s.w.cfg.Timeouts.Idle)
		return
	}
	if f := &s.reader.frame; k == clockBody && f.Request && !f.Event {
		s.refuse(f, cmp.Or(s.refusal, FailSlowBody))
	}
	s.shut()
}

var _ dubboEnd = (*dubboSession)(nil)

// onHeader implements dubboEnd. A call that is refused for its header is skipped,
// for the connection is that of many callers.
func (s *dubboSession) onHeader(f *dubbo.Frame, length int) (keep bool) {
	s.clock.stop()
	s.refusal = nil
	switch {
	case f.Event:
		return length <= dubboEvent
	case !f.Request: // an answer to nothing
		return false
	case int64(length) > s.w.httpLimits.Message:
		s.refusal = FailCallTooLarge
	case s.draining:
		s.refusal = FailDraining
	case len(s.calls) == maxStreams:
		s.refusal = FailPipelined
	case s.crowded(length):
		s.refusal = FailOverloaded
	}
	return s.refusal == nil
}

// onFrame implements dubboEnd.
func (s *dubboSession) onFrame(f *dubbo.Frame, body *bytebufferpool.ByteBuffer) {
	switch {
	case f.Request && !f.Event && body != nil:
		s.begin(f, body)
		return
	case s.refusal != nil:
		s.refuse(f, s.refusal)
		s.refusal = nil
	case f.Request && f.TwoWay && body != nil && s.conn.Buffered() <= maxOutbound:
		f.Body = body.B
		out := s.outgoing()
		out.B = dubbo.AppendHeartbeatAnswer(out.B, f)
	}
	if body != nil {
		s.w.buffers.Put(body)
	}
}

// begin starts on the call f, whose body is here.
func (s *dubboSession) begin(f *dubbo.Frame, body *bytebufferpool.ByteBuffer) {
	inv := s.invocation
	if err := inv.Parse(f.Serialization, body.B); err != nil {
		s.w.buffers.Put(body)
		s.refuse(f, callFailure(err))
		return
	}
	s.account() // what came in parts is the exchange's from here on
	ex := s.w.pool.exchange(s)
	req := &ex.req
	req.Codec, _ = dubboCodec(f.Serialization)
	req.Path, req.Method, req.Version, req.Group = inv.Path, inv.Method, inv.Version, inv.Group
	req.Body, req.OneWay = body.B, !f.TwoWay
	if _, ok := trace.Parse(inv.TraceParent); ok {
		// For the sidecars: the body has it for the provider, with what later
		// versions may put behind, which could be anything of any length.
		req.Headers = append(req.Headers, protocol.Header{Name: nameTraceParent, Value: inv.TraceParent[:trace.TextLen]})
	}
	if inv.Timeout > 0 {
		req.Deadline = s.w.loop.Now() + inv.Timeout
	}
	ex.head, ex.tag = body, uint64(f.ID)
	ex.hold()
	ex.place = len(s.calls)
	s.calls = append(s.calls, ex)
	r := s.door.direct
	if r == nil {
		r = s.w.router.find(req)
	}
	ex.begin(r, s.door)
}

// refuse answers a call that has not begun.
func (s *dubboSession) refuse(f *dubbo.Frame, why *Failure) {
	s.w.stats.failed(why)
	logRefused(&s.w.access, s, nil, why)
	if f.TwoWay {
		out := s.outgoing()
		out.B = dubbo.AppendFailure(out.B, f.Serialization, f.ID, dubboStatus(why), why.Code, why.Text)
	}
}

func (s *dubboSession) at() *listener { return s.door }

func (s *dubboSession) peer() string { return s.conn.RemoteAddr() }

// retire is drain: a consumer that was told goes elsewhere.
func (s *dubboSession) retire() { s.drain() }

// drainGrace is how long after it was told that this sidecar goes down a consumer
// may still send calls; some are on their way.
const drainGrace = time.Second

// drain tells the consumer to send no more, and closes once all is answered.
func (s *dubboSession) drain() {
	if s.grace.Armed() || s.draining || s.closed {
		return
	}
	out := s.outgoing()
	out.B = dubbo.AppendReadOnly(out.B, dubbo.Hessian2)
	s.w.loop.After(drainGrace, &s.grace)
}

func (s *dubboSession) onGrace() {
	s.draining = true
	s.finish()
}

// finish closes a draining connection when the last answer was written.
func (s *dubboSession) finish() {
	if s.draining && !s.closed && len(s.calls) == 0 && !s.reader.midway() {
		s.shut()
	}
}

// shut closes the connection behind what was answered.
func (s *dubboSession) shut() {
	s.write()
	s.close()
	s.conn.Drain()
}

func (s *dubboSession) OnClose(error) {
	s.close()
	s.clock.close()
	s.outbound.stop()
	s.w.closed(s)
}

// close ends the session's part: calls that are not answered are withdrawn.
func (s *dubboSession) close() {
	if s.closed {
		return
	}
	s.closed = true
	s.reader.close()
	s.account()
	s.clock.stop()
	s.w.loop.Stop(&s.grace)
	if s.replies != nil {
		s.w.buffers.Put(s.replies)
		s.replies = nil
	}
	for _, ex := range s.calls {
		ex.cancel()
	}
	s.calls = nil
}

// account keeps limits.buffered up to date with what is being received.
func (s *dubboSession) account() {
	if held := s.reader.held(); held != s.held {
		s.w.charge(held - s.held)
		s.held = held
	}
}
