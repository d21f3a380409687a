package dubbo

import (
	"encoding/base64"
	"math"
	"strconv"
)

// transcoder writes hessian2 values as JSON: lists as arrays, maps and objects as objects,
// dates as milliseconds since 1970, binary as base64, and like fastjson NaN and infinities as
// null.
//
// A reference is replaced by a copy of its value. Two limits end the copying of a value that
// contains itself: maxDepth and max.
type transcoder struct {
	r        hessianReader
	dst      []byte
	max      int   // limit for the length of dst, and for the bytes that are read again
	refs     []int // offsets of all lists, maps and objects, in order
	replayed int   // bytes that were read again
	replays  bool  // the current value is read again
	tooLarge bool
}

func (t *transcoder) value() { t.rest(t.next()) }

// next reads the head of a value, and records the offset of a value with a reference number.
func (t *transcoder) next() token {
	tok := t.r.next()
	switch tok.kind {
	case tokenList, tokenMap, tokenObject:
		if !t.replays {
			t.refs = append(t.refs, t.r.at)
		}
	}
	if len(t.dst) > t.max || t.replayed > t.max {
		t.tooLarge = true
		return t.r.fail()
	}
	return tok
}

// rest writes the value whose head is tok.
func (t *transcoder) rest(tok token) {
	switch tok.kind {
	case tokenList:
		t.list(tok)
	case tokenMap:
		t.entries(tok)
	case tokenObject:
		t.object(tok)
	case tokenRef:
		t.replay(tok.num)
	case tokenString:
		t.dst = append(t.dst, '"')
		t.dst = appendEscaped(t.dst, tok.text)
		for tok.more {
			tok = t.r.chunk(tokenString)
			t.dst = appendEscaped(t.dst, tok.text)
		}
		t.dst = append(t.dst, '"')
	case tokenBinary:
		t.binary(tok)
	default:
		t.scalar(tok)
	}
}

func (t *transcoder) scalar(tok token) {
	switch tok.kind {
	case tokenNull:
		t.dst = append(t.dst, "null"...)
	case tokenBool:
		t.dst = strconv.AppendBool(t.dst, tok.num == 1)
	case tokenInt, tokenLong, tokenDate:
		t.dst = strconv.AppendInt(t.dst, tok.num, 10)
	case tokenDouble:
		t.dst = appendDouble(t.dst, tok.real)
	default:
		t.r.fail()
	}
}

// appendDouble always writes a double with a fraction or an exponent, unlike an integer.
func appendDouble(dst []byte, v float64) []byte {
	const noExponent, exponent = 1e-3, 1e7
	size := math.Abs(v)
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return append(dst, "null"...)
	case v != 0 && (size < noExponent || size >= exponent):
		return strconv.AppendFloat(dst, v, 'E', -1, 64)
	case v == math.Trunc(v):
		return strconv.AppendFloat(dst, v, 'f', 1, 64)
	}
	return strconv.AppendFloat(dst, v, 'f', -1, 64)
}

func (t *transcoder) binary(tok token) {
	all := tok.text
	for tok.more {
		tok = t.r.chunk(tokenBinary)
		all = append(all, tok.text...) // a copy: the slices of tokens have no spare capacity
	}
	t.dst = append(t.dst, '"')
	t.dst = base64.StdEncoding.AppendEncode(t.dst, all)
	t.dst = append(t.dst, '"')
}

func (t *transcoder) list(tok token) {
	open := byte('[')
	for n := t.r.enter(tok); t.r.element(&n); {
		t.dst = append(t.dst, open)
		open = ','
		t.value()
	}
	t.end('[', ']', open)
}

func (t *transcoder) entries(tok token) {
	open := byte('{')
	for n := t.r.enter(tok); t.r.element(&n); {
		t.dst = append(t.dst, open)
		open = ','
		t.key()
		t.dst = append(t.dst, ':')
		t.value()
	}
	t.end('{', '}', open)
}

// end closes a list or map. open equals first if it had no values.
func (t *transcoder) end(first, last, open byte) {
	if open == first {
		t.dst = append(t.dst, first)
	}
	t.dst = append(t.dst, last)
}

// key writes the key of a map: a string, or another scalar as a string.
func (t *transcoder) key() {
	switch tok := t.next(); tok.kind {
	case tokenString:
		t.rest(tok)
	default:
		t.dst = append(t.dst, '"')
		t.scalar(tok)
		t.dst = append(t.dst, '"')
	}
}

func (t *transcoder) object(tok token) {
	class := t.r.classes[tok.num]
	if class.fields == 1 && string(t.r.nameAt(class.name)) == bigDecimal {
		t.decimal(tok)
		return
	}
	open := byte('{')
	names := hessianReader{b: t.r.b, i: class.first}
	for n := t.r.enter(tok); t.r.element(&n); {
		t.dst = append(t.dst, open)
		open = ','
		t.dst = appendJSONString(t.dst, names.name())
		t.dst = append(t.dst, ':')
		t.value()
	}
	t.end('{', '}', open)
}

func (t *transcoder) decimal(tok token) {
	for n := t.r.enter(tok); t.r.element(&n); {
		number := jsonReader{b: t.r.name()}
		number.number()
		if number.bad || number.i < len(number.b) {
			t.r.fail()
			return
		}
		t.dst = append(t.dst, number.b...)
	}
}

// replay writes the list, map or object with this reference number again.
func (t *transcoder) replay(index int64) {
	if index < 0 || index >= int64(len(t.refs)) {
		t.r.fail()
		return
	}
	r := &t.r
	back, classes, types, replays := r.i, len(r.classes), r.types, t.replays
	start := t.refs[index]
	r.i, t.replays = start, true
	t.value()
	if r.bad {
		return
	}
	t.replayed += r.i - start
	r.i, r.classes, r.types, t.replays = back, r.classes[:classes], types, replays
}
