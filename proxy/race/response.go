package race

import (
	"bytes"
	"slices"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/shard"
)

// Response is one response in memory, with the buffers that its slices alias. It has
// one owner at a time, who calls Release.
type Response struct {
	protocol.Response
	Codec      protocol.Codec
	GRPC       bool              // it is the response to a gRPC call
	Code       protocol.GRPCCode // the outcome of that call
	shard      *shard.Shard
	pool       *Responses
	HeadBuffer *bytebufferpool.ByteBuffer
	BodyBuffer *bytebufferpool.ByteBuffer
	Held       int                 // bytes of both, of the fields and of Source that the budget knows of
	shared     *shard.Memory       // that other responses have, too; nil means none
	date       [shard.DateLen]byte // the value of an added Date
	marked     bool                // the fields are never indexed, see Borrow

	Source *StreamSource // where the rest of the body comes from; nil means Body is complete
	Token  link.Token    // memory of StreamToken
}

// maxFreeResponses bounds the free list; the garbage collector gets the rest.
const maxFreeResponses = 4096

// Responses is the free list of responses of one loop.
type Responses struct {
	Shard *shard.Shard
	free  []*Response
}

// New returns an empty response, without buffers. The caller owns it.
func (p *Responses) New() *Response {
	n := len(p.free)
	if n == 0 {
		return &Response{shard: p.Shard, pool: p, Response: protocol.Response{DeclaredLength: -1}}
	}
	res := p.free[n-1]
	p.free = p.free[:n-1]
	return res
}

// Charge counts the response's memory in the budget; it is called again when that has grown.
func (res *Response) Charge() {
	n := protocol.HeldBy(res.HeadBuffer, res.BodyBuffer, res.Headers, res.Trailers)
	if res.Source != nil {
		n += protocol.Held(res.Source.Buffer)
	}
	res.shard.Recount(&res.Held, n)
}

// Buffered returns the bytes of memory that the response holds, with its part of those that it shares.
func (res *Response) Buffered() int {
	n := res.Held
	if res.shared != nil {
		n += res.shared.Part()
	}
	return n
}

// Shares reports whether other responses may have the same memory.
func (res *Response) Shares() bool { return res.shared != nil }

// Size is the length of the response in bytes, as far as it has arrived.
func (res *Response) Size() int {
	n := protocol.Len(res.HeadBuffer) + protocol.Len(res.BodyBuffer)
	switch {
	case res.Fields != nil:
		n = len(res.Fields) + len(res.Body)
	case res.shared != nil, n == 0: // an answer of the configuration
		n = len(res.Reason) + len(res.Body) + protocol.TextOf(res.Headers)
	}
	if res.Source != nil {
		n += protocol.Len(res.Source.Buffer)
	}
	return n
}

// ReadGRPC notes the outcome if res is the response to a gRPC call. A response with another status
// than 200 comes from something on the way that speaks HTTP. If the outcome comes later, with the end
// of a stream, awaits reports whether the endpoint is judged then.
func (res *Response) ReadGRPC(req *protocol.Request) (awaits bool) {
	switch {
	case res.Status != 200:
		if res.Code, res.GRPC = protocol.GRPCStatus(&res.Response); !res.GRPC && protocol.IsGRPC(req.Headers) {
			res.Code, res.GRPC = protocol.GRPCOfHTTP(res.Status), true
		}
	case res.Source == nil:
		res.Code, res.GRPC = protocol.GRPCStatus(&res.Response)
	case protocol.IsGRPC(res.Headers):
		return res.Source.Stream.await()
	}
	return false
}

// Outcome is the status that the response counts as: its own, or what the gRPC code stands for.
func (res *Response) Outcome() int {
	if res.GRPC && res.Status == 200 {
		return fault.StatusOfGRPC(res.Code)
	}
	return res.Status
}

// Failed reports whether the response says that the application has failed.
func (res *Response) Failed() bool { return res.Outcome() >= 500 }

// Alias returns a response like res, whose memory they share from now on. res is no stream and has no
// trailers. It may be released first.
func (res *Response) Alias() *Response {
	if res.shared == nil {
		res.shared = new(shard.Memory)
		res.shared.Share(res.shard, nil, res.HeadBuffer, res.BodyBuffer)
		res.HeadBuffer, res.BodyBuffer = nil, nil
		res.Charge()
	}
	c := res.pool.New()
	c.shared = res.shared.Use()
	c.Status, c.RPC, c.Reason, c.Body, c.DeclaredLength = res.Status, res.RPC, res.Reason, res.Body, res.DeclaredLength
	c.Codec = res.Codec
	for _, h := range res.Headers {
		if len(h.Value) > 0 && &h.Value[0] == &res.date[0] {
			c.date = res.date
			h.Value = c.date[:]
		}
		c.Headers = append(c.Headers, h)
	}
	c.Charge()
	return c
}

