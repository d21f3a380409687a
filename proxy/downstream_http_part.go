package proxy

import (
	"bytes"

	"github.com/remora-proxy/remora/protocol/http1"
)

// streamHead says how the body of ans, a stream, is framed.
func streamHead(ans *answer) http1.Head {
	if ans.DeclaredLength < 0 {
		return http1.Head{Framing: http1.Chunked}
	}
	return http1.Head{Framing: http1.FixedLength, Length: ans.DeclaredLength}
}

// replyStream answers the first call with ans, whose body is a stream. It is the
// connection's last answer: the body goes to the client as it comes, off the
// loop.
func (s *httpSession) replyStream(ans *answer) {
	call := &s.calls[0]
	call.ex, call.last = nil, true
	s.parting = &StreamAnswer{
		Head: bytes.Clone(s.w.scratch), Source: ans.takeStream(),
		Chunks: ans.DeclaredLength < 0 && call.minor >= 1,
	}
	ans.Release()
	s.state = httpClosed
	s.clock.stop()
	s.dropInput()
	s.account()
	s.part()
}

// part hands the connection over with its last answer, once those before it have
// left. Until then the write timeout watches the client.
func (s *httpSession) part() {
	client, err := s.conn.Detach()
	switch err {
	case nil:
		a := s.parting
		s.parting = nil
		s.w.stats.Left[LeftAnswer]++
		s.close()
		s.w.streamer.Answer(client, a)
	case ErrDetachBuffered:
		s.w.loop.After(httpBehind, &s.slow)
	case ErrDetachClosed: // OnClose is to come
	default:
		s.parting.Source.Refuse(FailTooLarge)
		s.parting = nil
		s.w.stats.failed(FailTooLarge)
		s.fail(nil, FailTooLarge)
	}
}

func (s *httpSession) dropParting() {
	if s.parting != nil {
		s.parting.Source.Close()
		s.parting = nil
	}
}

// onSlow looks again at a client that was behind.
func (s *httpSession) onSlow() {
	if s.parting != nil {
		s.part()
		return
	}
	s.pump()
}
