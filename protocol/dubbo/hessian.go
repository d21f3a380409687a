package dubbo

import (
	"encoding/binary"
	"math"
)

type tokenKind uint8

const (
	tokenBad    tokenKind = iota // malformed: the reader has the error
	tokenEnd                     // the end of a list or map without a length
	tokenNull                    // no value
	tokenBool                    // num: 0 or 1
	tokenInt                     // num
	tokenLong                    // num
	tokenDouble                  // real
	tokenDate                    // num: milliseconds since 1970
	tokenString                  // text, more
	tokenBinary                  // text, more
	tokenList                    // num: the number of values that follow, or -1 for values up to tokenEnd
	tokenMap                     // keys and values follow, up to tokenEnd
	tokenObject                  // num: index of its class; the values of its fields follow
	tokenRef                     // num: index of the list, map or object that it repeats
)

// token is a scalar, or the head of a list, map or object.
type token struct {
	kind tokenKind
	num  int64
	real float64
	text []byte // of a string (UTF-8 or CESU-8) or binary; the first chunk if there are more
	more bool   // more chunks follow, see hessianReader.chunk
}

// class is a class definition. It holds no slices: a reused reader keeps no body alive.
type class struct {
	name   int // offset of the name
	fields int // number of fields
	first  int // offset of the name of the first field
}

// hessianReader reads hessian2 in place and checks all that it reads. A value is what Hessian2Input of Caucho and of Dubbo's
// hessian-lite make of it. Some of what they accept is refused, such as names in several chunks. Reading allocates only for
// class definitions. Malformed input sets bad; next then returns only tokenBad.
//
// Java writes a whole body with one stream. So classes, types and references count from the
// start of the body, even if only a part of it is of interest.
type hessianReader struct {
	b       []byte
	i       int
	at      int // offset of the tag of the last head
	depth   int
	classes []class
	types   int  // number of type names so far
	again   bool // what is read was read before, and its classes are known
	bad     bool
}

// maxClasses limits the classes that a body may define.
const maxClasses = 1024

func (r *hessianReader) reset(b []byte) {
	*r = hessianReader{b: b, classes: r.classes[:0]}
}

func (r *hessianReader) fail() token {
	r.bad = true
	r.i = len(r.b)
	return token{}
}

// next reads a whole scalar, or the head of any other value.
func (r *hessianReader) next() token {
	for r.i < len(r.b) && r.b[r.i] == 'C' {
		r.i++
		r.define()
	}
	at := r.i
	if at == len(r.b) {
		return r.fail()
	}
	r.i++
	t := r.head(r.b[at])
	r.at = at // set last, since heads contain values
	if r.bad {
		return token{}
	}
	return t
}

func (r *hessianReader) head(tag byte) token {
	switch {
	case tag >= 0x80:
		return r.compactNumber(tag)
	case tag < 0x20:
		return r.stringChunk(int(tag), false)
	case tag < 0x30:
		return r.binaryChunk(int(tag-0x20), false)
	case tag < 0x34:
		return r.stringChunk(int(tag-0x30)<<8|int(r.uint(1)), false)
	case tag < 0x38:
		return r.binaryChunk(int(tag-0x34)<<8|int(r.uint(1)), false)
	case tag < 0x40:
		return r.scalar(tokenLong, int64(tag)-0x3c, 2)
	case tag >= 0x78:
		return r.list(int64(tag - 0x78))
	case tag >= 0x70:
		r.typeName()
		return r.list(int64(tag - 0x70))
	case tag >= 0x60:
		return r.object(int64(tag - 0x60))
	}
	return r.tagged(tag)
}

// compactNumber reads the ints and longs whose tag holds their highest bits.
func (r *hessianReader) compactNumber(tag byte) token {
	switch {
	case tag < 0xc0:
		return r.scalar(tokenInt, int64(tag)-0x90, 0)
	case tag < 0xd0:
		return r.scalar(tokenInt, int64(tag)-0xc8, 1)
	case tag < 0xd8:
		return r.scalar(tokenInt, int64(tag)-0xd4, 2)
	case tag < 0xf0:
		return r.scalar(tokenLong, int64(tag)-0xe0, 0)
	}
	return r.scalar(tokenLong, int64(tag)-0xf8, 1)
}

// scalar reads a number whose lowest n bytes follow the bits in high.
func (r *hessianReader) scalar(kind tokenKind, high int64, n int) token {
	return token{kind: kind, num: high<<(8*n) | int64(r.uint(n))}
}

