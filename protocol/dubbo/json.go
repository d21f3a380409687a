package dubbo

import "strings"

// maxDepth limits the nesting of the values of a call or a response, in JSON and in hessian2.
const maxDepth = 128

// jsonReader reads JSON text (RFC 8259) in place and checks all that it reads. Malformed or
// too deeply nested text sets bad, and ends the input.
//
// To read an object, call begin('{'), then key and a value while more('}') returns true. An
// array is read in the same way.
type jsonReader struct {
	b     []byte
	i     int // offset of the next byte
	depth int
	first bool // nothing of the innermost object or array was read yet
	bad   bool

	fastjson bool // a key may be any value, as fastjson writes it; else only a string
	odd      bool // a key was no string
}

func (r *jsonReader) fail() {
	r.bad = true
	r.i = len(r.b)
}

// peek returns the first byte of the next token, or 0 at the end.
func (r *jsonReader) peek() byte {
	for ; r.i < len(r.b); r.i++ {
		if c := r.b[r.i]; !isJSONSpace(c) {
			return c
		}
	}
	return 0
}

func isJSONSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// begin enters an object or an array; anything else is an error.
func (r *jsonReader) begin(open byte) {
	if r.peek() != open {
		r.fail()
		return
	}
	if r.depth++; r.depth > maxDepth {
		r.fail()
		return
	}
	r.i++
	r.first = true
}

// more reports whether a member or element follows. If not, it leaves the object or array.
func (r *jsonReader) more(end byte) bool {
	if r.bad {
		return false
	}
	switch c := r.peek(); {
	case c == end:
		r.i++
		r.depth--
		r.first = false
		return false
	case r.first && c != 0:
		r.first = false
		return true
	case !r.first && c == ',':
		r.i++
		return true
	}
	r.fail()
	return false
}

// key reads a member's name, returned with its escapes, and the colon after it.
func (r *jsonReader) key() []byte {
	name := r.stringToken()
	r.colon()
	return inner(name)
}

func (r *jsonReader) colon() {
	if r.peek() != ':' {
		r.fail()
		return
	}
	r.i++
}

// skipKey reads a member's name, which may be any value in the text of fastjson, and the colon after it.
func (r *jsonReader) skipKey() {
	if !r.fastjson || r.peek() == '"' {
		r.key()
		return
	}
	r.odd = true
	r.value()
	r.colon()
}

// value reads one value and returns its text.
func (r *jsonReader) value() []byte {
	c := r.peek()
	start := r.i
	switch c {
	case '{':
		for r.begin('{'); r.more('}'); {
			r.skipKey()
			r.value()
		}
	case '[':
		for r.begin('['); r.more(']'); {
			r.value()
		}
	case '"':
		return r.stringToken()
	case 't':
		r.literal("true")
	case 'f':
		r.literal("false")
	case 'n':
		r.literal("null")
	default:
		r.number()
	}
	if r.bad {
		return nil
	}
	return r.b[start:r.i]
}

func (r *jsonReader) end() {
	if r.peek() != 0 || r.i < len(r.b) {
		r.fail()
	}
}

func (r *jsonReader) literal(word string) {
	if len(r.b)-r.i < len(word) || string(r.b[r.i:r.i+len(word)]) != word {
		r.fail()
		return
	}
	r.i += len(word)
}

// stringToken reads a string and returns it with its quotes. The result has at least two
// bytes, even if the string is malformed.
func (r *jsonReader) stringToken() []byte {
	if r.peek() != '"' {
		r.fail()
		return emptyString
	}
	start := r.i
	for i := r.i + 1; i < len(r.b); {
		switch c := r.b[i]; {
		case c == '"':
			r.i = i + 1
			return r.b[start:r.i]
		case c < 0x20:
			r.fail()
			return emptyString
		case c == '\\':
			n := escapeLen(r.b[i:])
			if n == 0 {
				r.fail()
				return emptyString
			}
			i += n
		default:
			i++
		}
	}
	r.fail()
	return emptyString
}

var emptyString = []byte(`""`)

// escapeLen returns the length of the escape at the start of b, or 0 if it is invalid.
func escapeLen(b []byte) int {
	switch {
	case len(b) < 2:
		return 0
	case escapes[b[1]] != 0:
		return 2
	case b[1] == 'u':
		if _, ok := hex4(b[2:]); ok {
			return 6
		}
	}
	return 0
}

func (r *jsonReader) number() {
	r.accept('-')
	if !r.accept('0') {
		r.digits()
	}
	if r.accept('.') {
		r.digits()
	}
	if r.accept('e') || r.accept('E') {
		if !r.accept('+') {
			r.accept('-')
		}
		r.digits()
	}
}

func (r *jsonReader) accept(c byte) bool {
	if r.i >= len(r.b) || r.b[r.i] != c {
		return false
	}
	r.i++
	return true
}

// digits reads at least one digit.
func (r *jsonReader) digits() {
	start := r.i
	for r.i < len(r.b) && '0' <= r.b[r.i] && r.b[r.i] <= '9' {
		r.i++
	}
	if r.i == start {
		r.fail()
	}
}

// oneJSON checks that b is one JSON value, and returns it without the white space around it.
func oneJSON(b []byte) (value []byte, ok bool) {
	r := jsonReader{b: b}
	value = r.value()
	r.end()
	return value, !r.bad
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		digit := unhex(c)
		if digit < 0 {
			return 0, false
		}
		r = r<<4 | rune(digit)
	}
	return r, true
}

// unhex returns the value of a hexadecimal digit, or -1.
func unhex(c byte) int { return int(digitValues[c]) }

// digitValues is the value of each hexadecimal digit, and -1 for other bytes.
var digitValues = func() (t [256]int8) {
	for c := range t {
		t[c] = int8(strings.IndexByte(hexDigits, byte(c)))
	}
	for c := 'A'; c <= 'F'; c++ {
		t[c] = t[c|0x20]
	}
	return t
}()
