package allow

import "bytes"

// withoutQuery returns the path of a request target.
func withoutQuery(target []byte) []byte {
	if i := bytes.IndexByte(target, '?'); i >= 0 {
		return target[:i]
	}
	return target
}

// isPlain reports whether the end of a path stays below its beginning, whatever an application
// does to it: it has no empty segment but the last, no . and .., with or without parameters after
// a semicolon, and no \, nor what an application might decode to one of these.
func isPlain(path []byte) bool {
	for {
		segment, rest, more := bytes.Cut(path, []byte("/"))
		if name, _, _ := bytes.Cut(segment, []byte(";")); string(name) == "." || string(name) == ".." || len(name) == 0 && (more || len(segment) > 0) {
			return false
		}
		if bytes.IndexByte(segment, '\\') >= 0 || !plainEscapes(segment) {
			return false
		}
		if !more {
			return true
		}
		path = rest
	}
}

// plainEscapes reports whether no escape of a segment stands for a byte that ends or changes a
// segment, or begins another escape.
func plainEscapes(segment []byte) bool {
	for {
		i := bytes.IndexByte(segment, '%')
		if i < 0 {
			return true
		}
		if segment = segment[i+1:]; len(segment) < 2 {
			return false
		}
		high, low := unhex(segment[0]), unhex(segment[1])
		switch c := high<<4 | low; {
		case high > 15 || low > 15 || c < ' ' || c == 0x7f:
			return false
		case c == '.' || c == '/' || c == '\\' || c == '%' || c == ';':
			return false
		}
	}
}

// unhex returns the value of a hexadecimal digit, or 255.
func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return (c | 0x20) - 'a' + 10
	}
	return 255
}