// tagged reads a value whose tag holds only its type.
func (r *hessianReader) tagged(tag byte) token {
	switch tag {
	case 'N':
		return token{kind: tokenNull}
	case 'F':
		return token{kind: tokenBool, num: 0}
	case 'T':
		return token{kind: tokenBool, num: 1}
	case 'I':
		return token{kind: tokenInt, num: int64(int32(r.uint(4)))}
	case 'L':
		return token{kind: tokenLong, num: int64(r.uint(8))}
	case 0x59:
		return token{kind: tokenLong, num: int64(int32(r.uint(4)))}
	case 'J':
		return token{kind: tokenDate, num: int64(r.uint(8))}
	case 'K':
		return token{kind: tokenDate, num: int64(int32(r.uint(4))) * 60_000}
	case 'D':
		return token{kind: tokenDouble, real: math.Float64frombits(r.uint(8))}
	case 0x5b:
		return token{kind: tokenDouble, real: 0}
	case 0x5c:
		return token{kind: tokenDouble, real: 1}
	case 0x5d:
		return token{kind: tokenDouble, real: float64(int8(r.uint(1)))}
	case 0x5e:
		return token{kind: tokenDouble, real: float64(int16(r.uint(2)))}
	case 0x5f: // thousandths, although the specification has a float. Java multiplies by 0.001, which differs from a division
		return token{kind: tokenDouble, real: 0.001 * float64(int32(r.uint(4)))}
	case 'R', 'S':
		return r.stringChunk(int(r.uint(2)), tag == 'R')
	case 'A', 'B':
		return r.binaryChunk(int(r.uint(2)), tag == 'A')
	case 'O':
		return r.object(r.int())
	case 'Q':
		return token{kind: tokenRef, num: r.int()}
	case 'Z':
		return token{kind: tokenEnd}
	case 'M':
		r.typeName()
		return token{kind: tokenMap}
	case 'H':
		return token{kind: tokenMap}
	case 'U':
		r.typeName()
		return token{kind: tokenList, num: -1}
	case 'W':
		return token{kind: tokenList, num: -1}
	case 'V':
		r.typeName()
		return r.list(r.int())
	case 'X':
		return r.list(r.int())
	}
	return r.fail()
}

func (r *hessianReader) list(n int64) token {
	if n < 0 {
		return r.fail()
	}
	return token{kind: tokenList, num: n}
}

func (r *hessianReader) object(index int64) token {
	if index < 0 || index >= int64(len(r.classes)) {
		return r.fail()
	}
	return token{kind: tokenObject, num: index}
}

// define reads a class definition behind its tag.
func (r *hessianReader) define() {
	c := class{name: r.i}
	r.name()
	fields := r.int()
	if fields < 0 || fields > int64(len(r.b)-r.i) || len(r.classes) == maxClasses && !r.again {
		r.fail()
		return
	}
	c.fields, c.first = int(fields), r.i
	for range c.fields {
		r.name()
	}
	if !r.again {
		r.classes = append(r.classes, c)
	}
}

// typeName skips the type of a list or map: a name, or the number of an earlier name.
func (r *hessianReader) typeName() {
	switch t := r.plain(); {
	case t.kind == tokenString:
		r.types++
	case t.kind == tokenInt && t.num >= 0 && t.num < int64(r.types):
	default:
		r.fail()
	}
}

func (r *hessianReader) name() []byte {
	t := r.plain()
	if t.kind != tokenString {
		r.fail()
	}
	return t.text
}

// nullableName reads a string of one chunk, or null.
func (r *hessianReader) nullableName() []byte {
	t := r.plain()
	if t.kind != tokenString && t.kind != tokenNull {
		r.fail()
	}
	return t.text
}

func (r *hessianReader) int() int64 {
	t := r.plain()
	if t.kind != tokenInt {
		r.fail()
	}
	return t.num
}

// plain reads a string of one chunk, an int or null: only these occur in the heads of other
// values, so heads can't nest.
func (r *hessianReader) plain() token {
	if r.i >= len(r.b) || !isPlain(r.b[r.i]) {
		return r.fail()
	}
	return r.next()
}

func isPlain(tag byte) bool {
	return tag < 0x20 || tag >= 0x30 && tag < 0x34 || tag >= 0x80 && tag < 0xd8 || tag == 'S' || tag == 'I' || tag == 'N'
}

func (r *hessianReader) uint(n int) uint64 {
	if len(r.b)-r.i < n {
		r.fail()
		return 0
	}
	b := r.b[r.i : r.i+n]
	r.i += n
	switch n {
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	case 8:
		return binary.BigEndian.Uint64(b)
	}
	var v uint64
	for _, c := range b {
		v = v<<8 | uint64(c)
	}
	return v
}

// nameAt returns the name at i, which must have been read before.
func (r *hessianReader) nameAt(i int) []byte {
	again := hessianReader{b: r.b, i: i}
	return again.name()
}
