package trace

// TraceID identifies a trace. Zero means none.
type TraceID [16]byte

// SpanID identifies a span within a trace. Zero means none.
type SpanID [8]byte

// The flags of a Context. All others are reserved, and are not passed on.
const (
	FlagSampled = 1 << 0 // the sender of the request records the trace
	FlagRandom  = 1 << 1 // the trace ID is random (Trace Context Level 2)
)

// Context is the value of a traceparent header: the position of a request in a trace.
type Context struct {
	Trace TraceID
	Span  SpanID // the sender's span, which is the parent of the receiver's
	Flags byte
}

// Sampled reports whether the sender records the trace.
func (c *Context) Sampled() bool { return c.Flags&FlagSampled != 0 }

// TextLen is the length of a traceparent of version 00.
const TextLen = 2 + 1 + 2*len(TraceID{}) + 1 + 2*len(SpanID{}) + 1 + 2

// Parse reads the value of a traceparent header (W3C Trace Context section 3.2.2).
// ok is false for a value that must be ignored. Of a version above 00 it reads the
// fields of version 00 (section 4).
func Parse(b []byte) (c Context, ok bool) {
	if len(b) < TextLen || b[2] != '-' || b[35] != '-' || b[52] != '-' {
		return Context{}, false
	}
	var version, flags [1]byte
	good := unhex(version[:], b[0:2]) && unhex(c.Trace[:], b[3:35]) && unhex(c.Span[:], b[36:52]) && unhex(flags[:], b[53:55])
	c.Flags = flags[0]
	switch {
	case !good, version[0] == 0xff, c.Trace == TraceID{}, c.Span == SpanID{}:
		return Context{}, false
	case len(b) > TextLen && (version[0] == 0 || b[TextLen] != '-'):
		return Context{}, false
	}
	return c, true
}

// IDText returns the trace ID in b, which must be a value that Parse accepts.
func IDText(b []byte) []byte { return b[3:35] }

const digits = "0123456789abcdef"

// Append appends c as the value of a traceparent header of version 00.
func (c *Context) Append(dst []byte) []byte {
	dst = append(dst, "00-"...)
	dst = appendHex(dst, c.Trace[:])
	dst = append(dst, '-')
	dst = appendHex(dst, c.Span[:])
	dst = append(dst, '-')
	return appendHex(dst, []byte{c.Flags & (FlagSampled | FlagRandom)})
}

func appendHex(dst, b []byte) []byte {
	for _, x := range b {
		dst = append(dst, digits[x>>4], digits[x&0xf])
	}
	return dst
}

// unhex fills dst from twice as many digits, in lower case, and reports whether all are valid.
func unhex(dst, text []byte) bool {
	for i := range dst {
		hi, lo := digit(text[2*i]), digit(text[2*i+1])
		if hi == noDigit || lo == noDigit {
			return false
		}
		dst[i] = hi<<4 | lo
	}
	return true
}

const noDigit = 0xff

// digit returns the value of a hexadecimal digit, and noDigit for any other byte.
func digit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return noDigit
}