// AppendFields appends the headers as lines of HTTP/1.1, see protocol.Response.Fields, but for those that
// skip reports and those of one connection. ok is false if a header can't be sent. Filters call AppendFields, as they
// know no codec.
func (res *Response) AppendFields(dst []byte, skip func(name []byte) bool) (lines []byte, ok bool) {
	return http1.AppendFields(dst, &res.Response, skip)
}

// EachField calls do for each of the lines of AppendFields.
func EachField(lines []byte, do func(h protocol.Header)) {
	for len(lines) > 0 {
		line, rest, _ := bytes.Cut(lines, crlf)
		name, value, _ := bytes.Cut(line, colon)
		do(protocol.Header{Name: name, Value: value})
		lines = rest
	}
}

var crlf, colon = []byte("\r\n"), []byte(": ")

// Borrow makes res a response with lines of AppendFields in place of headers. Their memory stays with the
// filter, which must not change it until the caller has the response. So does that of body, unless it is
// in shared. The lines have no marks: neverIndexed says that Own marks all fields, see protocol.Header.
func (res *Response) Borrow(status int, fields, body []byte, shared *shard.Memory, neverIndexed bool) {
	res.Status, res.Fields, res.Body, res.marked = status, fields, body, neverIndexed
	if shared != nil {
		res.shared = shared.Use()
	}
}

// Own gives a borrowed response memory of its own for what is not shared, and headers in place of lines.
// It must be called before the headers are read, before the response is kept, and before another protocol
// than HTTP/1.1 encodes it.
func (res *Response) Own() {
	if res.Fields == nil {
		return
	}
	n := len(res.Fields)
	if res.shared != nil {
		res.HeadBuffer = res.shard.Buffers.GetRoom(n)
		res.HeadBuffer.B = append(res.HeadBuffer.B, res.Fields...)
	} else {
		res.HeadBuffer = res.shard.Buffers.GetRoom(n + len(res.Body))
		res.HeadBuffer.B = append(append(res.HeadBuffer.B, res.Fields...), res.Body...)
		res.Body = res.HeadBuffer.B[n:len(res.HeadBuffer.B):len(res.HeadBuffer.B)]
	}
	EachField(res.HeadBuffer.B[:n], func(h protocol.Header) {
		if !protocol.EqualFold(h.Name, "content-length") {
			h.NeverIndexed = res.marked
			res.Headers = append(res.Headers, h)
		}
	})
	res.Fields = nil
	res.Charge()
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
	if res.shared != nil {
		res.shared.Release()
		res.shared = nil
	}
	res.shard.Recount(&res.Held, 0)
	res.Codec, res.GRPC = protocol.CodecHTTP, false
	res.Response.Reset()
	res.Headers, res.Trailers = protocol.KeepFields(res.Headers), protocol.KeepFields(res.Trailers)
	if p := res.pool; len(p.free) < maxFreeResponses {
		p.free = append(p.free, res)
	}
}

// feedTypes are media types of bodies whose parts are useful at once, often without an end.
var feedTypes = []string{"text/event-stream", "multipart/x-mixed-replace", "application/x-ndjson"}

// IsFeed reports whether parts of the body are useful before its end, by its media type.
func (res *Response) IsFeed() bool {
	value, _, _ := bytes.Cut(protocol.Find(res.Headers, "content-type"), []byte(";"))
	value = bytes.TrimSpace(value)
	return slices.ContainsFunc(feedTypes, func(t string) bool { return protocol.EqualFold(value, t) })
}

// Receive prepares the headers of an endpoint's response over HTTP/1.minor, or over HTTP/2 if minor
// is MinorHTTP2. It removes headers that only a sidecar may set, and adds Date if there is none, and
// Via if the configuration says so. login reports whether the response is about the login of its
// connection, which must then carry no other request.
func (res *Response) Receive(minor int) (login bool) {
	kept, dated, login := protocol.FromEndpoint(res.Headers)
	res.Headers, res.Trailers = kept, protocol.WithoutOwn(res.Trailers)
	if res.shard.Via {
		res.Headers = append(kept, protocol.Header{Name: protocol.NameVia, Value: protocol.ViaValues[minor], Valid: true})
	}
	if !dated {
		res.AddDate()
	}
	return login
}

// AddDate adds a Date to a response without one (RFC 9110 section 6.6.1).
func (res *Response) AddDate() {
	if now := res.shard.DateValue(); now != nil {
		copy(res.date[:], now)
		res.Headers = append(res.Headers, protocol.Header{Name: protocol.NameDate, Value: res.date[:], Valid: true})
	}
}
