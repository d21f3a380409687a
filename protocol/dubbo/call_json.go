package dubbo

import (
	"bytes"
	"unicode/utf8"
)

// parseJSON reads a call from its path and its body. The path is /interface/method, with
// version and group in the query if the service has them. The body is an object with the
// arguments as "args". Unless the types can be inferred from these, "types" has their Java
// names (int, java.lang.String, long[]) or descriptors.
func (c *Call) parseJSON(path, body []byte) error {
	path, query, _ := bytes.Cut(path, []byte("?"))
	if !c.parsePath(path) {
		return ErrNotCall
	}
	if !c.parseQuery(query) {
		return ErrBadName
	}
	if !utf8.Valid(body) {
		return ErrBadJSON
	}
	types, err := c.parseObject(body)
	if err != nil {
		return err
	}
	if types == nil {
		c.inferTypes()
		return nil
	}
	return c.parseTypes(types)
}

func (c *Call) parsePath(path []byte) bool {
	rest, ok := bytes.CutPrefix(path, []byte("/"))
	service, method, found := bytes.Cut(rest, []byte("/"))
	if !ok || !found || bytes.IndexByte(method, '/') >= 0 {
		return false
	}
	var okService, okMethod bool
	c.Interface, okService = c.percentDecode(service)
	c.Method, okMethod = c.percentDecode(method)
	return okService && okMethod && len(service) > 0 && len(method) > 0
}

func (c *Call) parseQuery(query []byte) bool {
	for len(query) > 0 {
		var field []byte
		field, query, _ = bytes.Cut(query, []byte("&"))
		name, value, ok := c.pair(field)
		switch {
		case !ok:
			return false
		case string(name) == "version":
			ok = setOnce(&c.Version, value)
		case string(name) == "group":
			ok = setOnce(&c.Group, value)
		}
		if !ok {
			return false
		}
	}
	return true
}

// parseObject reads the body. It returns the JSON text of the types, or nil.
func (c *Call) parseObject(body []byte) (types []byte, err error) {
	hasArgs := false
	r := jsonReader{b: body}
	for r.begin('{'); r.more('}'); {
		switch name := r.key(); {
		case string(name) == "types" && types == nil:
			types = r.value()
		case string(name) == "args" && !hasArgs:
			hasArgs = true
			for r.begin('['); r.more(']'); {
				if len(c.args) == maxArguments {
					return nil, ErrArguments
				}
				c.args = append(c.args, argument{text: r.value(), json: true})
			}
		default:
			return nil, ErrBadJSON // an unknown or repeated member
		}
	}
	r.end()
	if r.bad {
		return nil, ErrBadJSON
	}
	return types, nil
}

func (c *Call) parseTypes(array []byte) error {
	r := jsonReader{b: array}
	descriptors := make([]byte, 0, 64)
	for r.begin('['); r.more(']'); {
		if r.peek() != '"' {
			return ErrBadTypes
		}
		name := appendUnescaped(nil, inner(r.stringToken()))
		start := len(descriptors)
		if descriptorLen(name) == len(name) {
			descriptors = append(descriptors, name...)
		} else {
			descriptors = appendDescriptor(descriptors, name)
		}
		if one := descriptors[start:]; len(one) == 0 || descriptorLen(one) != len(one) {
			return ErrBadTypes
		}
	}
	if r.bad {
		return ErrBadTypes
	}
	c.Types = descriptors
	return nil
}

// inferTypes derives the types from the arguments. A string or null is a java.lang.String;
// true and false are boolean. A number without fraction and exponent is an int or, if it does
// not fit, a long; other numbers are double. An array is a java.util.List and an object a
// java.util.Map.
func (c *Call) inferTypes() {
	types := make([]byte, 0, 64)
	for i := range c.args {
		types = append(types, inferType(c.args[i].text)...)
	}
	c.Types = types
}

func inferType(json []byte) string {
	switch json[0] {
	case '"', 'n':
		return "Ljava/lang/String;"
	case 't', 'f':
		return "Z"
	case '[':
		return "Ljava/util/List;"
	case '{':
		return "Ljava/util/Map;"
	}
	switch {
	case !isInteger(json):
		return "D"
	case fitsBits(json, 32):
		return "I"
	}
	return "J"
}
