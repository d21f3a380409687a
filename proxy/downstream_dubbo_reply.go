package proxy

import (
	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol/dubbo"
)

var _ replier = (*dubboSession)(nil)

// encode implements replier.
func (s *dubboSession) encode(_ *exchange, ans *answer) *Failure {
	if ans.RPC == 0 || ans.stream != nil { // not of Dubbo
		return FailMalformed
	}
	return nil
}

// reply implements replier.
func (s *dubboSession) reply(ex *exchange, ans *answer) {
	s.remove(ex)
	if !ex.req.OneWay {
		out := s.outgoing()
		out.B = dubbo.AppendFrame(out.B, &dubbo.Frame{
			Serialization: serializationOf(ans.codec), Status: dubbo.Status(ans.RPC), ID: int64(ex.tag), Body: ans.Body,
		})
	}
	ans.Release()
}

// fail implements replier.
func (s *dubboSession) fail(ex *exchange, f *Failure) {
	s.remove(ex)
	if !ex.req.OneWay {
		out := s.outgoing()
		out.B = dubbo.AppendFailure(out.B, serializationOf(ex.req.Codec), int64(ex.tag), dubboStatus(f), f.Code, f.Text)
	}
}

// over implements replier.
func (s *dubboSession) over(*exchange) {}

// remove takes a call that is being answered out of those that are out. The last
// one gets its place.
func (s *dubboSession) remove(ex *exchange) {
	last := len(s.calls) - 1
	moved := s.calls[last]
	s.calls[ex.place], s.calls[last] = moved, nil
	moved.place = ex.place
	s.calls = s.calls[:last]
}

// outgoing is where what is to leave at the end of the turn is put.
func (s *dubboSession) outgoing() *bytebufferpool.ByteBuffer {
	if s.replies != nil && len(s.replies.B) > batchSize {
		s.write()
	}
	if s.replies == nil {
		s.replies = s.w.buffers.Get(0)
		s.w.loop.Defer(&s.out)
	}
	return s.replies
}

// flush writes what was answered, and closes a draining connection when that was
// all.
func (s *dubboSession) flush() {
	s.write()
	s.finish()
}

func (s *dubboSession) write() {
	if s.replies == nil {
		return
	}
	s.outbound.write(s.replies.B)
	s.w.buffers.Put(s.replies)
	s.replies = nil
	s.outbound.watch()
}

// dubboStatus is the status that tells a Dubbo caller of f.
func dubboStatus(f *Failure) dubbo.Status {
	switch f {
	case FailMalformed:
		return dubbo.StatusBadResponse
	case FailNotConvertible:
		return dubbo.StatusServiceNotFound
	}
	return dubbo.StatusOf(f.Status)
}

// crowded tells that a call of so many bytes is not to be received: memory is short,
// and the connection is over its share.
func (s *dubboSession) crowded(length int) bool {
	return s.w.shared.budget.full(s.held) && s.piles(length, len(s.calls)+1)
}

func (s *dubboSession) greedy(ex *exchange) bool { return s.piles(ex.held, len(s.calls)) }

// piles lets small calls pass, for a connection carries those of many callers: up to
// a share more in all.
func (s *dubboSession) piles(length, calls int) bool {
	share := s.w.share()
	return length > share/calls && s.weight() > share
}

func (s *dubboSession) weight() int {
	n := s.held + s.outbound.counted
	for _, ex := range s.calls {
		n += ex.weight()
	}
	return n
}

// relieve gives up the call that holds the most.
func (s *dubboSession) relieve() bool {
	var greediest *exchange
	most := 0
	for _, ex := range s.calls {
		if n := ex.weight(); n > most {
			greediest, most = ex, n
		}
	}
	if most < shedLeast {
		return false
	}
	greediest.shed()
	return true
}

func (s *dubboSession) cut() {
	out := s.calls
	s.close()
	for _, ex := range out {
		ex.forsake()
	}
	s.w.remove(s)
	s.outbound.stop()
	s.conn.Close()
}
