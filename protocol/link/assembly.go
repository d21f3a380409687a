package link

import (
	"maps"
	"slices"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/valyala/bytebufferpool"
)

// assembly puts the messages together whose body arrives in DATA frames, and grants the credit for these.
type assembly struct {
	buffers  *protocol.Buffers
	messages map[uint64]*incoming
	held     int       // bytes of memory of messages
	sink     *incoming // the message of the DATA frame that arrives; nil skips the frame
	free     []*incoming

	window, consumed uint32 // bytes the peer may still send, and bytes received since takeConsumed
}

// incoming is a message in reassembly.
type incoming struct {
	id    uint64
	typ   frameType
	total int                        // length of the whole message
	buf   *bytebufferpool.ByteBuffer // the part that has arrived
	seen  time.Duration              // when late first saw it; 0 means not yet
}

// admit begins the reassembly of message id, of which first has arrived.
func (a *assembly) admit(t frameType, id uint64, total int, first []byte) {
	var s *incoming
	if n := len(a.free); n > 0 {
		s = a.free[n-1]
		a.free = a.free[:n-1]
	} else {
		s = &incoming{}
	}
	*s = incoming{id: id, typ: t, total: total, buf: a.buffers.Get(0)}
	a.add(s, first)
	if a.messages == nil {
		a.messages = make(map[uint64]*incoming)
	}
	a.messages[id] = s
}

func (a *assembly) add(s *incoming, b []byte) {
	before := protocol.Held(s.buf)
	a.buffers.Append(s.buf, b, s.total+traceText)
	a.held += protocol.Held(s.buf) - before
}

// begin begins a DATA frame for message id. A message that is not in reassembly has ended while the frame was in
// flight: the frame is skipped.
func (a *assembly) begin(id uint64, length int) error {
	if uint32(length) > a.window {
		return ErrFlowControl
	}
	s := a.messages[id]
	if s != nil && length > s.total-len(s.buf.B) {
		return ErrOverrun
	}
	a.window -= uint32(length)
	a.consumed += uint32(length) // the whole frame: the rest of it will follow
	a.sink = s
	return nil
}

// take takes the next part of the DATA frame, which ends with b if last. It returns the message that is complete now,
// or nil.
func (a *assembly) take(b []byte, last bool) *incoming {
	s := a.sink
	if s == nil {
		return nil
	}
	a.add(s, b)
	if last {
		a.sink = nil
	}
	if len(s.buf.B) < s.total {
		return nil
	}
	return s
}

// remove takes s out of reassembly. The caller owns the memory that it returns.
func (a *assembly) remove(s *incoming) *bytebufferpool.ByteBuffer {
	buf := s.buf
	delete(a.messages, s.id)
	a.held -= protocol.Held(buf)
	if a.sink == s {
		a.sink = nil // the rest of its frame is skipped
	}
	*s = incoming{}
	if len(a.free) < maxFree {
		a.free = append(a.free, s)
	}
	return buf
}

// drop drops message id, if it is in reassembly.
func (a *assembly) drop(id uint64) {
	if s := a.messages[id]; s != nil {
		a.buffers.Put(a.remove(s))
	}
}

// ids returns the ids of all messages, rising.
func (a *assembly) ids() []uint64 { return slices.Sorted(maps.Keys(a.messages)) }

// late returns the ids of the messages that are incomplete for age, rising. The time of a message begins when late
// first sees it.
func (a *assembly) late(now, age time.Duration) (ids []uint64) {
	for id, s := range a.messages {
		if s.seen == 0 {
			s.seen = now
		} else if now-s.seen >= age {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// largest returns the message with the most memory, and its bytes, or 0 and 0 if there is none.
func (a *assembly) largest() (id uint64, n int) {
	for at, s := range a.messages {
		if held := protocol.Held(s.buf); held > n || held == n && at < id {
			id, n = at, held
		}
	}
	return id, n
}

// takeConsumed returns the bytes received since the last call, and opens the window for as many more.
func (a *assembly) takeConsumed() uint32 {
	n := a.consumed
	a.consumed = 0
	a.window += n
	return n
}
