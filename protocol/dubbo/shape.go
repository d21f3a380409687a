package dubbo

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"unicode/utf8"
)

// shape is what the values of a type look like.
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
		return shape{formText, 0, true}
	case "C", "Ljava/lang/Character;":
		return shape{formChar, 0, len(descriptor) > 1}
	case "Z", "Ljava/lang/Boolean;":
		return shape{formBool, 0, len(descriptor) > 1}
	case "B", "Ljava/lang/Byte;":
		return shape{formInteger, 8, len(descriptor) > 1}
	case "S", "Ljava/lang/Short;":
		return shape{formInteger, 16, len(descriptor) > 1}
	case "I", "Ljava/lang/Integer;":
		return shape{formInteger, 32, len(descriptor) > 1}
	case "J", "Ljava/lang/Long;":
		return shape{formInteger, 64, len(descriptor) > 1}
	case "F", "D", "Ljava/lang/Float;", "Ljava/lang/Double;":
		return shape{formFloat, 0, len(descriptor) > 1}
	case "Ljava/math/BigDecimal;":
		return shape{formDecimal, 0, true}
	case "Ljava/math/BigInteger;":
		return shape{formBig, 0, true}
	case "[B":
		return shape{formBytes, 0, true}
	case "Ljava/util/Date;":
		return shape{formDate, 64, true}
	}
	return shape{formAny, 0, true}
}

// fits tells whether the argument is a value of the type. What came as text is
// checked to be JSON unless the type is textual.
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

// decodeBase64 decodes a JSON string.
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

// isInteger tells whether a JSON number has neither fraction nor exponent.
func isInteger(number []byte) bool { return !bytes.ContainsAny(number, ".eE") }

func fitsBits(integer []byte, bits int) bool {
	_, err := strconv.ParseInt(string(integer), 10, bits)
	return err == nil
}
