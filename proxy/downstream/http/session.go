package http

import (
	"net/netip"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// session is a downstream HTTP/1.1 connection. Requests are decoded as they
// come, up to limits.pipelined of them, and processed one after another, so that
// answers keep their order and a client's second request sees the effects of
// its first (RFC 9112 section 9.3.2).
type session struct {
	host     *downstream.Host
	conn     loop.Conn
	listener *exchange.Listener
	origin   downstream.Origin

	// original is where the connection goes on to when it has no route here; the
	// zero value: nowhere.
	original netip.AddrPort

	input inputState
	in    *bytebufferpool.ByteBuffer // input of which no message is complete, or for what is to leave
	head  http1.Head
	body  http1.Body
	cur   *exchange.Exchange // being received
	kind  stats.StreamKind   // of the request that is to leave; head and body are its
	held  int                // bytes of in and parting counted against limits.buffered; cur counts its own

	output        outputState
	calls         []call                   // received, in order; output is about the first
	pendingStream *downstream.StreamAnswer // of outputHandoff: to leave with, when what was answered before has left

	// starting guards startNext, which a response that comes at once calls again: the
	// output is idle then, as it is when nothing is being started.
	starting bool

	// retiring reports whether the next response is the last. Retire and Drain set it in
	// any state, and change none by it: an idle session goes on to wait for a request.
	retiring bool

	requests int // received

	timeout  loop.Timeout   // idle, head and body timeouts
	outbound shard.Outbound // write timeout
	slow     loop.Timer     // the client is behind

	downstream.SessionNode
}

// call is a received request in its place in the order of answers.
type call struct {
	ex      *exchange.Exchange
	refuse  *fault.Failure // how it is answered, then the connection closes; ex may be nil
	handoff bool           // with the connection
	minor   int
	last    bool // the connection closes after this answer
	toHead  bool
}

// acceptor makes the HTTP sessions of one loop.
type acceptor struct{ w *downstream.Host }

func NewAcceptor(w *downstream.Host) downstream.Acceptor { return acceptor{w} }

func (h acceptor) Accept(at *exchange.Listener) loop.Stream { return newSession(h.w, at) }

func newSession(w *downstream.Host, at *exchange.Listener) *session {
	s := &session{host: w, listener: at, origin: downstream.Origin{Trusted: at.Trusted}}
	s.timeout.Init(w.Loop, s.onTimeout)
	s.outbound.Init(w.Shard)
	s.slow.Fire = s.onSlow
	return s
}

func (s *session) OnOpen(c loop.Conn) {
	s.conn = c
	s.outbound.Conn = c
	s.origin.Addr = downstream.PeerAddr(c.RemoteAddr())
	if s.host.Process.Streams {
		s.original = c.OriginalDst()
	}
	s.host.Add(s)
	s.timeout.StartIdle(s.host.Config.Timeouts.Idle)
	switch { // accepted just before the listener closed
	case s.host.Process.Draining.Load():
		s.Drain()
	case s.listener.Closing:
		s.Retire()
	}
}

// lateIdle is how long a draining connection may keep its first request to
// itself: one may be on its way, and clients repeat what fails on a connection
// that has answered before, not on a fresh one.
const lateIdle = time.Second

func (s *session) OnData(b []byte) {
	for len(b) > 0 && s.input != inputClosed {
		switch s.input {
		case inputBody:
			b = s.receiveBody(b)
		case inputHead:
			var head []byte
			head, b = http1.SplitHead(b)
			s.appendInput(head)
			s.decode()
			if s.input == inputHandoff && len(b) > 0 { // of one read, which leaves with it
				s.appendInput(b)
				b = nil
			}
		default:
			s.keep(b)
			b = nil
		}
	}
	s.account()
	s.startNext()
}

// appendInput adds b to the input.
func (s *session) appendInput(b []byte) {
	if s.in == nil {
		s.in = s.host.Buffers.Get(len(b))
	}
	s.host.Buffers.Append(s.in, b, 0)
}

// decode takes complete requests off the input.
func (s *session) decode() {
	for s.input == inputHead && s.in != nil {
		if s.cur == nil {
			s.cur = s.host.Pool.Exchange(s)
			s.head.Reset()
		}
		n, err := http1.DecodeRequest(s.in.B, &s.cur.Request, &s.head, s.host.MessageLimits)
		kind, leaves := s.streamOf(err)
		switch {
		case err == http1.ErrIncomplete:
			if s.blank() {
				s.host.Pool.Recycle(s.cur)
				s.cur = nil
				return
			}
			if s.overBudget() {
				s.refuse(fault.Overloaded)
				return
			}
			if !s.timeout.Running(loop.TimeoutHead) {
				s.timeout.Start(loop.TimeoutHead, s.host.Config.Timeouts.Header)
			}
			return
		case s.original.IsValid() && s.unrouted(err):
			s.pass()
			return
		case err != nil && !leaves:
			s.refuse(fault.OfRequest(err))
			return
		case s.head.Connect && !leaves:
			s.refuse(fault.Unsupported)
			return
		case len(s.calls) >= s.host.Config.Limits.Pipelined:
			s.refuse(fault.Pipelined)
			return
		case leaves:
			s.queueHandoffAtHead(kind, n)
			return
		}
		s.onHead(n)
	}
}

// blank tells whether nothing of a request is here: no input, or an empty line,
// which some clients end a body with. One is ignored (RFC 9112 section 2.2).
func (s *session) blank() bool {
	return s.in == nil || len(s.in.B) <= len("\r\n") && string(s.in.B) == "\r\n"[:len(s.in.B)]
}

// onHead: the first n bytes of the input are a request's head. The buffer
// becomes the exchange's; what follows the message moves to a new one.
func (s *session) onHead(n int) {
	ex := s.cur
	ex.HeadBuffer, s.in = s.in, nil
	rest := ex.HeadBuffer.B[n:]
	if s.head.Framing == http1.NoBody {
		s.keepInput(rest)
		ex.HeadBuffer.B = ex.HeadBuffer.B[:n]
		s.onRequest()
		return
	}
	if s.head.Framing == http1.FixedLength && int64(len(rest)) >= s.head.Length {
		end := n + int(s.head.Length)
		ex.Request.Body = ex.HeadBuffer.B[n:end:end]
		s.keepInput(ex.HeadBuffer.B[end:])
		ex.HeadBuffer.B = ex.HeadBuffer.B[:end]
		s.onRequest()
		return
	}
	s.input.become(inputBody)
	s.body.Reset(&s.head, s.host.BodyLimits())
	ex.HeadBuffer.B, ex.BodyBuffer = ex.HeadBuffer.B[:n], s.host.Buffers.Get(0)
	s.account()
	s.timeout.Start(loop.TimeoutBody, s.host.Config.Timeouts.Body)
	if s.head.ExpectContinue && len(s.calls) > 0 { // it waits for us
		s.timeout.Stop()
	}
	rest = s.receiveBody(rest)
	if s.input >= inputHandoff {
		return // refused, or all taken; ex is not the session's any more
	}
	s.keepInput(rest)
	if s.input == inputBody {
		s.sendContinue()
	}
}

// keepInput starts a new input buffer with a copy of b.
func (s *session) keepInput(b []byte) {
	if len(b) > 0 && s.input != inputClosed {
		s.appendInput(b)
	}
}

// receiveBody feeds the body's decoder and returns what follows the message.
func (s *session) receiveBody(b []byte) (rest []byte) {
	if s.overBudget() {
		s.refuse(fault.Overloaded)
		return nil
	}
	ex := s.cur
	http1.ReserveBody(&s.host.Buffers, ex.BodyBuffer, &s.head, b)
	n, done, err := s.body.Decode(b, ex.BodyBuffer)
	if err != nil {
		s.refuse(fault.OfRequest(err))
		return nil
	}
	if int64(s.body.Length()) > s.host.MessageLimits.Message {
		s.queueHandoff(stats.StreamBody)
		return nil
	}
	if !done {
		return nil
	}
	s.input.become(inputHead)
	size := s.body.Length()
	ex.Request.Body = ex.BodyBuffer.B[:size:size]
	ex.Request.Trailers = s.body.Trailers(ex.BodyBuffer, ex.Request.Trailers[:0])
	s.onRequest()
	return b[n:]
}

// onRequest queues the request that is complete.
func (s *session) onRequest() {
	s.timeout.Stop()
	s.requests++
	s.cur.Hold()
	s.calls = append(s.calls, call{
		ex: s.cur, minor: s.head.Minor, toHead: s.head.HeadMethod,
		last: !s.head.KeepAlive || s.requests == s.host.Config.Limits.Requests,
	})
	s.cur = nil
	s.head.Reset()
}

// refuse answers what can't be a request once the earlier ones are answered,
// and closes: where the next message would begin is not known.
func (s *session) refuse(f *fault.Failure) {
	s.input.become(inputClosed)
	s.dropInput()
	s.timeout.Stop()
	s.calls = append(s.calls, call{refuse: f, minor: 1, last: true})
}

// onTimeout: an idle connection closes quietly; a slow request is refused.
func (s *session) onTimeout(k loop.TimeoutKind) {
	switch k {
	case loop.TimeoutHead:
		if s.original.IsValid() && s.requests == 0 {
			s.pass()
		} else {
			s.refuse(fault.SlowHead)
		}
	case loop.TimeoutBody:
		s.refuse(fault.SlowBody)
	case loop.TimeoutIdle:
		if len(s.calls) > 0 {
			return
		}
		s.close()
		s.conn.Drain()
		return
	}
	s.account()
	s.startNext()
}

func (s *session) Listener() *exchange.Listener { return s.listener }

func (s *session) RemoteAddr() string { return s.conn.RemoteAddr() }

// Retire closes the connection after its next answer, which says so: a client that
// sends a request at this moment gets it. Without one it closes for being idle.
func (s *session) Retire() { s.retiring = true }

// Drain closes the connection after the answers that are due.
func (s *session) Drain() {
	s.retiring = true
	switch {
	case len(s.calls) > 0 || s.cur != nil:
	case s.requests == 0:
		s.timeout.StartIdle(min(lateIdle, s.host.Config.Timeouts.Idle))
	default:
		s.close()
		s.conn.Drain()
	}
}

func (s *session) OnClose(error) {
	s.close()
	s.timeout.Close()
	s.outbound.Stop()
	s.host.Loop.Stop(&s.slow)
	s.host.OnClosed(s)
}

// close ends the session's part: what was received and not answered is dropped,
// what is in progress is withdrawn.
func (s *session) close() {
	if s.output == outputClosed {
		return
	}
	busy := s.output == outputBusy
	s.output.become(outputClosed)
	s.input.become(inputClosed)
	s.timeout.Stop()
	s.dropInput()
	s.dropPendingStream()
	calls := s.calls
	s.calls = nil
	for i, c := range calls {
		switch {
		case c.ex == nil:
		case i == 0 && busy:
			c.ex.Cancel()
		default:
			s.host.Pool.Recycle(c.ex)
		}
	}
	s.account()
}

func (s *session) dropInput() {
	if s.in != nil {
		s.host.Buffers.Put(s.in)
		s.in = nil
	}
	if s.cur != nil {
		s.host.Pool.Recycle(s.cur)
		s.cur = nil
	}
}

// account keeps limits.buffered up to date with what is being received.
func (s *session) account() {
	now := 0
	if !s.blank() {
		now = protocol.Held(s.in)
	}
	if s.pendingStream != nil {
		now += protocol.Held(s.pendingStream.Source.Buffer)
	}
	if now != s.held {
		s.host.Charge(now - s.held)
		s.held = now
	}
	if s.cur != nil {
		s.cur.Hold()
	}
}

// receives is how many bytes are counted of what the client sends and was not
// received in whole.
func (s *session) receives() int {
	if s.cur == nil {
		return s.held
	}
	return s.held + s.cur.Held
}
