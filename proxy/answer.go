package proxy

import (
	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
)

// answer is one response in memory, with what its slices alias. It has one
// owner at a time, who calls Release.
type answer struct {
	protocol.Response
	codec protocol.Codec
	w     *shard
	pool  *pool
	head  *bytebufferpool.ByteBuffer
	body  *bytebufferpool.ByteBuffer
	held  int           // bytes of both, and of what stream has, counted against limits.buffered
	date  [dateLen]byte // the value of a Date that was added

	stream *StreamSource // of what body does not hold; nil: Body is all
	token  link.Token    // that StreamToken points to
}

// hold counts the answer's memory, again when it has grown.
func (ans *answer) hold() {
	n := protocol.Held(ans.head) + protocol.Held(ans.body)
	if ans.stream != nil {
		n += protocol.Held(ans.stream.Buffer)
	}
	ans.w.charge(n - ans.held)
	ans.held = n
}

// size is how many bytes the answer is, or is here of it.
func (ans *answer) size() int {
	n := length(ans.head) + length(ans.body)
	if ans.stream != nil {
		n += length(ans.stream.Buffer)
	}
	return n
}

// takeStream makes the stream the caller's.
func (ans *answer) takeStream() *StreamSource {
	src := ans.stream
	ans.stream = nil
	return src
}

// Release gives the answer's memory back, and up a stream that nobody took.
func (ans *answer) Release() {
	if ans.stream != nil {
		ans.takeStream().Close()
	}
	if ans.head != nil {
		ans.w.buffers.Put(ans.head)
	}
	if ans.body != nil {
		ans.w.buffers.Put(ans.body)
	}
	ans.w.charge(-ans.held)
	ans.head, ans.body, ans.held, ans.codec = nil, nil, 0, protocol.CodecHTTP
	ans.Response.Reset()
	if p := ans.pool; len(p.answers) < maxFree {
		p.answers = append(p.answers, ans)
	}
}
