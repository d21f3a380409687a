package dubbo

import (
	"encoding/binary"
	"slices"
	"unicode/utf16"
)

// hessian is serialization 2: Hessian 2.0, as in the Hessian serialization protocol
// (hessian.caucho.com) and Dubbo's hessian-lite.
type hessian struct{}

func (hessian) split(dst [][]byte, body []byte) ([][]byte, bool) {
	s := scanner{rest: body}
	for len(s.rest) > 0 {
		before := s.rest
		s.value(0)
		if s.bad {
			return dst, false
		}
		dst = append(dst, before[:len(before)-len(s.rest)])
	}
	return dst, true
}

func (hessian) text(value []byte) (string, bool) {
	s := scanner{rest: value}
	units := s.text()
	return string(utf16.Decode(units)), !s.bad
}

func (hessian) null() string { return "N" }

// appendText takes ASCII of less than 1,024 characters, which is enough for the replica.
func (hessian) appendText(dst []byte, s string) []byte {
	return append(append(dst, 0x30|byte(len(s)>>8), byte(len(s))), s...)
}

func (hessian) appendInt(dst []byte, n int32) []byte {
	switch {
	case n >= -0x10 && n <= 0x2f:
		return append(dst, byte(0x90+n))
	case n >= -0x800 && n <= 0x7ff:
		return append(dst, byte(0xc8+n>>8), byte(n))
	case n >= -0x40000 && n <= 0x3ffff:
		return append(dst, byte(0xd4+n>>16), byte(n>>8), byte(n))
	}
	return binary.BigEndian.AppendUint32(append(dst, 'I'), uint32(n))
}

func (hessian) appendRaw(dst, value []byte) []byte { return append(dst, value...) }

// scanner finds the ends of values. Once bad is set it stays set, and the results of the
// methods have no meaning.
type scanner struct {
	rest   []byte
	fields []int // number of fields of each class definition
	bad    bool
}

// Limits of a body.
const (
	maxDepth  = 64
	maxFields = 1024
)

func (s *scanner) take(n int) []byte {
	if s.bad || n < 0 || n > len(s.rest) {
		s.bad, s.rest = true, nil
		return nil
	}
	b := s.rest[:n]
	s.rest = s.rest[n:]
	return b
}

func (s *scanner) byte() int {
	if b := s.take(1); b != nil {
		return int(b[0])
	}
	return -1
}

// number takes a big-endian number of n bytes.
func (s *scanner) number(n int) int {
	v := 0
	for _, b := range s.take(n) {
		v = v<<8 | int(b)
	}
	return v
}

// value takes a value, and the class definitions before it.
func (s *scanner) value(depth int) {
	if depth > maxDepth {
		s.bad = true
		return
	}
	if len(s.rest) > 0 && isText(s.rest[0]) {
		s.text()
		return
	}
	switch c := s.byte(); {
	case s.bad:
	case c == 'N' || c == 'T' || c == 'F' || c == 0x5b || c == 0x5c || c >= 0x80 && c <= 0xbf || c >= 0xd8 && c <= 0xef:
	case c == 0x5d || c >= 0xc0 && c <= 0xcf || c >= 0xf0:
		s.take(1)
	case c == 0x5e || c >= 0x38 && c <= 0x3f || c >= 0xd0 && c <= 0xd7:
		s.take(2)
	case c == 'I' || c == 'K' || c == 'Y' || c == 0x5f:
		s.take(4)
	case c == 'D' || c == 'J' || c == 'L':
		s.take(8)
	case c == 'Q':
		s.int()
	case c == 'A' || c == 'B' || c >= 0x20 && c <= 0x2f || c >= 0x34 && c <= 0x37:
		s.binary(c)
	case c == 'C':
		s.class()
		s.value(depth + 1) // usually an object of it
	case c == 'O':
		s.object(s.int(), depth)
	case c >= 0x60 && c <= 0x6f:
		s.object(c-0x60, depth)
	default:
		s.collection(c, depth)
	}
}

