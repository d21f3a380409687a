package http1

import (
	"bytes"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

// Body turns the framed bytes of one message into the bytes of its body. The caller owns the
// buffer, passes the same one to every call and lets nobody else write to it. It must be empty
// at the first Decode. In the end it holds the body, followed by the trailer section, if any.
//
// A caller that has a FixedLength body needs no Body: it is Head.Length bytes after the head.
type Body struct {
	framing Framing
	part    bodyPart
	left    int64 // bytes of the body, or of the chunk, that are still missing
	limit   int64
	length  int // bytes of the body in the buffer

	passed int64 // bytes of the body that have left the buffer: see Discard and Skip

	digits   int   // digits of the chunk size so far
	overhead int64 // bytes of chunk framing so far
	line     int   // start of the trailer line in the buffer
	trailers int   // trailer lines so far
	lim      protocol.Limits

	nominated []byte // options of the head's Connection; nil means none that may name trailers
}

// bodyPart is the part of the framing that the next byte belongs to, a position in the grammar
// of RFC 9112 sections 6 and 7.1.
type bodyPart uint8

const (
	bodyDone    bodyPart = iota
	bodyBytes            // of a FixedLength or UntilClose body
	chunkSize            // hexadecimal digits
	chunkBlank           // white space before an extension
	chunkSizeLF          // the LF of a chunk line
	chunkData            // bytes of a chunk
	chunkCR              // the CR behind a chunk's bytes
	chunkLF              // the LF after that CR
	trailerLine          // the trailer section

	extStart      // the name of an extension, or white space before it
	extName       // the rest of the name
	extNameBlank  // white space behind the name
	extValueStart // the value, or white space before it
	extValue      // the rest of a token
	extQuoted     // the rest of a quoted string
	extEscape     // the byte behind a backslash
	extEnd        // what follows a quoted string
	extBlank      // white space before the next extension
)

// Reset prepares d for the body that h announces.
func (d *Body) Reset(h *Head, lim *protocol.Limits) {
	*d = Body{framing: h.Framing, left: h.Length, limit: lim.Message, lim: *lim, nominated: h.nominated}
	switch h.Framing {
	case FixedLength:
		if d.left > 0 {
			d.part = bodyBytes
		}
	case Chunked:
		d.part = chunkSize
	case UntilClose:
		d.part = bodyBytes
	}
}

// Resume makes d, which must be new, begin behind the first n bytes of the body: the buffer holds them already.
func (d *Body) Resume(n int) {
	d.length = n
	if d.framing == FixedLength {
		if d.left -= int64(n); d.left <= 0 {
			d.part = bodyDone
		}
	}
}

// Done reports whether the body is complete.
func (d *Body) Done() bool { return d.part == bodyDone }

// Length returns the number of body bytes in the buffer.
func (d *Body) Length() int { return d.length }

func (d *Body) room() int64 { return d.limit - d.passed - int64(d.length) }

// Decode appends the body bytes of src to dst and returns the number of bytes of src that it
// consumed: all of them, unless the body ends earlier. Call it again with the next input until
// it is done; src[n:] then belongs to the next message. After an error, an *Error, the
// connection can't be used any more.
//
// At most Limits.Message bytes are buffered, whatever sizes are announced, and no memory is
// allocated before the bytes arrive.
func (d *Body) Decode(src []byte, dst *bytebufferpool.ByteBuffer) (n int, done bool, err error) {
	switch {
	case d.part == bodyDone:
		return 0, true, nil
	case d.part != bodyBytes:
		n, err = d.chunked(src, dst)
	case d.framing == FixedLength:
		n, err = d.fixed(src, dst)
	default:
		n, err = d.untilClose(src, dst)
	}
	if err != nil {
		return 0, false, err
	}
	return n, d.part == bodyDone, nil
}

func (d *Body) fixed(src []byte, dst *bytebufferpool.ByteBuffer) (int, error) {
	if d.left > d.room() {
		return 0, ErrMessageTooLarge
	}
	n := d.take(src, dst)
	if d.left == 0 {
		d.part = bodyDone
	}
	return n, nil
}

func (d *Body) take(src []byte, dst *bytebufferpool.ByteBuffer) int {
	if int64(len(src)) > d.left {
		src = src[:d.left]
	}
	dst.B = protocol.Extend(dst.B, src)
	d.left -= int64(len(src))
	d.length += len(src)
	return len(src)
}

// Room returns protocol.Room of dst for the rest of the body, or nil if its length is not known.
func (d *Body) Room(dst *bytebufferpool.ByteBuffer) []byte {
	if d.part != bodyBytes || d.framing != FixedLength {
		return nil
	}
	return protocol.Room(dst, int(d.left))
}

func (d *Body) untilClose(src []byte, dst *bytebufferpool.ByteBuffer) (int, error) {
	if int64(len(src)) > d.room() {
		return 0, ErrMessageTooLarge
	}
	dst.B = append(dst.B, src...)
	d.length += len(src)
	return len(src), nil
}

// Close handles the end of the connection. It returns nil if the body is complete, which the
// end itself may cause, and ErrTruncated otherwise.
func (d *Body) Close() error {
	if d.framing == UntilClose {
		d.part = bodyDone
	}
	if d.part != bodyDone {
		return ErrTruncated
	}
	return nil
}

// Trailers appends the trailer fields to into, except those that may not be in a trailer
// section, and those that Connection nominates (RFC 9110 section 7.6.1). They alias dst.B, are valid until dst changes, and
// are complete once Decode is done.
func (d *Body) Trailers(dst *bytebufferpool.ByteBuffer, into []protocol.Header) []protocol.Header {
	if d.part != bodyDone || d.trailers == 0 {
		return into
	}
	b := dst.B
	for i := d.length; i < len(b)-2; {
		name, value, next, err := field(b, i)
		if err != nil {
			return into // impossible: trailerLine has checked each line
		}
		if i = next; allowedTrailer(name) && !d.removes(name) {
			into = append(into, protocol.Header{Name: name, Value: value, Valid: true})
		}
	}
	return into
}

// removes reports whether Connection nominates a trailer with this name.
func (d *Body) removes(name []byte) bool {
	return d.nominated != nil && lists(d.nominated, name) && !protected(name)
}

// trailer moves lines of the trailer section to dst and checks each, up to the empty line that
// ends the message. A section without fields leaves dst unchanged.
func (d *Body) trailer(src []byte, dst *bytebufferpool.ByteBuffer) (n int, err error) {
	for n < len(src) {
		room := d.lim.Header - (len(dst.B) - d.length)
		w := src[n:]
		if len(w) > room {
			w = w[:room]
		}
		lf := bytes.IndexByte(w, '\n')
		if lf >= 0 {
			w = w[:lf+1]
		}
		dst.B = append(dst.B, w...)
		n += len(w)
		if lf < 0 {
			if len(w) == room {
				return 0, ErrTrailerTooLarge
			}
			return n, nil
		}
		if err = d.trailerLine(dst); err != nil || d.part == bodyDone {
			return n, err
		}
	}
	return n, nil
}

// trailerLine checks the line that ends dst.
func (d *Body) trailerLine(dst *bytebufferpool.ByteBuffer) error {
	line := dst.B[d.line:]
	if len(line) < 2 || line[len(line)-2] != '\r' {
		return ErrBareLF
	}
	if len(line) == 2 {
		d.part = bodyDone
		if d.trailers == 0 {
			dst.B = dst.B[:d.length]
		}
		return nil
	}
	if d.trailers++; d.trailers > d.lim.Headers {
		return ErrTooManyHeaders
	}
	d.line = len(dst.B)
	_, _, _, err := field(line, 0)
	return err
}
