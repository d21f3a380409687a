package http2

import (
	"slices"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
)

// onHead is called when the head has arrived, and more follows.
func (s *call) onHead() {
	s.response.BodyBuffer = s.c.shard.Buffers.Get(0)
	s.least = s.response.DeclaredLength
	if s.tooLong() {
		s.streamOrHold()
		return
	}
	s.c.partial.add(s)
}

// onBody is called with a part of the body.
func (s *call) onBody(b []byte, end bool) {
	c := s.c
	c.keepalive.useful = true
	if s.flow != nil {
		s.flow.onBody(b, end)
		return
	}
	if s.size == 0 && s.least < 0 {
		s.least = protocol.LeastGRPC(s.response.Headers, b)
	}
	c.shard.Buffers.Append(s.response.BodyBuffer, b, int(min(s.least, c.shard.MessageLimits.Message)))
	s.size += len(b)
	if !end {
		c.h2.Consumed(s.st, len(b))
	}
	switch {
	case s.tooLong():
		s.becomeStream(end)
	case end:
		s.finish()
	default:
		c.partial.add(s)
	}
}

// partial has the calls whose responses have grown and are not complete. What that means is decided once the codec has
// read all input: mostly the response is complete then.
type partial struct {
	calls []*call // nil for one that is over
}

// add notes that the response of s has grown.
func (p *partial) add(s *call) {
	if !s.grown {
		s.grown = true
		p.calls = append(p.calls, s)
	}
}

// remove forgets s.
func (p *partial) remove(s *call) {
	if s.grown {
		s.grown = false
		p.calls[slices.Index(p.calls, s)] = nil
	}
}

// check looks at the responses that are not complete.
func (p *partial) check() {
	for i := 0; i < len(p.calls); i++ {
		if s := p.calls[i]; s != nil {
			s.grown, p.calls[i] = false, nil
			s.response.Charge()
			s.checkStream()
		}
	}
	p.calls = p.calls[:0]
}

// tooLong reports whether the body is longer than limits.message, as announced or so far.
func (s *call) tooLong() bool {
	return max(s.least, int64(s.size)) > s.c.shard.MessageLimits.Message && s.hasBody()
}

// hasBody reports whether the response may have a body.
func (s *call) hasBody() bool {
	return http1.HasBody(&s.response.Response, http1.ResponseFlags{ToHead: s.attempt.Outgoing().ToHead()})
}

// checkStream makes an incomplete response a stream if it must be one, or later.
func (s *call) checkStream() {
	after, res := race.StreamAfter, s.response
	switch {
	case !s.c.shard.Process.Streams, !s.hasBody():
		return
	case s.held:
		s.streamOrHold()
		return
	case protocol.Interactive(res.Headers):
		after = race.GRPCStreamAfter
	case res.DeclaredLength >= 0 || s.pause.Armed():
		return
	case res.IsFeed():
		s.streamOrHold()
		return
	}
	s.c.shard.Loop.After(after, &s.pause)
}

// onPause is called when a response has been incomplete for long.
func (s *call) onPause() { s.streamOrHold() }

// streamOrHold passes an incomplete response on that must be a stream, or holds its head as long as the race wants.
func (s *call) streamOrHold() {
	if s.size == 0 && s.c.shard.Process.Streams {
		if wait := s.attempt.HoldsHead(); wait > 0 {
			s.held = true
			s.c.shard.Loop.After(wait, &s.pause)
			return
		}
	}
	s.becomeStream(false)
}

// takeTrailers copies the trailers behind the body. It reports whether there is memory for them.
func (s *call) takeTrailers(hs []protocol.Header) bool {
	c, res, size := s.c, s.response, protocol.TextOf(hs)
	buf := res.BodyBuffer
	if !c.mayHold(protocol.RoomOf(len(buf.B)+size) - protocol.Held(buf)) {
		return false
	}
	c.shard.Buffers.Reserve(buf, size, 0)
	buf.B = slices.Grow(buf.B, size)
	res.Trailers = protocol.CopyFields(res.Trailers, hs, buf)
	return true
}

// finish passes the complete response to its attempt.
func (s *call) finish() {
	c, res := s.c, s.response
	if res.BodyBuffer != nil {
		res.Body = res.BodyBuffer.B[:s.size:s.size]
	}
	s.endRequest()
	s.response = nil
	c.pool.endpoint.ReadLoad(c.shard.Loop.Now(), res.Headers)
	res.Receive(protocol.MinorHTTP2)
	res.Charge()
	a := s.detach()
	c.onFree()
	a.Respond(res)
}

// drop resets the stream, and fails its attempt with f.
func (s *call) drop(f *fault.Failure) {
	s.reset(http2.Cancel)
	s.fail(f)
}

var _ race.Carrier = (*call)(nil)
