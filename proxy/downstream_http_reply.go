package proxy

import (
	"time"

	"github.com/remora-proxy/remora/protocol/http1"
)

// pump starts the next request when none is in progress.
func (s *httpSession) pump() {
	if s.pumping {
		return
	}
	s.pumping = true
	for !s.busy && len(s.calls) > 0 && !s.behind() {
		if s.calls[0].leaves && s.depart() {
			break
		}
		s.busy = true
		ex := s.calls[0].ex
		if f := s.calls[0].refuse; f != nil {
			s.w.stats.failed(f)
			logRefused(&s.w.access, s, ex, f)
			s.fail(ex, f)
			if ex != nil {
				s.w.pool.recycle(ex)
			}
			continue
		}
		// Of one that was to leave, or could have been passed on, the route was
		// found when its head was here: a reload meanwhile does not change that.
		r := ex.route
		if r == nil {
			r = s.routed(ex, s.calls[0].minor)
		}
		ex.route = nil // until begin has admitted it
		ex.begin(r, s.door)
	}
	s.pumping = false
}

// routed takes in a request that came over HTTP/1.minor and finds its route, nil
// if there is none.
func (s *httpSession) routed(ex *exchange, minor int) *route {
	arrive(ex, &s.w.ids, &s.origin, minor)
	r := s.door.direct
	if r == nil {
		r = s.w.router.find(&ex.req)
	}
	if r != nil {
		rewritePath(r, ex)
	}
	return r
}

// behind tells whether the client has so much left to read that its next request
// has to wait, one that is to leave for all of it; pump is called again then.
func (s *httpSession) behind() bool {
	room := httpOutbound
	if s.calls[0].leaves {
		room = 0
	}
	if s.conn.Buffered() <= room {
		return false
	}
	s.w.loop.After(httpBehind, &s.slow)
	return true
}

const (
	// httpOutbound is how much may wait for a client to read it before the next
	// of its pipelined requests begins.
	httpOutbound = 256 << 10

	// httpBehind is how long a session waits to look again.
	httpBehind = 2 * time.Millisecond
)

// encode implements replier: the head waits for reply in the loop's scratch memory.
func (s *httpSession) encode(ex *exchange, ans *answer) *Failure {
	ans.identify(ex.requestID)
	out := s.w.scratch[:0]
	if ans.stream != nil {
		head := streamHead(ans)
		out = http1.AppendStreamResponse(out, &ans.Response, &head, s.calls[0].minor)
	} else {
		out = http1.AppendResponseHead(out, &ans.Response, s.closing())
	}
	s.w.scratch = out
	if len(out) == 0 {
		return FailMalformed
	}
	return nil
}

func (s *httpSession) reply(_ *exchange, ans *answer) {
	if ans.stream != nil {
		s.replyStream(ans)
		return
	}
	out, flags := s.w.scratch, s.calls[0].flags()
	if len(ans.Body) > http1.WriteTogether && len(ans.Trailers) == 0 && http1.HasBody(&ans.Response, flags) {
		s.outbound.write(out)
		s.outbound.write(ans.Body)
	} else {
		out = http1.AppendResponseBody(out, &ans.Response, flags)
		s.outbound.write(out)
	}
	s.w.keepScratch(out)
	ans.Release()
	s.answered()
}

// closing decides whether the connection closes after the answer to the first call,
// and says how that is to be framed.
func (s *httpSession) closing() http1.ResponseFlags {
	call := &s.calls[0]
	call.last = call.last || s.last || s.w.shared.draining.Load()
	return call.flags()
}

// flags says how the answer is to be framed.
func (c *httpCall) flags() http1.ResponseFlags {
	return http1.ResponseFlags{Minor: c.minor, Close: c.last, ToHead: c.toHead}
}

// fail answers with f. ex is nil when what came was no request.
func (s *httpSession) fail(ex *exchange, f *Failure) {
	var id []byte
	if ex != nil {
		id = ex.requestID
	}
	out := appendFailure(s.w.scratch[:0], f, s.w.dateValue(), id, s.closing())
	s.outbound.write(out)
	s.w.keepScratch(out)
	s.answered()
}

func (s *httpSession) over(*exchange) {}

// answered moves on to the next request after the first has its answer.
func (s *httpSession) answered() {
	last := s.calls[0].last
	s.busy = false
	s.outbound.watch()
	n := copy(s.calls, s.calls[1:])
	s.calls[n] = httpCall{}
	s.calls = s.calls[:n]
	if last {
		s.close()
		s.conn.Drain()
		return
	}
	if n == 0 && s.state == httpHead && s.blank() {
		s.clock.set(s.w.cfg.Timeouts.Idle)
	}
	if s.state == httpBody {
		s.proceed()
	}
	s.pump()
}

// proceed lets a client that waits for it send the body, once the requests before are
// answered. From then on it has timeouts.body for that.
func (s *httpSession) proceed() {
	if s.head.ExpectContinue && len(s.calls) == 0 {
		s.outbound.write([]byte(http1.Continue))
		s.head.ExpectContinue = false
		s.clock.start(clockBody, s.w.cfg.Timeouts.Body)
	}
}
