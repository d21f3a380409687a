package http

import (
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/identity"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// session is a downstream HTTP/1.1 connection. It decodes requests as they arrive, up to
// limits.pipelined of them, and processes one at a time. So responses keep the order, and the
// second request of a client sees the effects of the first (RFC 9112 section 9.3.2).
type session struct {
	host   *host
	origin downstream.Origin
	tunnel *tunnel // that the client has opened; nil means none

	input  inputState
	output outputState

	// starting reports whether startNext is running. It is no state: a request that gets its
	// response at once makes the output idle meanwhile, and must not run it a second time.
	starting bool

	// retiring reports whether the next response is the last. It is no state: Retire and
	// Drain set it in any state, and an idle session still waits for a request.
	retiring bool

	redirected bool // what no route takes goes on to the original destination of the connection, see passes

	in        *bytebufferpool.ByteBuffer // undecoded input, or input that leaves with the connection
	cur       *exchange.Exchange         // being received
	*incoming                            // nil if no request is being received or waits to leave, nor has the input ended
	account   shard.Account              // of in and pendingStream; cur counts its own

	calls         []call                   // received, in order; output is about the first
	pendingStream *downstream.StreamAnswer // in outputHandoff: the response with which the connection leaves
	requests      int                      // received so far

	outbound shard.Outbound // the connection, and its write timeout
	room     *loop.Flush    // deferred when a slow client has read; nil before the first time

	downstream.SessionNode
}

// call is a received request that has no response yet.
type call struct {
	ex      *exchange.Exchange // nil for input that is no request, and once it has its response
	res     *race.Response     // its Body is what was not written yet; nil for none
	refuse  *fault.Failure     // the response to it, the last one of the connection; nil for none
	handoff bool               // it leaves the loop with the connection
	tunnel  bool               // with handoff: a CONNECT that is accepted here, and does not leave yet
	opened  bool               // with handoff: the client has its response already
	direct  bool               // with handoff: it has no route, and goes to the host that it names
	last    bool               // the connection closes after its response
	final   bool               // the client expects that, and has sent all of the request
	toHead  bool               // it is a HEAD
	minor   uint8              // of its version, HTTP/1.x
}

// NewAcceptor returns the Acceptor of HTTP connections on a loop.
func NewAcceptor(h *downstream.Host) downstream.Acceptor {
	shared := &host{Host: h}
	return func(l *exchange.Listener) loop.Stream { return newSession(shared, l) }
}

func newSession(h *host, l *exchange.Listener) *session {
	s := &session{host: h, origin: downstream.Origin{Listener: l}}
	s.outbound.Init(h.Shard)
	return s
}

func (s *session) OnOpen(c loop.Conn) {
	if s.origin.Listener.Secure && c.Protocol() == alpnHTTP2 {
		s.handToHTTP2(c)
		return
	}
	s.outbound.Conn = c
	s.origin = downstream.OriginOf(s.origin.Listener, c.RemoteAddr())
	if s.host.Process.Streams {
		s.redirected = c.OriginalDst().IsValid()
	}
	s.host.Add(s)
	s.startIdle()
	switch { // accepted just before the listener closed
	case s.host.Process.Draining.Load():
		s.Drain()
	case s.origin.Listener.Closing:
		s.Retire()
	}
}

// lateIdle is how long a draining connection waits for its first request. One may be on its
// way, and clients retry a request that fails on a used connection, not on a new one.
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
			if s.input >= inputHandoff {
				if s.input == inputHTTP2 {
					s.becomeHTTP2(b)
					return
				}
				b = s.keepRest(b)
			}
		case inputTunnel:
			b = s.receiveFirst(b)
		default:
			s.keepForHandoff(b)
			b = nil
		}
	}
	s.recount()
	s.startNext()
}

// keepRest keeps the rest of a read if it leaves with the request.
func (s *session) keepRest(b []byte) (rest []byte) {
	if s.input != inputHandoff || len(b) == 0 {
		return b
	}
	s.appendInput(b)
	return nil
}

func (s *session) appendInput(b []byte) {
	if s.in == nil {
		s.in = s.host.Buffers.Get(len(b))
	}
	s.host.Buffers.Append(s.in, b, 0)
}

func (s *session) decode() {
	for s.input == inputHead && s.in != nil {
		if s.cur == nil {
			s.beginRequest()
		}
		n, err := http1.DecodeRequest(s.in.B, &s.cur.Request, &s.head, s.host.MessageLimits)
		kind, leaves := s.streamKind(err)
		switch {
		case err == http1.ErrIncomplete:
			if s.blank() {
				s.host.Pool.Recycle(s.cur)
				s.cur = nil
				s.endRequest()
				return
			}
			if s.overBudget() {
				s.refuse(fault.Overloaded)
				return
			}
			if !s.timeout.Running(loop.TimeoutHead) {
				s.startTimeout(loop.TimeoutHead, s.host.Config.Timeouts.Header)
			}
			return
		case err != nil && s.beginsHTTP2():
			s.input.become(inputHTTP2)
			return
		case s.passes() && s.unrouted(err):
			s.queuePass()
			return
		case err != nil && !leaves:
			s.refuse(s.failureOf(err))
			return
		case s.head.Connect && !leaves:
			s.refuse(fault.Unsupported)
			return
		case len(s.calls) >= s.host.Config.Limits.Pipelined:
			s.refuse(fault.Pipelined)
			return
		case leaves:
			s.queueHandoffAtHead(kind, n, false)
			return
		case s.hasDestination() && !s.asksUpgrade() && s.goesDirect():
			s.queueHandoffAtHead(stats.StreamBody, n, true)
			return
		}
		s.onHead(n)
	}
}

