package dubbo

// appendHessianResult appends what the body of an answer in hessian2 holds, or
// returns the exception that it tells of.
func appendHessianResult(dst, body []byte, bare bool, max int) ([]byte, *problem, error) {
	t := transcoder{r: hessianReader{b: body}, dst: dst, max: len(dst) + max}
	switch t.r.int() {
	case kindNull, kindNullWithAttachments:
		t.dst = append(t.dst, "null"...)
	case kindValue, kindValueWithAttachments:
		if head := t.next(); bare && head.kind == tokenString {
			t.text(head)
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
		return dst, nil, ErrReplyTooLarge
	case t.r.bad:
		return dst, nil, ErrBadAnswer
	}
	return t.dst, nil, nil
}

// text writes a string as text.
func (t *transcoder) text(tok token) {
	t.dst = appendText(t.dst, tok.text)
	for tok.more {
		tok = t.r.chunk(tokenString)
		t.dst = appendText(t.dst, tok.text)
	}
}

// exception reads an exception: an object, of which the class and the
// detailMessage are kept. What is a string is all message.
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

// text reads the rest of the value that t is the head of, and returns it if it is
// a string.
func (r *hessianReader) text(t token) ([]byte, bool) {
	if t.kind != tokenString {
		r.skipRest(t)
		return nil, false
	}
	text := appendText(nil, t.text)
	for t.more {
		t = r.chunk(tokenString)
		text = appendText(text, t.text)
	}
	return text, !r.bad
}
