package dubbo

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxArguments is the maximum for a Java method (JVMS section 4.3.3).
const maxArguments = 255

func countTypes(descriptors []byte) (n int, ok bool) {
	for len(descriptors) > 0 {
		size := descriptorLen(descriptors)
		if size == 0 || n == maxArguments {
			return 0, false
		}
		descriptors = descriptors[size:]
		n++
	}
	return n, true
}

// descriptorLen returns the length of the field descriptor (JVMS section 4.3.2) at the start
// of b, or 0. It accepts V, which dubbo-go sends as the type of null.
func descriptorLen(b []byte) int {
	i := 0
	for i < len(b) && b[i] == '[' {
		i++
	}
	if i == len(b) {
		return 0
	}
	switch b[i] {
	case 'B', 'C', 'D', 'F', 'I', 'J', 'S', 'V', 'Z':
		return i + 1
	case 'L':
		n := bytes.IndexByte(b[i:], ';')
		if n > 1 && isClassName(b[i+1:i+n]) {
			return i + n + 1
		}
	}
	return 0
}

// isClassName reports whether name is valid as the internal form of a class name (JVMS section
// 4.2.1), which allows nearly anything.
func isClassName(name []byte) bool {
	for _, c := range name {
		if !classNameByte[c] {
			return false
		}
	}
	return utf8.Valid(name)
}

// classNameByte reports whether a byte may be in the name of a class.
var classNameByte = func() (t [256]bool) {
	for c := range t {
		t[c] = c > ' ' && !strings.ContainsRune(".[\"\\\x7f", rune(c))
	}
	return t
}()

// appendDescriptor appends the descriptor of the Java type called name. If name is not a type,
// the result is not a valid descriptor.
func appendDescriptor(dst, name []byte) []byte {
	for {
		element, isArray := bytes.CutSuffix(name, []byte("[]"))
		if !isArray {
			break
		}
		dst = append(dst, '[')
		name = element
	}
	if code := primitives[string(name)]; code != 0 {
		return append(dst, code)
	}
	dst = append(dst, 'L')
	for _, c := range name {
		if c == '.' {
			c = '/'
		}
		dst = append(dst, c)
	}
	return append(dst, ';')
}

var primitives = map[string]byte{
	"boolean": 'Z', "byte": 'B', "char": 'C', "double": 'D', "float": 'F', "int": 'I', "long": 'J', "short": 'S',
}

// shape is the JSON form of the values of a type.
type shape struct {
	form     valueForm
	bits     int // of an integer
	nullable bool
}

type valueForm uint8

const (
	formAny     valueForm = iota // any JSON
	formText                     // a string
	formChar                     // a string of one UTF-16 code unit
	formBool                     //
	formInteger                  //
	formFloat                    //
	formDecimal                  // a number of any size
	formBig                      // an integer of any size
	formDate                     // an integer: milliseconds since 1970
	formBytes                    // a string: base64
)

func shapeOf(descriptor []byte) shape {
	switch string(descriptor) {
	case "Ljava/lang/String;", "Ljava/lang/CharSequence;", "[C":
		return shape{form: formText, nullable: true}
	case "C", "Ljava/lang/Character;":
		return shape{form: formChar, nullable: len(descriptor) > 1}
	case "Z", "Ljava/lang/Boolean;":
		return shape{form: formBool, nullable: len(descriptor) > 1}
	case "B", "Ljava/lang/Byte;":
		return shape{form: formInteger, bits: 8, nullable: len(descriptor) > 1}
	case "S", "Ljava/lang/Short;":
		return shape{form: formInteger, bits: 16, nullable: len(descriptor) > 1}
	case "I", "Ljava/lang/Integer;":
		return shape{form: formInteger, bits: 32, nullable: len(descriptor) > 1}
	case "J", "Ljava/lang/Long;":
		return shape{form: formInteger, bits: 64, nullable: len(descriptor) > 1}
	case "F", "D", "Ljava/lang/Float;", "Ljava/lang/Double;":
		return shape{form: formFloat, nullable: len(descriptor) > 1}
	case "Ljava/math/BigDecimal;":
		return shape{form: formDecimal, nullable: true}
	case "Ljava/math/BigInteger;":
		return shape{form: formBig, nullable: true}
	case "[B":
		return shape{form: formBytes, nullable: true}
	case "Ljava/util/Date;":
		return shape{form: formDate, bits: 64, nullable: true}
	}
	return shape{form: formAny, nullable: true}
}

// fits reports whether the argument is a value of the type. An argument of a form must be
// JSON, unless the type is textual.
func (a *argument) fits(descriptor []byte) bool {
	s := shapeOf(descriptor)
	textual := s.form == formText || s.form == formChar
	if !a.json {
		if textual {
			return s.form == formText || isOneUnit(a.text)
		}
		value, ok := oneJSON(a.text)
		if !ok {
			return false
		}
		a.text, a.json = value, true
	}
	first := a.text[0]
	isNumber := first == '-' || '0' <= first && first <= '9'
	switch {
	case first == 'n':
		return s.nullable
	case textual:
		return first == '"' && (s.form == formText || isOneUnit(appendUnescaped(nil, inner(a.text))))
	case s.form == formBool:
		return first == 't' || first == 'f'
	case s.form == formInteger, s.form == formDate:
		return isNumber && isInteger(a.text) && fitsBits(a.text, s.bits)
	case s.form == formBig:
		return isNumber && isInteger(a.text)
	case s.form == formFloat, s.form == formDecimal:
		return isNumber
	case s.form == formBytes:
		_, ok := decodeBase64(a.text)
		return ok
	}
	return true
}

func decodeBase64(json []byte) ([]byte, bool) {
	if json[0] != '"' {
		return nil, false
	}
	b, err := base64.StdEncoding.AppendDecode(nil, appendUnescaped(nil, inner(json)))
	return b, err == nil
}

func isOneUnit(text []byte) bool {
	r, n := utf8.DecodeRune(text)
	return len(text) > 0 && n == len(text) && r <= 0xffff
}

// isInteger reports whether a JSON number has neither fraction nor exponent.
func isInteger(number []byte) bool { return !bytes.ContainsAny(number, ".eE") }

func fitsBits(integer []byte, bits int) bool {
	_, err := strconv.ParseInt(string(integer), 10, bits)
	return err == nil
}
