package link

import "encoding/binary"

// textClass says what a text may be used for. Messages leave a sidecar as HTTP/1.1, where a
// line break or a blank in the wrong place turns one request into two (request smuggling). So
// the receiver of a link checks texts again: the peer may have received them over a protocol
// that allows such bytes.
type textClass uint8

const (
	classText      textClass = 1 << iota // no NUL, CR or LF
	classValue                           // no control character but HTAB: a field value of RFC 9110 section 5.5
	classTarget                          // no control character or blank, not empty: a request target
	classAuthority                       // a request target, or empty
	classToken                           // RFC 9110 section 5.6.2, not empty: a field name, a method
)

// classes has the classes that a text with this byte may have.
var classes = func() (t [256]textClass) {
	for c := range t {
		if c != 0 && c != '\r' && c != '\n' {
			t[c] |= classText
		}
		if c >= ' ' && c != 0x7f || c == '\t' {
			t[c] |= classValue
		}
		if c > ' ' && c != 0x7f {
			t[c] |= classTarget | classAuthority
		}
		if '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' {
			t[c] |= classToken
		}
	}
	for _, c := range "!#$%&'*+-.^_`|~" {
		t[c] |= classToken
	}
	return t
}()

func classify(b []byte) textClass {
	if len(b) == 0 {
		return classText | classValue | classAuthority
	}
	class := classText | classValue | classTarget | classAuthority | classToken
	for _, c := range b {
		class &= classes[c]
	}
	return class
}

// classOf returns the classes of b, or of classText and classValue alone, if want is classText.
func classOf(b []byte, want textClass) textClass {
	if want == classText {
		return valueClass(b)
	}
	return classify(b)
}

const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// valueClass returns which of classText and classValue b is. It tests eight bytes at a time; most blocks
// have no control character and need no second test.
func valueClass(b []byte) textClass {
	class := classText | classValue
	for len(b) >= 8 {
		x := binary.LittleEndian.Uint64(b)
		if ((x-0x20*lowBits)|(x+lowBits))&^x&highBits != 0 {
			class &= classify(b[:8])
		}
		b = b[8:]
	}
	return class & classify(b)
}

// isText reports whether b is of classText.
func isText(b []byte) bool { return valueClass(b)&classText != 0 }
