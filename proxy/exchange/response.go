package exchange

import (
	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/shard"
)

// Response is one response in memory, with the buffers that its slices alias. It has
// one owner at a time, who calls Release.
type Response struct {
	protocol.Response
	Codec      protocol.Codec
	shard      *shard.Shard
	pool       *Pool
	HeadBuffer *bytebufferpool.ByteBuffer
	BodyBuffer *bytebufferpool.ByteBuffer
	Held       int                 // bytes of both and of Source that the budget knows of
	date       [shard.DateLen]byte // the value of an added Date

	Source *StreamSource // where the rest of the body comes from; nil means Body is complete
	Token  link.Token    // memory of StreamToken
}

// Hold charges the response's memory to the budget; it is called again when that has grown.
func (res *Response) Hold() {
	n := protocol.Held(res.HeadBuffer) + protocol.Held(res.BodyBuffer)
	if res.Source != nil {
		n += protocol.Held(res.Source.Buffer)
	}
	res.shard.Recount(&res.Held, n)
}

// size is the length of the response in bytes, as far as it has arrived.
func (res *Response) size() int {
	n := bufferLen(res.HeadBuffer) + bufferLen(res.BodyBuffer)
	if res.Source != nil {
		n += bufferLen(res.Source.Buffer)
	}
	return n
}

// TakeSource passes the stream's ownership to the caller.
func (res *Response) TakeSource() *StreamSource {
	src := res.Source
	res.Source = nil
	return src
}

// StreamHead returns how the body is framed if it is a stream.
func (res *Response) StreamHead() http1.Head {
	if res.DeclaredLength < 0 {
		return http1.Head{Framing: http1.Chunked}
	}
	return http1.Head{Framing: http1.FixedLength, Length: res.DeclaredLength}
}

// Release gives the memory back. It closes a stream that nobody took.
func (res *Response) Release() {
	if res.Source != nil {
		res.TakeSource().Close()
	}
	res.shard.Buffers.Release(&res.HeadBuffer)
	res.shard.Buffers.Release(&res.BodyBuffer)
	res.shard.Recount(&res.Held, 0)
	res.Codec = protocol.CodecHTTP
	res.Response.Reset()
	if p := res.pool; len(p.responses) < maxFree {
		p.responses = append(p.responses, res)
	}
}

// AddVia adds Via, and Date if there is none, to an endpoint's response over HTTP/1.minor. It
// removes headers that only a sidecar may set.
func (res *Response) AddVia(minor int) {
	kept, dated := protocol.FromEndpoint(res.Headers)
	res.Headers = append(kept, protocol.Header{Name: protocol.NameVia, Value: protocol.ViaValues[minor&1]})
	if !dated {
		res.AddDate()
	}
}

// AddDate adds a Date to a response without one (RFC 9110 section 6.6.1).
func (res *Response) AddDate() {
	if now := res.shard.DateValue(); now != nil {
		copy(res.date[:], now)
		res.Headers = append(res.Headers, protocol.Header{Name: protocol.NameDate, Value: res.date[:]})
	}
}