// blank reports whether the input has no byte of a request. It may have an empty line, with
// which some clients end a body. One is ignored (RFC 9112 section 2.2).
func (s *session) blank() bool {
	return s.in == nil || len(s.in.B) <= len("\r\n") && string(s.in.B) == "\r\n"[:len(s.in.B)]
}

// onHead is called when the first n bytes of the input are the head of a request. The exchange
// takes the buffer; input after the message moves to a new one.
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
	ex.Arrived = s.host.Loop.Now()
	s.body.Reset(&s.head, s.host.BodyLimits())
	ex.HeadBuffer.B, ex.BodyBuffer = ex.HeadBuffer.B[:n], s.host.Buffers.Get(0)
	s.recount()
	s.startTimeout(loop.TimeoutBody, s.host.Config.Timeouts.Body)
	if s.head.ExpectContinue && len(s.calls) > 0 { // the client waits for 100 Continue
		s.stopTimeout()
	}
	rest = s.receiveBody(rest) // ex may not belong to the session any more
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

// receiveBody decodes the body, and returns the input after the message.
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
		s.queueHandoff(stats.StreamBody, false)
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

// onRequest queues a complete request.
func (s *session) onRequest() {
	if s.asksUpgrade() {
		switch req := &s.cur.Request; {
		case len(req.Body) <= downstream.MaxUpgradeBody && len(req.Trailers) == 0:
			s.queueHandoff(stats.StreamWebSocket, false)
			return
		case s.hasDestination() && s.goesDirect(): // the upgrade is ignored
			s.queueHandoff(stats.StreamBody, true)
			return
		}
	}
	s.stopTimeout()
	s.requests++
	s.cur.Charge()
	if len(s.calls) > 0 && s.cur.Arrived == 0 {
		s.cur.Arrived = s.host.Loop.Now()
	}
	s.addCall(call{
		ex: s.cur, minor: uint8(s.head.Minor), toHead: s.head.HeadMethod, final: !s.head.KeepAlive,
		last: !s.head.KeepAlive || s.requests == s.host.Config.Limits.Requests,
	})
	s.cur = nil
	s.endRequest()
}

// onTimeout refuses a slow request.
func (s *session) onTimeout(k loop.TimeoutKind) {
	switch k {
	case loop.TimeoutHead:
		switch {
		case s.input == inputTunnel && s.tunnelLeaves(s.beginsTLS()):
			s.leaveTunnel(true)
		case s.passes() && s.requests == 0:
			s.queuePass()
		default:
			s.refuse(fault.SlowHead)
		}
	case loop.TimeoutBody:
		s.refuse(fault.SlowBody)
	case loop.TimeoutEnd:
		s.outlastInput()
	}
	s.recount()
	s.startNext()
}

func (s *session) Listener() *exchange.Listener { return s.origin.Listener }

func (s *session) RemoteAddr() string { return s.outbound.Conn.RemoteAddr() }

func (s *session) PeerNames() *identity.Names { return identity.Of(s.outbound.Conn) }

// Retire closes the connection after its next response, which says so: a request sent at this
// moment still gets its response. Without a request the idle timeout closes the connection.
func (s *session) Retire() { s.retiring = true }

// Drain closes the connection after its next response. Without a request in flight it closes
// at once, or after lateIdle if it has had none yet.
func (s *session) Drain() {
	s.retiring = true
	if s.requests == 0 && s.waits() {
		s.host.Loop.After(lateIdle, &loop.Timer{Fire: s.closeLate})
		return
	}
	s.CloseIdle()
}

// waits reports whether no request is in flight or being received.
func (s *session) waits() bool {
	return len(s.calls) == 0 && (s.cur == nil || s.input == inputTunnel)
}

// closeLate closes a draining connection that still waits for its first request.
func (s *session) closeLate() {
	if s.requests == 0 {
		s.CloseIdle()
	}
}

var _ loop.Verified = (*session)(nil)

// OnUntrusted implements loop.Verified. The request in flight, or being received, gets its response.
func (s *session) OnUntrusted() {
	s.retiring = true
	s.CloseIdle()
}

func (s *session) OnClose(error) {
	s.close()
	s.outbound.Stop()
	s.host.OnClosed(s)
}

// close cancels the request in flight and drops later ones. The caller closes the connection.
func (s *session) close() {
	if s.output == outputClosed {
		return
	}
	busy := s.output == outputBusy
	s.output.become(outputClosed)
	s.input.become(inputClosed)
	s.stopTimeout()
	s.dropInput()
	s.dropPendingStream()
	calls := s.calls
	s.calls = nil
	for i, c := range calls {
		switch {
		case c.res != nil:
			c.res.Release()
		case c.ex == nil:
		case i == 0 && busy:
			c.ex.Cancel()
		default:
			s.host.Pool.Recycle(c.ex)
		}
	}
	s.recount()
}

func (s *session) dropInput() {
	s.host.Buffers.Release(&s.in)
	if s.cur != nil {
		s.host.Pool.Recycle(s.cur)
		s.cur = nil
	}
	s.endRequest()
}
