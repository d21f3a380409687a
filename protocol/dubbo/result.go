package dubbo

import (
	"bytes"
	"unicode/utf8"
)

// appendHessianResult appends the result in a hessian2 response, or returns its exception.
func appendHessianResult(dst, body []byte, bare bool, max int) ([]byte, *problem, error) {
	t := transcoder{r: hessianReader{b: body}, dst: dst, max: len(dst) + max}
	switch t.r.int() {
	case kindNull, kindNullWithAttachments:
		t.dst = append(t.dst, "null"...)
	case kindValue, kindValueWithAttachments:
		if head := t.next(); bare && head.kind == tokenString {
			t.dst = t.r.appendText(t.dst, head)
		} else {
			t.rest(head)
		}
	case kindException, kindExceptionWithAttachments:
		thrown := t.r.exception()
		if !t.r.bad {
			return dst, thrown, nil
		}
	default:
		t.r.fail()
	}
	switch {
	case t.tooLarge:
		return dst, nil, ErrResponseTooLarge
	case t.r.bad:
		return dst, nil, ErrBadResponse
	}
	return t.dst, nil, nil
}

// exception reads an exception: class and detailMessage of an object. A string is the message.
func (r *hessianReader) exception() *problem {
	p := new(problem)
	head := r.next()
	if head.kind != tokenObject {
		p.message, _ = r.text(head)
		return p
	}
	class := r.classes[head.num]
	p.class = appendText(nil, r.nameAt(class.name))
	names := hessianReader{b: r.b, i: class.first}
	for n := r.enter(head); r.element(&n); {
		name, field := names.name(), r.next()
		if string(name) == "detailMessage" {
			p.message, _ = r.text(field)
		} else {
			r.skipRest(field)
		}
	}
	return p
}

// text reads the rest of the value whose head is t, and returns the value if it is a string.
func (r *hessianReader) text(t token) ([]byte, bool) {
	if t.kind != tokenString {
		r.skipRest(t)
		return nil, false
	}
	text := r.appendText(nil, t)
	return text, !r.bad
}

func (r *hessianReader) appendText(dst []byte, t token) []byte {
	dst = appendText(dst, t.text)
	for t.more {
		t = r.chunk(tokenString)
		dst = appendText(dst, t.text)
	}
	return dst
}

// appendFastjsonResult appends the result in a fastjson response, or returns its exception. A key of a map becomes a
// string, as in a hessian2 response: fastjson writes {1:"a"} and {{"a":1}:2}, which is no JSON.
func appendFastjsonResult(dst, body []byte, bare bool, max int) ([]byte, *problem, error) {
	lines := lineReader{b: body}
	kind := lines.next()
	if lines.bad || len(kind) != 1 || !utf8.Valid(body) {
		return dst, nil, ErrBadResponse
	}
	switch kind[0] - '0' {
	case kindNull, kindNullWithAttachments:
		return append(dst, "null"...), nil, nil
	case kindValue, kindValueWithAttachments:
		r := jsonReader{b: lines.next(), fastjson: true}
		value := r.value()
		r.end()
		switch {
		case r.bad || lines.bad:
			return dst, nil, ErrBadResponse
		case bare && value[0] == '"':
			return appendUnescaped(dst, inner(value)), nil, nil
		case r.odd:
			return appendQuotedKeys(dst, value, max)
		}
		return appendCompact(dst, value), nil, nil
	case kindException, kindExceptionWithAttachments:
		r := jsonReader{b: lines.next(), fastjson: true}
		value := r.value()
		r.end()
		if r.bad || lines.bad {
			return dst, nil, ErrBadResponse
		}
		return dst, fastjsonException(value), nil
	}
	return dst, nil, ErrBadResponse
}

// keyQuoter writes text of fastjson as JSON, on one line.
type keyQuoter struct {
	r   jsonReader
	dst []byte
	max int // bytes of dst
}

// appendQuotedKeys appends valid text of fastjson as JSON of at most max bytes.
func appendQuotedKeys(dst, text []byte, max int) ([]byte, *problem, error) {
	q := keyQuoter{r: jsonReader{b: text, fastjson: true}, dst: dst, max: len(dst) + max}
	q.value()
	if q.r.bad {
		return dst, nil, ErrResponseTooLarge
	}
	return q.dst, nil, nil
}

func (q *keyQuoter) value() {
	switch open := q.r.peek(); open {
	case '{', '[':
		end := open + '}' - '{'
		before := open
		for q.r.begin(open); q.r.more(end); before = ',' {
			q.dst = append(q.dst, before)
			if open == '{' {
				q.key()
			}
			q.value()
		}
		if before == open {
			q.dst = append(q.dst, open)
		}
		q.dst = append(q.dst, end)
	default:
		q.dst = append(q.dst, q.r.value()...)
	}
}

// key writes a key and its colon. The key of a key doubles its escapes, so that the length is checked here.
func (q *keyQuoter) key() {
	from := len(q.dst)
	isString := q.r.peek() == '"'
	q.value()
	if len(q.dst) > q.max {
		q.r.fail()
	}
	if !isString && !q.r.bad {
		text := bytes.Clone(q.dst[from:])
		q.dst = appendJSONString(q.dst[:from], text)
	}
	q.r.colon()
	q.dst = append(q.dst, ':')
}

// fastjsonException reads an exception: an object with its class as @type, and its message.
// Any other value is the message.
func fastjsonException(value []byte) *problem {
	if value[0] != '{' {
		return &problem{message: jsonText(value)}
	}
	p := new(problem)
	r := jsonReader{b: value, fastjson: true}
	for r.begin('{'); r.more('}'); {
		name := r.key()
		field := r.value()
		switch {
		case string(name) == "@type":
			p.class = jsonText(field)
		case string(name) == "message" && string(field) != "null":
			p.message = jsonText(field)
		}
	}
	return p
}

// jsonText returns the text of a JSON string, or the JSON of any other value.
func jsonText(value []byte) []byte {
	if value[0] == '"' {
		return appendUnescaped(nil, inner(value))
	}
	return value
}
