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
	if s.tooLong() {
		s.becomeStream(false)
		return
	}
	s.grow()
}

// onBody is called with a part of the body.
func (s *call) onBody(b []byte, end bool) {
	c := s.c
	c.keepalive.useful = true
	if s.flow != nil {
		s.flow.onBody(b, end)
		return
	}
	in, total := s.response.BodyBuffer, 0
	if s.response.DeclaredLength > 0 {
		total = int(min(s.response.DeclaredLength, c.shard.MessageLimits.Message))
	}
	c.shard.Buffers.Append(in, b, total)
	s.size += len(b)
	switch {
	case s.tooLong():
		s.owed += len(b)
		s.becomeStream(end)
	case end:
		s.finish()
	default:
		c.h2.Consumed(s.st, len(b))
		s.grow()
	}
}

// grow notes that a response has grown. What that means is decided once the codec has read all
// input: mostly the response is complete then.
func (s *call) grow() {
	if !s.grown {
		s.grown = true
		s.c.partial = append(s.c.partial, s)
	}
}

func (c *conn) forgetPartial(s *call) {
	if i := slices.Index(c.partial, s); i >= 0 {
		c.partial[i] = nil
	}
}

// watchPartial looks at the responses that have grown and are not complete.
func (c *conn) watchPartial() {
	for i := 0; i < len(c.partial) && c.state != closed; i++ {
		s := c.partial[i]
		if s == nil {
			continue
		}
		s.grown = false
		c.partial[i] = nil
		s.response.Charge()
		s.checkStream()
	}
	c.partial = c.partial[:0]
}

// tooLong reports whether the body is longer than limits.message, as announced or so far.
func (s *call) tooLong() bool {
	return max(s.response.DeclaredLength, int64(s.size)) > s.c.shard.MessageLimits.Message && s.hasBody()
}

// hasBody reports whether the response may have a body.
func (s *call) hasBody() bool {
	return http1.HasBody(&s.response.Response, http1.ResponseFlags{ToHead: s.attempt.ToHead()})
}

// checkStream makes an incomplete response a stream if it must be one, or later.
func (s *call) checkStream() {
	after, res := race.StreamAfter, s.response
	switch {
	case !s.c.shard.Process.Streams, !s.hasBody():
		return
	case protocol.Interactive(res.Headers):
		after = race.GRPCStreamAfter
	case res.DeclaredLength >= 0 || s.pause.Armed():
		return
	case res.IsFeed():
		s.becomeStream(false)
		return
	}
	s.c.shard.Loop.After(after, &s.pause)
}

// onPause is called when a response has been incomplete for long.
func (s *call) onPause() { s.becomeStream(false) }

// takeTrailers copies the trailers behind the body. It reports whether there is memory for them.
func (s *call) takeTrailers(hs []protocol.Header) bool {
	c, res, size := s.c, s.response, protocol.TextOf(hs)
	if res.BodyBuffer == nil {
		res.BodyBuffer = c.shard.Buffers.Get(0)
	}
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
	s.c.shard.Loop.Defer(&s.c.out)
	s.fail(f)
}

var _ race.Carrier = (*call)(nil)
