package dubbo

import "encoding/binary"

func (r *hessianReader) skip() { r.skipRest(r.next()) }

// skipRest skips the rest of the value whose head is t.
func (r *hessianReader) skipRest(t token) {
	switch t.kind {
	case tokenEnd:
		r.fail() // no list or map is open
	case tokenString, tokenBinary:
		for t.more {
			t = r.chunk(t.kind)
		}
	case tokenList, tokenObject:
		for n := r.enter(t); r.element(&n); {
			r.skip()
		}
	case tokenMap:
		for n := r.enter(t); r.element(&n); {
			r.skip()
			r.skip()
		}
	}
}

// enter begins the values in the list, map or object t. It returns their number, which element
// counts down, or -1 if that is unknown.
func (r *hessianReader) enter(t token) int {
	if r.depth++; r.depth > maxDepth {
		r.fail()
	}
	switch t.kind {
	case tokenList:
		return int(t.num)
	case tokenObject:
		return r.classes[t.num].fields
	}
	return -1
}

// element reports whether another value follows, or another entry of a map. If none does, it
// leaves the list, map or object.
func (r *hessianReader) element(left *int) bool {
	switch {
	case r.bad:
		return false
	case *left > 0:
		*left--
		return true
	case *left < 0 && r.i < len(r.b) && r.b[r.i] != 'Z':
		return true
	case *left < 0:
		r.next() // the end, unless the input ends here
	}
	r.depth--
	return false
}

func (r *hessianReader) chunk(kind tokenKind) token {
	t := r.next()
	if t.kind != kind {
		return r.fail()
	}
	return t
}

// stringChunk reads a chunk of n UTF-16 code units of one to three bytes each.
func (r *hessianReader) stringChunk(n int, more bool) token {
	size := charsLen(r.b[r.i:], n)
	if size < 0 {
		return r.fail()
	}
	return r.bytes(tokenString, size, more)
}

func (r *hessianReader) binaryChunk(n int, more bool) token {
	if n > len(r.b)-r.i {
		return r.fail()
	}
	return r.bytes(tokenBinary, n, more)
}

func (r *hessianReader) bytes(kind tokenKind, size int, more bool) token {
	if r.bad {
		return token{}
	}
	text := r.b[r.i : r.i+size : r.i+size]
	r.i += size
	return token{kind: kind, text: text, more: more}
}

// charsLen returns the bytes of the first n characters of b; -1 if b is shorter or malformed.
func charsLen(b []byte, n int) int {
	i := 0
	for n > 0 {
		if n >= 8 && i+8 <= len(b) && binary.LittleEndian.Uint64(b[i:])&highBits == 0 {
			i += 8
			n -= 8
			continue
		}
		size := charLen(b[i:])
		if size == 0 {
			return -1
		}
		i += size
		n--
	}
	return i
}

// charLen returns the length of the character at the start of b, or 0 if there is none. Longer forms than the shortest are
// refused: no writer makes them, but Java reads them, so that C1 B0 would be a p to the provider alone.
func charLen(b []byte) int {
	switch {
	case len(b) >= 1 && b[0] < 0x80:
		return 1
	case len(b) >= 2 && 0xc2 <= b[0] && b[0] < 0xe0 && continues(b[1]):
		return 2
	case len(b) >= 3 && b[0]&0xf0 == 0xe0 && (b[0] != 0xe0 || b[1] >= 0xa0) && continues(b[1]) && continues(b[2]):
		return 3
	}
	return 0
}

func continues(c byte) bool { return c&0xc0 == 0x80 }
