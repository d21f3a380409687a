package dubbo

import (
	"bytes"
	"unicode/utf8"
)

// parseForm reads the form of a call: interface, method, parameterTypesString
// (descriptors), a parameter for each argument, and where the service has them
// version and group. They come in any order; other fields are left alone.
func (c *Call) parseForm(body []byte) error {
	for len(body) > 0 {
		var field []byte
		field, body, _ = bytes.Cut(body, ampersand)
		name, value, ok := c.pair(field)
		if !ok || !c.field(name, value) {
			return ErrBadForm
		}
	}
	return nil
}

// field takes a field of a form. One that says what was said before, or an
// argument too many, is refused.
func (c *Call) field(name, value []byte) bool {
	switch string(name) {
	case "interface":
		return setOnce(&c.Interface, value)
	case "method":
		return setOnce(&c.Method, value)
	case "parameterTypesString":
		return setOnce(&c.Types, value)
	case "version":
		return setOnce(&c.Version, value)
	case "group":
		return setOnce(&c.Group, value)
	case "parameter":
		if len(c.args) == maxArguments || !utf8.Valid(value) {
			return false
		}
		c.args = append(c.args, argument{text: value})
	}
	return true
}

// setOnce tells whether field was unset: nil, which value is not afterwards.
func setOnce(field *[]byte, value []byte) bool {
	if *field != nil {
		return false
	}
	*field = value
	return true
}
