package proxy

import (
	"net/netip"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
)

// httpState is what a downstream HTTP session does with the bytes that come in.
type httpState uint8

const (
	httpHead    httpState = iota // collecting a request's head
	httpBody                     // collecting its body
	httpLeaving                  // the last request waits to leave with the connection: input is kept for it
	httpClosed                   // draining, closed or gone: input is ignored
)

// httpSession is a downstream HTTP/1.1 connection. Requests are decoded as they
// come, up to limits.pipelined of them, and processed one after another, so that
// answers keep their order and a client's second request sees the effects of
// its first (RFC 9112 section 9.3.2).
type httpSession struct {
	w      *host
	conn   Conn
	door   *listener
	origin origin

	// original is where the connection goes on to when it has no route here; the
	// zero value: nowhere.
	original netip.AddrPort

	state httpState
	in    *bytebufferpool.ByteBuffer // input of which no message is complete, or for what is to leave
	head  http1.Head
	body  http1.Body
	cur   *exchange  // being received
	kind  StreamKind // of the request that is to leave; head and body are its
	held  int        // bytes of in and parting counted against limits.buffered; cur counts its own

	calls   []httpCall // received, in order; the first is being processed if busy
	busy    bool
	pumping bool
	last    bool          // the connection closes after the answers that are due
	parting *StreamAnswer // to leave with, when what was answered before has left

	requests int // received

	clock    clock    // idle, head and body timeouts
	outbound outbound // write timeout
	slow     Timer    // the client is behind

	sessionLink
}

// httpCall is a received request in its place in the order of answers.
type httpCall struct {
	ex     *exchange
	refuse *Failure // how it is answered, then the connection closes; ex may be nil
	leaves bool     // with the connection
	minor  int
	last   bool // the connection closes after this answer
	toHead bool
}

// httpAcceptor makes the HTTP sessions of one loop.
type httpAcceptor struct{ w *host }

func newHTTPAcceptor(w *host) acceptor { return httpAcceptor{w} }

func (h httpAcceptor) accept(at *listener) Stream { return newHTTPSession(h.w, at) }

func newHTTPSession(w *host, at *listener) *httpSession {
	s := &httpSession{w: w, door: at, origin: origin{trusted: at.trusted}}
	s.clock.init(w.loop, s.onTimeout)
	s.outbound.init(w.shard)
	s.slow.Fire = s.onSlow
	return s
}

func (s *httpSession) OnOpen(c Conn) {
	s.conn = c
	s.outbound.conn = c
	s.origin.addr = peerAddr(c.RemoteAddr())
	if s.w.shared.streams {
		s.original = c.OriginalDst()
	}
	s.w.add(s)
	s.clock.set(s.w.cfg.Timeouts.Idle)
	switch { // accepted just before the listener closed
	case s.w.shared.draining.Load():
		s.drain()
	case s.door.shut:
		s.retire()
	}
}

// lateIdle is how long a draining connection may keep its first request to
// itself: one may be on its way, and clients repeat what fails on a connection
// that has answered before, not on a fresh one.
const lateIdle = time.Second

func (s *httpSession) OnData(b []byte) {
	for len(b) > 0 && s.state != httpClosed {
		switch s.state {
		case httpBody:
			b = s.receiveBody(b)
		case httpHead:
			var head []byte
			head, b = http1.SplitHead(b)
			s.input(head)
			s.decode()
			if s.state == httpLeaving && len(b) > 0 { // of one read, which leaves with it
				s.input(b)
				b = nil
			}
		default:
			s.keep(b)
			b = nil
		}
	}
	s.account()
	s.pump()
}

// input adds b to the input.
func (s *httpSession) input(b []byte) {
	if s.in == nil {
		s.in = s.w.buffers.Get(len(b))
	}
	s.w.buffers.Append(s.in, b, 0)
}

// decode takes complete requests off the input.
func (s *httpSession) decode() {
	for s.state == httpHead && s.in != nil {
		if s.cur == nil {
			s.cur = s.w.pool.exchange(s)
			s.head.Reset()
		}
		n, err := http1.DecodeRequest(s.in.B, &s.cur.req, &s.head, s.w.httpLimits)
		kind, leaves := s.streamOf(err)
		switch {
		case err == http1.ErrIncomplete:
			if s.blank() {
				s.w.pool.recycle(s.cur)
				s.cur = nil
				return
			}
			if s.crowded() {
				s.refuse(FailOverloaded)
				return
			}
			if !s.clock.running(clockHead) {
				s.clock.start(clockHead, s.w.cfg.Timeouts.Header)
			}
			return
		case s.original.IsValid() && s.unrouted(err):
			s.pass()
			return
		case err != nil && !leaves:
			s.refuse(requestFailure(err))
			return
		case s.head.Connect && !leaves:
			s.refuse(FailUnsupported)
			return
		case len(s.calls) >= s.w.cfg.Limits.Pipelined:
			s.refuse(FailPipelined)
			return
		case leaves:
			s.leaveAtHead(kind, n)
			return
		}
		s.onHead(n)
	}
}

// blank tells whether nothing of a request is here: no input, or an empty line,
// which some clients end a body with. One is ignored (RFC 9112 section 2.2).
func (s *httpSession) blank() bool {
	return s.in == nil || len(s.in.B) <= len("\r\n") && string(s.in.B) == "\r\n"[:len(s.in.B)]
}

