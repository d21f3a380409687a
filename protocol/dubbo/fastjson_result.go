package dubbo

// appendFastjsonResult appends what the body of an answer in fastjson holds, or
// returns the exception that it tells of.
func appendFastjsonResult(dst, body []byte, bare bool) ([]byte, *problem, error) {
	lines := lineReader{b: body}
	kind := lines.next()
	if lines.bad || len(kind) != 1 {
		return dst, nil, ErrBadAnswer
	}
	switch kind[0] - '0' {
	case kindNull, kindNullWithAttachments:
		return append(dst, "null"...), nil, nil
	case kindValue, kindValueWithAttachments:
		value, ok := oneJSON(lines.next())
		switch {
		case !ok || lines.bad:
			return dst, nil, ErrBadAnswer
		case bare && value[0] == '"':
			return appendUnescaped(dst, inner(value)), nil, nil
		}
		return appendCompact(dst, value), nil, nil
	case kindException, kindExceptionWithAttachments:
		value, ok := oneJSON(lines.next())
		if !ok || lines.bad {
			return dst, nil, ErrBadAnswer
		}
		return dst, fastjsonException(value), nil
	}
	return dst, nil, ErrBadAnswer
}

// fastjsonException reads an exception: an object with its class as @type, and
// its message. What is no object is all message.
func fastjsonException(value []byte) *problem {
	if value[0] != '{' {
		return &problem{message: jsonText(value)}
	}
	p := new(problem)
	r := jsonReader{b: value}
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

// jsonText returns the text of a JSON string, or the JSON of anything else.
func jsonText(value []byte) []byte {
	if value[0] == '"' {
		return appendUnescaped(nil, inner(value))
	}
	return value
}
