package link

// A traceparent header (W3C Trace Context, version 00) is 55 characters of text
// that differ in every request, so interning is no help: it travels as the 25
// bytes that it denotes.
const (
	traceBinary = 16 + 8 + 1
	traceText   = 2 + 1 + 32 + 1 + 16 + 1 + 2
	traceName   = "traceparent"
)

// appendTrace appends the binary form of value, if it is of the form that
// formatTrace restores to the byte: version 00, lower-case digits.
func appendTrace(dst, value []byte) ([]byte, bool) {
	if len(value) != traceText || value[0] != '0' || value[1] != '0' ||
		value[2] != '-' || value[35] != '-' || value[52] != '-' {
		return dst, false
	}
	start := len(dst)
	bad := byte(0)
	for _, part := range [3][]byte{value[3:35], value[36:52], value[53:55]} {
		for i := 0; i < len(part); i += 2 {
			hi, lo := unhex[part[i]], unhex[part[i+1]]
			bad |= hi | lo
			dst = append(dst, hi<<4|lo&0x0f)
		}
	}
	if bad&0xf0 != 0 {
		return dst[:start], false
	}
	return dst, true
}

// formatTrace writes the traceText characters of the traceBinary bytes b to dst.
func formatTrace(dst, b []byte) {
	const digits = "0123456789abcdef"
	dst[0], dst[1] = '0', '0'
	at := 2
	for i, c := range b[:traceBinary] {
		if i == 0 || i == 16 || i == 24 {
			dst[at] = '-'
			at++
		}
		dst[at], dst[at+1] = digits[c>>4], digits[c&0x0f]
		at += 2
	}
}

// unhex maps lower-case hexadecimal digits to their value, all else to 0xf0.
var unhex = func() (t [256]byte) {
	for c := range t {
		switch {
		case '0' <= c && c <= '9':
			t[c] = byte(c - '0')
		case 'a' <= c && c <= 'f':
			t[c] = byte(c - 'a' + 10)
		default:
			t[c] = 0xf0
		}
	}
	return t
}()
