package httpstream

import (
	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/loop"
)

// Event is what Next has found.
type Event uint8

const (
	Pending Event = iota // no more text has been written; ready of the pipe says when
	Interim              // Response is an interim one; the head of the response follows
	Head                 // Request or Response is set
	Piece                // Piece returns a part of the body
	End                  // the message is complete; Trailers returns what followed it
	Broken               // the goroutine gave up before the end, or wrote something else
)

// Reader takes the text of one message out of a pipe, as far as it was written. The memory that it
// needs is bounded by the limits of heads, and counted by the pipe.
type Reader struct {
	// Request or Response is the message after Head, or Interim. Its slices are valid until the next Next.
	Request  protocol.Request
	Response protocol.Response // DeclaredLength is that of the body, or -1

	// Of the message, after Head.
	Length         int64 // of the body; -1 means unknown
	ExpectContinue bool  // the goroutine waits for Writer.Interim, 100

	pipe     loop.Pipe
	lim      *protocol.Limits
	response bool
	toHead   bool // the request of the response was a HEAD
	at       place

	head     http1.Head
	body     http1.Body
	text     bytebufferpool.ByteBuffer // the head, and what was written with it
	used     int                       // bytes of text that are done with
	piece    []byte
	trailers bytebufferpool.ByteBuffer
	fields   []protocol.Header // in trailers
	held     int               // bytes of memory that the pipe has counted
}

// place is how far a Reader is.
type place uint8

const (
	inHead place = iota
	inBody
	atEnd
	isBroken
)

// InitRequest prepares r for a request. lim bounds its head, and must not bound its body.
func (r *Reader) InitRequest(p loop.Pipe, lim *protocol.Limits) {
	*r = Reader{pipe: p, lim: lim}
}

// InitResponse prepares r for a response. toHead means that the request was a HEAD.
func (r *Reader) InitResponse(p loop.Pipe, lim *protocol.Limits, toHead bool) {
	*r = Reader{pipe: p, lim: lim, response: true, toHead: toHead}
}

// Next returns the next event: Piece again until all of it was consumed, and the same for ever after
// End and Broken.
func (r *Reader) Next() Event {
	e := r.next()
	r.count()
	return e
}

// count has the pipe count the memory of the head and of the trailers.
func (r *Reader) count() {
	headers := r.Request.Headers
	if r.response {
		headers = r.Response.Headers
	}
	if n := protocol.HeldBy(&r.text, &r.trailers, headers, r.fields); n != r.held {
		r.pipe.Charge(n - r.held)
		r.held = n
	}
}

func (r *Reader) next() Event {
	// Before the output is looked at: the goroutine may write and close meanwhile.
	state := r.pipe.State()
	var e Event
	switch {
	case r.at == inHead && state != loop.PipeReset:
		e = r.readHead()
	case r.at == inBody && state != loop.PipeReset:
		e = r.readBody()
	case r.at == atEnd:
		return End
	default:
		e = Broken
	}
	if e == Pending && state != loop.PipeOpen {
		e = r.cutOff()
	}
	switch e {
	case End:
		r.at = atEnd
	case Broken:
		r.at = isBroken
	}
	return e
}

// cutOff handles the end of the text. Only a body without a length of its own may end with it.
func (r *Reader) cutOff() Event {
	if r.at == inBody && r.body.Close() == nil {
		return End
	}
	return Broken
}

func (r *Reader) readHead() Event {
	for {
		n, err := r.decodeHead()
		switch {
		case err == http1.ErrIncomplete:
			b := r.pipe.Output()
			if len(b) == 0 {
				return Pending
			}
			r.text.B = append(r.text.B, b...)
			r.pipe.Consume(len(b))
			continue
		case err != nil, r.head.Upgrade:
			return Broken
		}
		r.used += n
		if !r.response || r.Response.Status >= 200 {
			break
		}
		r.head.Reset()
		return Interim
	}
	r.body.Reset(&r.head, r.lim)
	r.ExpectContinue, r.Length = r.head.ExpectContinue, -1
	switch {
	case r.head.Framing == http1.FixedLength:
		r.Length = r.head.Length
		r.Response.DeclaredLength = r.Length
	case r.response && r.head.Framing == http1.NoBody:
		r.Length = r.Response.DeclaredLength
	}
	r.at = inBody
	return Head
}

func (r *Reader) decodeHead() (int, error) {
	b := r.text.B[r.used:]
	switch {
	case len(b) == 0:
		return 0, http1.ErrIncomplete
	case r.response:
		return http1.DecodeResponse(b, r.toHead, &r.Response, &r.head, r.lim)
	}
	return http1.DecodeRequest(b, &r.Request, &r.head, r.lim)
}

// readBody looks for body bytes behind the framing, which it consumes.
func (r *Reader) readBody() Event {
	r.Request, r.Response = protocol.Request{}, protocol.Response{} // the head is used
	if r.used == len(r.text.B) {
		r.text.B, r.used = nil, 0
	}
	for !r.body.Done() {
		b := r.rest()
		if len(b) == 0 {
			return Pending
		}
		if n := r.body.Verbatim(); n > 0 {
			r.piece = b[:min(n, int64(len(b)))]
			return Piece
		}
		n := 0
		for n < len(b) && r.body.Verbatim() == 0 && !r.body.Done() { // so that no byte of the body is decoded
			if _, _, err := r.body.Decode(b[n:n+1], &r.trailers); err != nil {
				return Broken
			}
			n++
		}
		r.remove(n)
	}
	r.fields = r.body.Trailers(&r.trailers, r.fields[:0])
	return End
}

// rest returns what follows in the text.
func (r *Reader) rest() []byte {
	if b := r.text.B[r.used:]; len(b) > 0 {
		return b
	}
	return r.pipe.Output()
}

func (r *Reader) remove(n int) {
	if r.used < len(r.text.B) {
		r.used += n
		return
	}
	r.pipe.Consume(n)
}

// NoBody reports, after Head, whether End follows at once and without trailers.
func (r *Reader) NoBody() bool { return r.body.Done() }

// Failure returns the code of the failure for which a sidecar has made the response, this one or
// the endpoint's; nil means that it is the application's response.
func (r *Reader) Failure() []byte {
	return protocol.Find(r.Response.Headers, protocol.HeaderError)
}

// Piece returns the bytes of the body that were written and not consumed, not necessarily all. They
// are valid until Consume or Next.
func (r *Reader) Piece() []byte { return r.piece }

// Consume removes the first n bytes of Piece.
func (r *Reader) Consume(n int) {
	r.body.Skip(int64(n))
	r.piece = r.piece[n:]
	r.remove(n)
}

// Trailers returns the trailers, after End. They are valid until the next Init.
func (r *Reader) Trailers() []protocol.Header { return r.fields }