// binary takes the rest of a binary value that begins with c, chunk by chunk.
func (s *scanner) binary(c int) {
	for c == 'A' {
		s.take(s.number(2))
		c = s.byte()
	}
	switch {
	case c == 'B':
		s.take(s.number(2))
	case c >= 0x20 && c <= 0x2f:
		s.take(c - 0x20)
	case c >= 0x34 && c <= 0x37:
		s.take((c-0x34)<<8 | s.number(1))
	default:
		s.bad = true
	}
}

// collection takes the rest of a list or map that begins with c.
func (s *scanner) collection(c, depth int) {
	switch {
	case c == 'U' || c == 'M':
		s.typeName()
		s.values(-1, depth)
	case c == 'W' || c == 'H':
		s.values(-1, depth)
	case c == 'V':
		s.typeName()
		s.values(s.int(), depth)
	case c == 'X':
		s.values(s.int(), depth)
	case c >= 0x70 && c <= 0x77:
		s.typeName()
		s.values(c-0x70, depth)
	case c >= 0x78 && c <= 0x7f:
		s.values(c-0x78, depth)
	default:
		s.bad = true
	}
}

// values takes n values; -1 means all up to a 'Z'.
func (s *scanner) values(n, depth int) {
	for i := 0; i != n && !s.bad; i++ {
		if n < 0 && len(s.rest) > 0 && s.rest[0] == 'Z' {
			s.take(1)
			return
		}
		s.value(depth + 1)
	}
}

func (s *scanner) class() {
	s.text()
	n := s.int()
	if n < 0 || n > maxFields {
		s.bad = true
	}
	for i := 0; i < n && !s.bad; i++ {
		s.text()
	}
	s.fields = append(s.fields, n)
}

func (s *scanner) object(class, depth int) {
	if class < 0 || class >= len(s.fields) {
		s.bad = true
		return
	}
	s.values(s.fields[class], depth)
}

// typeName takes the type of a list or map: a name, or a reference to one.
func (s *scanner) typeName() {
	if len(s.rest) > 0 && isText(s.rest[0]) {
		s.text()
		return
	}
	s.int()
}

func (s *scanner) int() int {
	switch c := s.byte(); {
	case c >= 0x80 && c <= 0xbf:
		return c - 0x90
	case c >= 0xc0 && c <= 0xcf:
		return (c-0xc8)<<8 | s.number(1)
	case c >= 0xd0 && c <= 0xd7:
		return (c-0xd4)<<16 | s.number(2)
	case c == 'I':
		return int(int32(s.number(4)))
	}
	s.bad = true
	return 0
}

func isText(c byte) bool { return c < 0x20 || c >= 0x30 && c <= 0x33 || c == 'R' || c == 'S' }

// text takes a string and returns its UTF-16 units.
func (s *scanner) text() (units []uint16) {
	for !s.bad {
		switch c := s.byte(); {
		case c >= 0 && c < 0x20:
			return s.chars(units, c)
		case c >= 0x30 && c <= 0x33:
			return s.chars(units, (c-0x30)<<8|s.number(1))
		case c == 'S':
			return s.chars(units, s.number(2))
		case c == 'R':
			units = s.chars(units, s.number(2))
		default:
			s.bad = true
		}
	}
	return nil
}

// chars takes n UTF-16 units. Java writes each unit separately: a character beyond U+FFFF is two
// sequences of three bytes. Others write one sequence of four bytes.
func (s *scanner) chars(units []uint16, n int) []uint16 {
	units = slices.Grow(units, min(n, len(s.rest)))
	for end := len(units) + n; len(units) < end && !s.bad; {
		if r := s.char(); r < 0x10000 {
			units = append(units, uint16(r))
		} else {
			units = utf16.AppendRune(units, r)
		}
	}
	return units
}

// char takes one sequence of one to four bytes.
func (s *scanner) char() rune {
	c := s.byte()
	size := 0 // of the rest
	switch {
	case c < 0x80:
		return rune(c)
	case c>>5 == 0x6:
		size, c = 1, c&0x1f
	case c>>4 == 0xe:
		size, c = 2, c&0xf
	case c>>3 == 0x1e:
		size, c = 3, c&0x7
	default:
		s.bad = true
	}
	r := rune(c)
	for _, b := range s.take(size) {
		r = r<<6 | rune(b&0x3f)
	}
	return r
}