// onHead: the first n bytes of the input are a request's head. The buffer
// becomes the exchange's; what follows the message moves to a new one.
func (s *httpSession) onHead(n int) {
	ex := s.cur
	ex.head, s.in = s.in, nil
	rest := ex.head.B[n:]
	if s.head.Framing == http1.NoBody {
		s.keepInput(rest)
		ex.head.B = ex.head.B[:n]
		s.onRequest()
		return
	}
	if s.head.Framing == http1.FixedLength && int64(len(rest)) >= s.head.Length {
		end := n + int(s.head.Length)
		ex.req.Body = ex.head.B[n:end:end]
		s.keepInput(ex.head.B[end:])
		ex.head.B = ex.head.B[:end]
		s.onRequest()
		return
	}
	s.state = httpBody
	s.body.Reset(&s.head, s.w.bodyLimits())
	ex.head.B, ex.body = ex.head.B[:n], s.w.buffers.Get(0)
	s.account()
	s.clock.start(clockBody, s.w.cfg.Timeouts.Body)
	if s.head.ExpectContinue && len(s.calls) > 0 { // it waits for us
		s.clock.stop()
	}
	rest = s.receiveBody(rest)
	if s.state >= httpLeaving {
		return // refused, or all taken; ex is not the session's any more
	}
	s.keepInput(rest)
	if s.state == httpBody {
		s.proceed()
	}
}

// keepInput starts a new input buffer with a copy of b.
func (s *httpSession) keepInput(b []byte) {
	if len(b) > 0 && s.state != httpClosed {
		s.input(b)
	}
}

// receiveBody feeds the body's decoder and returns what follows the message.
func (s *httpSession) receiveBody(b []byte) (rest []byte) {
	if s.crowded() {
		s.refuse(FailOverloaded)
		return nil
	}
	ex := s.cur
	http1.ReserveBody(&s.w.buffers, ex.body, &s.head, b)
	n, done, err := s.body.Decode(b, ex.body)
	if err != nil {
		s.refuse(requestFailure(err))
		return nil
	}
	if int64(s.body.Length()) > s.w.httpLimits.Message {
		s.leave(StreamBody)
		return nil
	}
	if !done {
		return nil
	}
	s.state = httpHead
	size := s.body.Length()
	ex.req.Body = ex.body.B[:size:size]
	ex.req.Trailers = s.body.Trailers(ex.body, ex.req.Trailers[:0])
	s.onRequest()
	return b[n:]
}

// onRequest queues the request that is complete.
func (s *httpSession) onRequest() {
	s.clock.stop()
	s.requests++
	s.cur.hold()
	s.calls = append(s.calls, httpCall{
		ex: s.cur, minor: s.head.Minor, toHead: s.head.HeadMethod,
		last: !s.head.KeepAlive || s.requests == s.w.cfg.Limits.Requests,
	})
	s.cur = nil
	s.head.Reset()
}

// refuse answers what can't be a request once the earlier ones are answered,
// and closes: where the next message would begin is not known.
func (s *httpSession) refuse(f *Failure) {
	s.state = httpClosed
	s.dropInput()
	s.clock.stop()
	s.calls = append(s.calls, httpCall{refuse: f, minor: 1, last: true})
}

// onTimeout: an idle connection closes quietly; a slow request is refused.
func (s *httpSession) onTimeout(k clockKind) {
	switch k {
	case clockHead:
		if s.original.IsValid() && s.requests == 0 {
			s.pass()
		} else {
			s.refuse(FailSlowHead)
		}
	case clockBody:
		s.refuse(FailSlowBody)
	case clockIdle:
		if s.busy || len(s.calls) > 0 {
			return
		}
		s.close()
		s.conn.Drain()
		return
	}
	s.account()
	s.pump()
}

func (s *httpSession) at() *listener { return s.door }

func (s *httpSession) peer() string { return s.conn.RemoteAddr() }

// retire closes the connection after its next answer, which says so: a client that
// sends a request at this moment gets it. Without one it closes for being idle.
func (s *httpSession) retire() { s.last = true }

// drain closes the connection after the answers that are due.
func (s *httpSession) drain() {
	s.last = true
	switch {
	case s.busy || len(s.calls) > 0 || s.cur != nil:
	case s.requests == 0:
		s.clock.set(min(lateIdle, s.w.cfg.Timeouts.Idle))
	default:
		s.close()
		s.conn.Drain()
	}
}

func (s *httpSession) OnClose(error) {
	s.close()
	s.clock.close()
	s.outbound.stop()
	s.w.loop.Stop(&s.slow)
	s.w.closed(s)
}

// close ends the session's part: what was received and not answered is dropped,
// what is in progress is withdrawn.
func (s *httpSession) close() {
	s.state = httpClosed
	s.clock.stop()
	s.dropInput()
	s.dropParting()
	calls := s.calls
	s.calls = nil
	for i, c := range calls {
		switch {
		case c.ex == nil:
		case i == 0 && s.busy:
			c.ex.cancel()
		default:
			s.w.pool.recycle(c.ex)
		}
	}
	s.busy = false
	s.account()
}

func (s *httpSession) dropInput() {
	if s.in != nil {
		s.w.buffers.Put(s.in)
		s.in = nil
	}
	if s.cur != nil {
		s.w.pool.recycle(s.cur)
		s.cur = nil
	}
}

// account keeps limits.buffered up to date with what is being received.
func (s *httpSession) account() {
	now := 0
	if !s.blank() {
		now = protocol.Held(s.in)
	}
	if s.parting != nil {
		now += protocol.Held(s.parting.Source.Buffer)
	}
	if now != s.held {
		s.w.charge(now - s.held)
		s.held = now
	}
	if s.cur != nil {
		s.cur.hold()
	}
}

// receives is how many bytes are counted of what the client sends and was not
// received in whole.
func (s *httpSession) receives() int {
	if s.cur == nil {
		return s.held
	}
	return s.held + s.cur.held
}
