package dubbo

import (
	"encoding/binary"
	"math"
	"strconv"
)

// hessianEncoder writes JSON values, checked against their types, as hessian2. A value that
// hessian2 can't express sets bad. Without a type an object becomes a map, and an array a
// list, which Java converts into the types that the method declares.
type hessianEncoder struct {
	dst     []byte
	text    []byte // room for unescaped text; the encoder keeps its content
	classes int    // number of defined classes
	bad     bool
}

func (e *hessianEncoder) argument(a *argument, descriptor []byte) {
	switch s := shapeOf(descriptor); {
	case !a.json:
		e.dst = appendHessianString(e.dst, a.text)
	case a.text[0] == 'n':
		e.dst = append(e.dst, 'N')
	case s.form == formInteger && s.bits == 64:
		e.dst = appendHessianLong(e.dst, e.integer(a.text))
	case s.form == formDate:
		e.dst = binary.BigEndian.AppendUint64(append(e.dst, 'J'), uint64(e.integer(a.text)))
	case s.form == formFloat:
		e.double(a.text)
	case s.form == formDecimal:
		e.decimal(a.text)
	case s.form == formBig:
		e.bad = true // Java has its int array there, or 0 if it may not access that
	case s.form == formBytes:
		b, _ := decodeBase64(a.text)
		e.dst = appendHessianBinary(e.dst, b)
	default:
		r := jsonReader{b: a.text}
		e.value(&r)
	}
}

func (e *hessianEncoder) value(r *jsonReader) {
	switch r.peek() {
	case '{':
		e.dst = append(e.dst, 'H')
		for r.begin('{'); r.more('}'); {
			e.string(r.key())
			e.value(r)
		}
		e.dst = append(e.dst, 'Z')
	case '[':
		e.list(r)
	case '"':
		e.string(inner(r.stringToken()))
	default:
		e.scalar(r.value())
	}
}

// list writes an array. Its length precedes it, and is written last.
func (e *hessianEncoder) list(r *jsonReader) {
	e.dst = append(e.dst, 'X', 'I', 0, 0, 0, 0)
	at := len(e.dst) - 4
	n := uint32(0)
	for r.begin('['); r.more(']'); n++ {
		e.value(r)
	}
	binary.BigEndian.PutUint32(e.dst[at:], n)
}

// string writes a string, given the text between its JSON quotes.
func (e *hessianEncoder) string(escaped []byte) {
	start := len(e.text)
	e.text = appendUnescaped(e.text, escaped)
	e.dst = appendHessianString(e.dst, e.text[start:])
	e.text = e.text[:start]
}

func (e *hessianEncoder) scalar(json []byte) {
	switch {
	case json[0] == 'n':
		e.dst = append(e.dst, 'N')
	case json[0] == 't':
		e.dst = append(e.dst, 'T')
	case json[0] == 'f':
		e.dst = append(e.dst, 'F')
	case !isInteger(json):
		e.double(json)
	case fitsBits(json, 32):
		e.dst = appendHessianInt(e.dst, int32(e.integer(json)))
	default:
		e.dst = appendHessianLong(e.dst, e.integer(json))
	}
}

func (e *hessianEncoder) integer(json []byte) int64 {
	n, err := strconv.ParseInt(string(json), 10, 64)
	e.bad = e.bad || err != nil
	return n
}

func (e *hessianEncoder) double(json []byte) {
	v, err := strconv.ParseFloat(string(json), 64)
	e.bad = e.bad || err != nil
	e.dst = binary.BigEndian.AppendUint64(append(e.dst, 'D'), math.Float64bits(v))
}

// decimal writes a java.math.BigDecimal: an object whose only field is the text of the number.
func (e *hessianEncoder) decimal(number []byte) {
	e.dst = append(e.dst, 'C', byte(len(bigDecimal)))
	e.dst = append(e.dst, bigDecimal+"\x91\x05valueO"...)
	e.dst = appendHessianInt(e.dst, int32(e.classes))
	e.dst = appendHessianString(e.dst, number)
	e.classes++
}

const bigDecimal = "java.math.BigDecimal"
