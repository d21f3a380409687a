package http

import (
	"time"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
)

// startNext starts the next request when none is in progress.
func (s *session) startNext() {
	if s.starting {
		return
	}
	s.starting = true
	for s.output.free() && len(s.calls) > 0 && !s.peerIsSlow() {
		if s.calls[0].handoff && s.handOff() {
			break
		}
		s.output.become(outputBusy)
		ex := s.calls[0].ex
		if f := s.calls[0].refuse; f != nil {
			s.host.Stats.Failed(f)
			exchange.LogRefused(&s.host.AccessLog, s, ex, f)
			s.Fail(ex, f)
			if ex != nil {
				s.host.Pool.Recycle(ex)
			}
			continue
		}
		// Of one that was to leave, or could have been passed on, the route was
		// found when its head was here: a reload meanwhile does not change that.
		r := ex.Route
		if r == nil {
			r = s.routed(ex, s.calls[0].minor)
		}
		ex.Route = nil // until begin has admitted it
		ex.Begin(r, s.listener)
	}
	s.starting = false
}

// routed takes in a request that came over HTTP/1.minor and finds its route, nil
// if there is none.
func (s *session) routed(ex *exchange.Exchange, minor int) *exchange.Route {
	downstream.PrepareRequest(ex, &s.host.IDs, &s.origin, minor)
	r := s.listener.Direct
	if r == nil {
		r = s.host.Router.Find(&ex.Request)
	}
	if r != nil {
		downstream.RewritePath(r, ex)
	}
	return r
}

// peerIsSlow tells whether the client has so much left to read that its next request
// has to wait, one that is to leave for all of it; pump is called again then.
func (s *session) peerIsSlow() bool {
	room := maxUnread
	if s.calls[0].handoff {
		room = 0
	}
	if s.conn.Buffered() <= room {
		return false
	}
	if s.output == outputIdle {
		s.output.become(outputWaiting)
	}
	s.host.Loop.After(slowRetry, &s.slow)
	return true
}

const (
	// maxUnread is how much may wait for a client to read it before the next
	// of its pipelined requests begins.
	maxUnread = 256 << 10

	// slowRetry is how long a session waits to look again.
	slowRetry = 2 * time.Millisecond
)

// Encode implements replier: the head waits for reply in the loop's scratch memory.
func (s *session) Encode(ex *exchange.Exchange, ans *exchange.Response) *fault.Failure {
	ans.AddRequestID(ex.RequestID)
	out := s.host.Scratch[:0]
	if ans.Source != nil {
		head := streamHead(ans)
		out = http1.AppendStreamResponse(out, &ans.Response, &head, s.calls[0].minor)
	} else {
		out = http1.AppendResponseHead(out, &ans.Response, s.closing())
	}
	s.host.Scratch = out
	if len(out) == 0 {
		return fault.Malformed
	}
	return nil
}

func (s *session) Respond(_ *exchange.Exchange, ans *exchange.Response) {
	if ans.Source != nil {
		s.replyStream(ans)
		return
	}
	out, flags := s.host.Scratch, s.calls[0].flags()
	if len(ans.Body) > http1.WriteTogether && len(ans.Trailers) == 0 && http1.HasBody(&ans.Response, flags) {
		s.outbound.Write(out)
		s.outbound.Write(ans.Body)
	} else {
		out = http1.AppendResponseBody(out, &ans.Response, flags)
		s.outbound.Write(out)
	}
	s.host.KeepScratch(out)
	ans.Release()
	s.answered()
}

// closing decides whether the connection closes after the answer to the first call,
// and says how that is to be framed.
func (s *session) closing() http1.ResponseFlags {
	call := &s.calls[0]
	call.last = call.last || s.retiring || s.host.Process.Draining.Load()
	return call.flags()
}

// flags says how the answer is to be framed.
func (c *call) flags() http1.ResponseFlags {
	return http1.ResponseFlags{Minor: c.minor, Close: c.last, ToHead: c.toHead}
}

// Fail answers with f. ex is nil when what came was no request.
func (s *session) Fail(ex *exchange.Exchange, f *fault.Failure) {
	var id []byte
	if ex != nil {
		id = ex.RequestID
	}
	out := downstream.AppendFailure(s.host.Scratch[:0], f, s.host.DateValue(), id, s.closing())
	s.outbound.Write(out)
	s.host.KeepScratch(out)
	s.answered()
}

func (s *session) Finished(*exchange.Exchange) {}

// answered moves on to the next request after the first has its answer.
func (s *session) answered() {
	last := s.calls[0].last
	s.output.become(outputIdle)
	s.outbound.Watch()
	n := copy(s.calls, s.calls[1:])
	s.calls[n] = call{}
	s.calls = s.calls[:n]
	if last {
		s.close()
		s.conn.Drain()
		return
	}
	if n == 0 && s.input == inputHead && s.blank() {
		s.timeout.StartIdle(s.host.Config.Timeouts.Idle)
	}
	if s.input == inputBody {
		s.sendContinue()
	}
	s.startNext()
}

// sendContinue lets a client that waits for it send the body, once the requests before are
// answered. From then on it has timeouts.body for that.
func (s *session) sendContinue() {
	if s.head.ExpectContinue && len(s.calls) == 0 {
		s.outbound.Write([]byte(http1.Continue))
		s.head.ExpectContinue = false
		s.timeout.Start(loop.TimeoutBody, s.host.Config.Timeouts.Body)
	}
}
