package httpstream

import (
	"strconv"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/loop"
)

// Writer delivers a message to the goroutine of a pipe. The caller bounds what it delivers by the
// window that it has granted to the peer. Each piece takes up to 20 bytes more in the pipe.
type Writer struct {
	pipe    loop.Pipe
	chunked bool
	framing int // bytes delivered that are not of the body and not deducted by Taken
	line    [maxSizeLine]byte
}

const (
	maxSizeLine = 18 // 16 digits, CR, LF
	crlf        = "\r\n"
)

// Init prepares w for the body of one message. The decoder of the goroutine must expect chunks if
// chunked is set. Otherwise it must know the length, and trailers are dropped.
func (w *Writer) Init(p loop.Pipe, chunked bool) { *w = Writer{pipe: p, chunked: chunked} }

// InitResponse prepares w for the response to a goroutine that has written a request.
func (w *Writer) InitResponse(p loop.Pipe) { *w = Writer{pipe: p} }

// Interim delivers an interim response ahead of Response. One that can't be sent safely is dropped.
func (w *Writer) Interim(res *protocol.Response) { w.deliver(http1.AppendInterim(nil, res)) }

// Response delivers the head of res; Data and End follow. end means that there is no body, and toHead
// that the request was a HEAD. With res.DeclaredLength the body must have that length. Response
// returns false if res can't be sent safely: then the caller closes the pipe.
func (w *Writer) Response(res *protocol.Response, toHead, end bool) bool {
	h := http1.Head{Framing: http1.Chunked}
	bodiless := toHead || !http1.HasBody(res, http1.ResponseFlags{})
	switch {
	case bodiless:
		h.Framing = http1.NoBody
	case end:
		h.Framing = http1.FixedLength
	case res.DeclaredLength >= 0:
		h.Framing, h.Length = http1.FixedLength, res.DeclaredLength
	}
	w.chunked = h.Framing == http1.Chunked
	text := http1.AppendStreamResponse(nil, res, &h, 1)
	w.deliver(text)
	return len(text) > 0
}

// Data delivers a piece of the body.
func (w *Writer) Data(b []byte) {
	switch {
	case len(b) == 0: // as a chunk it would end the body
		return
	case !w.chunked:
		w.pipe.Deliver(b)
		return
	}
	size := strconv.AppendInt(w.line[:0], int64(len(b)), 16)
	w.deliver(append(size, crlf...))
	w.pipe.Deliver(b)
	w.deliver(append(w.line[:0], crlf...))
}

// End ends the body.
func (w *Writer) End(trailers []protocol.Header) {
	if w.chunked {
		w.deliver(http1.AppendLastChunk(nil, trailers))
	}
}

// Taken returns how many bytes of the body the goroutine has read since the last call, to be
// granted to the peer again. It may return some of them later, but none too late: when the pipe is
// empty it has returned all.
func (w *Writer) Taken() int {
	n := w.pipe.Taken()
	deducted := min(n, w.framing)
	w.framing -= deducted
	return n - deducted
}

func (w *Writer) deliver(b []byte) {
	w.framing += len(b)
	w.pipe.Deliver(b)
}
