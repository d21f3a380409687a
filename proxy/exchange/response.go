package exchange

import (
	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/shard"
)

// Response is one response in memory, with what its slices alias. It has one
// owner at a time, who calls Release.
type Response struct {
	protocol.Response
	Codec      protocol.Codec
	shard      *shard.Shard
	pool       *Pool
	HeadBuffer *bytebufferpool.ByteBuffer
	BodyBuffer *bytebufferpool.ByteBuffer
	Held       int                 // bytes of both, and of what stream has, counted against limits.buffered
	date       [shard.DateLen]byte // the value of a Date that was added

	Source *StreamSource // of what body does not hold; nil: Body is all
	Token  link.Token    // that StreamToken points to
}

// Hold counts the answer's memory, again when it has grown.
func (ans *Response) Hold() {
	n := protocol.Held(ans.HeadBuffer) + protocol.Held(ans.BodyBuffer)
	if ans.Source != nil {
		n += protocol.Held(ans.Source.Buffer)
	}
	ans.shard.Charge(n - ans.Held)
	ans.Held = n
}

// size is how many bytes the answer is, or is here of it.
func (ans *Response) size() int {
	n := bufferLen(ans.HeadBuffer) + bufferLen(ans.BodyBuffer)
	if ans.Source != nil {
		n += bufferLen(ans.Source.Buffer)
	}
	return n
}

// TakeSource makes the stream the caller's.
func (ans *Response) TakeSource() *StreamSource {
	src := ans.Source
	ans.Source = nil
	return src
}

// Release gives the answer's memory back, and up a stream that nobody took.
func (ans *Response) Release() {
	if ans.Source != nil {
		ans.TakeSource().Close()
	}
	if ans.HeadBuffer != nil {
		ans.shard.Buffers.Put(ans.HeadBuffer)
	}
	if ans.BodyBuffer != nil {
		ans.shard.Buffers.Put(ans.BodyBuffer)
	}
	ans.shard.Charge(-ans.Held)
	ans.HeadBuffer, ans.BodyBuffer, ans.Held, ans.Codec = nil, nil, 0, protocol.CodecHTTP
	ans.Response.Reset()
	if p := ans.pool; len(p.responses) < maxFree {
		p.responses = append(p.responses, ans)
	}
}

// AddVia adds to an answer that came over HTTP/1.minor what its recipient owes
// to those it is passed on to: Via, and Date if there is none.
func (ans *Response) AddVia(minor int) {
	dated := protocol.Find(ans.Headers, "date") != nil
	ans.Headers = append(ans.Headers, protocol.Header{Name: protocol.NameVia, Value: protocol.ViaValues[minor&1]})
	if !dated {
		ans.AddDate()
	}
}

// AddDate adds a Date to an answer that has none (RFC 9110 section 6.6.1).
func (ans *Response) AddDate() {
	if now := ans.shard.DateValue(); now != nil {
		copy(ans.date[:], now)
		ans.Headers = append(ans.Headers, protocol.Header{Name: protocol.NameDate, Value: ans.date[:]})
	}
}

// AddRequestID adds the request's id to the answer for its client, unless the
// application has put one there.
func (ans *Response) AddRequestID(id []byte) {
	if protocol.Find(ans.Headers, "x-request-id") == nil {
		ans.Headers = append(ans.Headers, protocol.Header{Name: protocol.NameRequestID, Value: id})
	}
}
