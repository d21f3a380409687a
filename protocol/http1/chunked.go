package http1

import "github.com/valyala/bytebufferpool"

// maxSizeDigits limits the digits of a chunk size, including leading zeros.
const maxSizeDigits = 16

// chunkAllowance is the number of framing bytes allowed per byte of content, beyond a fixed
// allowance of Limits.Header bytes. Chunks of one byte need five. Sizes padded with zeros and
// long extensions cost a peer little and the decoder much (RFC 9112 section 7.1.1 asks for a
// limit on extensions).
const chunkAllowance = 8

// chunked decodes the chunked transfer coding (RFC 9112 section 7.1).
func (d *Body) chunked(src []byte, dst *bytebufferpool.ByteBuffer) (n int, err error) {
	for n < len(src) {
		switch d.part {
		case chunkData:
			n += d.take(src[n:], dst)
			if d.left == 0 {
				d.part = chunkCR
			}
		case trailerLine:
			used, err := d.trailer(src[n:], dst)
			return n + used, err
		default:
			if err = d.chunkByte(src[n]); err != nil {
				return 0, err
			}
			n++
			if d.part == trailerLine {
				d.line = len(dst.B)
			}
		}
	}
	return n, nil
}

func (d *Body) tooMuchFraming() bool {
	return d.overhead-int64(d.lim.Header) > chunkAllowance*(d.passed+int64(d.length))
}

func (d *Body) chunkByte(c byte) error {
	if d.overhead++; d.tooMuchFraming() {
		return ErrChunkOverhead
	}
	switch d.part {
	case chunkSize:
		if v := hexValue[c]; v >= 0 {
			return d.sizeDigit(int64(v))
		}
		if d.digits == 0 {
			return ErrBadChunkSize
		}
		return d.sizeEnd(c)
	case chunkBlank:
		if c == ';' {
			d.part = extStart
		} else if !isBlank(c) {
			return ErrBadChunkSize
		}
	case chunkSizeLF:
		if c != '\n' {
			return ErrBareCR
		}
		d.digits = 0
		d.part = chunkData
		if d.left == 0 {
			d.part = trailerLine
		}
	case chunkCR:
		if c != '\r' {
			return ErrBadChunkEnd
		}
		d.part = chunkLF
	case chunkLF:
		if c != '\n' {
			return ErrBadChunkEnd
		}
		d.part = chunkSize
	default:
		return d.extension(c)
	}
	return nil
}

// sizeDigit adds a digit to the chunk size, which is checked before the chunk is buffered.
func (d *Body) sizeDigit(v int64) error {
	if d.digits++; d.digits > maxSizeDigits {
		return ErrBadChunkSize
	}
	room := d.room()
	if d.left > room>>4 {
		return ErrMessageTooLarge
	}
	if d.left = d.left<<4 | v; d.left > room {
		return ErrMessageTooLarge
	}
	return nil
}

// sizeEnd consumes the byte behind the size.
func (d *Body) sizeEnd(c byte) error {
	switch {
	case c == '\r':
		d.part = chunkSizeLF
	case c == ';':
		d.part = extStart
	case isBlank(c):
		d.part = chunkBlank
	default:
		return ErrBadChunkSize
	}
	return nil
}

// hexValue is the value of a hexadecimal digit, -1 for other bytes.
var hexValue = func() (t [256]int8) {
	for i := range t {
		t[i] = -1
	}
	for _, digits := range []string{"0123456789abcdef", "0123456789ABCDEF"} {
		for i, c := range digits {
			t[c] = int8(i)
		}
	}
	return t
}()

// allowedTrailer reports whether a field may follow the body. RFC 9110 section 6.5.1 forbids
// fields that frame, route, authenticate, modify the request, control the response or describe
// the content. Fields of the connection, and fields that proxies set and trust, are forbidden,
// too: recipients that merge trailers into the headers would mistake them for headers.
func allowedTrailer(name []byte) bool {
	if kindOf(name) != endToEnd || isOneOf(name, trailerForbidden) {
		return false
	}
	return !protected(name) || isOneOf(name, trailerComputed)
}

// trailerForbidden lists forbidden trailers that protected does not cover.
var trailerForbidden = []string{
	"accept", "accept-charset", "accept-language", "age", "authentication-info", "max-forwards",
	"proxy-authentication-info", "retry-after", "trailer", "user-agent", "warning",
}

// trailerComputed lists fields that protected covers, but that are allowed as trailers because
// their values depend on the body (RFC 9110 section 8.8.3, RFC 9530).
var trailerComputed = []string{"etag", "content-digest"}
