package dubbo

import (
	"bytes"
	"encoding/base64"
	"math"
	"strconv"
)

// transcoder writes hessian2 values as JSON: lists as arrays, maps and objects as objects,
// dates as milliseconds since 1970, binary as base64, and like fastjson NaN and infinities as
// null.
//
// A reference is replaced by a copy of its value. Inside that value it is written as fastjson does,
// {"$ref":"$.a[0]"}, with the path from the result to the value.
type transcoder struct {
	r        hessianReader
	dst      []byte
	max      int   // limit for the length of dst, and for the bytes that are read again
	refs     []int // offsets of all lists, maps and objects, in order
	open     []container
	step     step // to the value that comes next
	replayed int  // bytes that were read again
	tooLarge bool
}

// usualContainers is how many lists, maps and objects most results have at most.
const usualContainers = 8

// container is a list, map or object that is being written.
type container struct {
	at   int // its offset
	step step
}

// step leads from a container to a value in it.
type step struct {
	index    int // in a list
	from, to int // where dst has the name in an object or map, with quotes; equal for a key; to is 0 in a list
}

// enter begins the container whose head was read last.
func (t *transcoder) enter() {
	if t.open == nil {
		t.open = make([]container, 0, usualContainers)
	}
	t.open = append(t.open, container{t.r.at, t.step})
}

func (t *transcoder) leave() { t.open = t.open[:len(t.open)-1] }

func (t *transcoder) value() { t.rest(t.next()) }

// next reads the head of a value, and records the offset of a value with a reference number.
func (t *transcoder) next() token {
	tok := t.r.next()
	switch tok.kind {
	case tokenList, tokenMap, tokenObject:
		if t.refs == nil {
			t.refs = make([]int, 0, usualContainers)
		}
		if !t.r.again {
			t.refs = append(t.refs, t.r.at)
		}
	}
	if !t.fits() {
		return token{}
	}
	return tok
}

// fits reports whether the limit allows what was written and read again so far. Otherwise it ends the input.
func (t *transcoder) fits() bool {
	if len(t.dst) <= t.max && t.replayed <= t.max {
		return true
	}
	t.tooLarge = true
	t.r.fail()
	return false
}

// rest writes the value whose head is tok.
func (t *transcoder) rest(tok token) {
	switch tok.kind {
	case tokenList:
		t.enter()
		t.list(tok)
		t.leave()
	case tokenMap:
		t.enter()
		t.entries(tok)
		t.leave()
	case tokenObject:
		t.enter()
		t.object(tok)
		t.leave()
	case tokenRef:
		t.replay(tok.num)
	case tokenString:
		t.dst = append(t.dst, '"')
		t.dst = appendEscaped(t.dst, tok.text)
		for tok.more && t.fits() {
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
	index := 0
	for n := t.r.enter(tok); t.r.element(&n); index++ {
		t.dst = append(t.dst, open)
		open = ','
		t.step = step{index: index}
		t.value()
	}
	t.end('[', ']', open)
}

func (t *transcoder) entries(tok token) {
	open := byte('{')
	for n := t.r.enter(tok); t.r.element(&n); {
		t.dst = append(t.dst, open)
		open = ','
		from := len(t.dst)
		t.key()
		t.step = step{from: from, to: len(t.dst)}
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

// key writes the key of a map as a string: the name of an enum, the JSON of another object, map or list, as
// fastjson does with WriteNonStringKeyAsString, or a scalar.
func (t *transcoder) key() {
	from := len(t.dst)
	switch tok := t.next(); tok.kind {
	case tokenString, tokenBinary:
		t.rest(tok)
	case tokenObject, tokenMap, tokenList, tokenRef:
		t.step = step{from: from, to: from}
		t.rest(tok)
		if !t.fits() || t.r.bad { // each key around this one would double its escapes
			return
		}
		text := bytes.Clone(t.dst[from:])
		if name := enumName(text); name != nil && tok.kind != tokenMap {
			t.dst = append(t.dst[:from], name...)
			return
		}
		t.dst = appendJSONString(t.dst[:from], text)
	default:
		t.dst = append(t.dst, '"')
		t.scalar(tok)
		t.dst = append(t.dst, '"')
	}
}

// enumName returns the name of an enum with its quotes, or nil if the JSON is of another value. Hessian2 has an
// enum as an object with the name alone.
func enumName(json []byte) []byte {
	name, is := bytes.CutPrefix(json, []byte(`{"name":`))
	if !is || len(name) < len(`""}`) || name[0] != '"' {
		return nil
	}
	name = name[:len(name)-1]
	for i := 1; i < len(name); i++ {
		switch name[i] {
		case '\\':
			i++
		case '"':
			if i == len(name)-1 {
				return name
			}
			return nil
		}
	}
	return nil
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
		from := len(t.dst)
		t.dst = appendJSONString(t.dst, names.name())
		t.step = step{from: from, to: len(t.dst)}
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

// replay writes the list, map or object with this reference number again, or its path inside of itself.
func (t *transcoder) replay(index int64) {
	if index < 0 || index >= int64(len(t.refs)) {
		t.r.fail()
		return
	}
	r := &t.r
	back, types, again := r.i, r.types, r.again
	start := t.refs[index]
	for depth, c := range t.open {
		if c.at == start {
			t.path(depth)
			return
		}
	}
	r.i, r.again = start, true
	t.value()
	if r.bad {
		return
	}
	t.replayed += r.i - start
	r.i, r.types, r.again = back, types, again
}

// path writes a reference to the container at a depth. Within the key of a map the path begins at the key, which
// is a JSON text of its own.
func (t *transcoder) path(depth int) {
	t.dst = append(t.dst, `{"$ref":"$`...)
	root := len(t.dst)
	for _, c := range t.open[1 : depth+1] {
		if c.step.to > 0 {
			if c.step.from == c.step.to { // a key
				t.dst = t.dst[:root]
				continue
			}
			t.dst = append(t.dst, '.')
			t.dst = append(t.dst, inner(t.dst[c.step.from:c.step.to])...)
			continue
		}
		t.dst = append(t.dst, '[')
		t.dst = strconv.AppendInt(t.dst, int64(c.step.index), 10)
		t.dst = append(t.dst, ']')
	}
	t.dst = append(t.dst, `"}`...)
}
