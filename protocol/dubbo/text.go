package dubbo

import (
	"encoding/binary"
	"math"
	"unicode/utf16"
	"unicode/utf8"
)

// Text is UTF-8, except in hessian2, where a character outside the BMP is a pair of surrogates
// with three bytes each (CESU-8). The append functions accept both and append UTF-8.

const hexDigits = "0123456789abcdef"

func appendJSONString(dst, text []byte) []byte {
	dst = append(dst, '"')
	dst = appendEscaped(dst, text)
	return append(dst, '"')
}

// appendEscaped appends text escaped as between the quotes of a JSON string.
func appendEscaped(dst, text []byte) []byte { return appendEscapedUpTo(dst, text, math.MaxInt) }

// appendEscapedUpTo is appendEscaped, but ends before the end of text once dst has more than limit bytes.
func appendEscapedUpTo(dst, text []byte, limit int) []byte {
	for {
		n := plainLen(text)
		dst = append(dst, text[:n]...)
		if n == len(text) || len(dst) > limit {
			return dst
		}
		switch c := text[n]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		case surrogateLead:
			r, size := decodeSurrogates(text[n:])
			dst = utf8.AppendRune(dst, r)
			text = text[n+size:]
			continue
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
		}
		text = text[n+1:]
	}
}

func appendText(dst, text []byte) []byte {
	for i := 0; i < len(text); {
		if text[i] != surrogateLead {
			dst = append(dst, text[i])
			i++
			continue
		}
		r, size := decodeSurrogates(text[i:])
		dst = utf8.AppendRune(dst, r)
		i += size
	}
	return dst
}

const (
	surrogateLead = 0xed // first byte of a surrogate in CESU-8, and of U+D000 to U+D7FF
	lowBits       = 0x0101010101010101
	highBits      = 0x8080808080808080
)

// plainLen returns the length of the prefix of text that needs no escape in a JSON string. It
// tests eight bytes at a time while they are ASCII.
func plainLen(text []byte) int {
	i := 0
	for ; i+8 <= len(text); i += 8 {
		v := binary.LittleEndian.Uint64(text[i:])
		quote, backslash := v^'"'*lowBits, v^'\\'*lowBits
		// With all bytes below 0x80, a subtraction borrows where one is too small.
		if (v|(v-0x20*lowBits)|(quote-lowBits)|(backslash-lowBits))&highBits != 0 {
			break
		}
	}
	for ; i < len(text); i++ {
		if c := text[i]; c < 0x20 || c == '"' || c == '\\' || c == surrogateLead {
			break
		}
	}
	return i
}

// decodeSurrogates returns the character at the start of b, which must begin with
// surrogateLead, and its length. Half a surrogate pair becomes U+FFFD.
func decodeSurrogates(b []byte) (rune, int) {
	high, ok := threeBytes(b)
	switch {
	case !ok:
		return utf8.RuneError, 1
	case !utf16.IsSurrogate(high):
		return high, 3
	}
	if low, ok := threeBytes(b[3:]); ok {
		if r := utf16.DecodeRune(high, low); r != utf8.RuneError {
			return r, 6
		}
	}
	return utf8.RuneError, 3
}

func threeBytes(b []byte) (rune, bool) {
	if len(b) < 3 || b[0]&0xf0 != 0xe0 {
		return 0, false
	}
	return rune(b[0]&0xf)<<12 | rune(b[1]&0x3f)<<6 | rune(b[2]&0x3f), true
}

func inner(quoted []byte) []byte { return quoted[1 : len(quoted)-1] }

// appendUnescaped appends the text in the quotes of a valid JSON string, without its escapes.
func appendUnescaped(dst, b []byte) []byte {
	for len(b) > 0 {
		if b[0] != '\\' {
			dst = append(dst, b[0])
			b = b[1:]
			continue
		}
		var r rune
		r, b = unescape(b)
		dst = utf8.AppendRune(dst, r)
	}
	return dst
}

// escapes has the characters that a backslash and one character stand for.
var escapes = [256]byte{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

// unescape returns the character of the escape at the start of b, and the rest of b.
func unescape(b []byte) (rune, []byte) {
	if b[1] != 'u' {
		return rune(escapes[b[1]]), b[2:]
	}
	r, _ := hex4(b[2:])
	b = b[6:]
	if utf16.IsSurrogate(r) {
		return lowSurrogate(r, b)
	}
	return r, b
}

// lowSurrogate joins high with an escape at the start of b, if that is a low surrogate.
func lowSurrogate(high rune, b []byte) (rune, []byte) {
	if len(b) >= 6 && b[0] == '\\' && b[1] == 'u' {
		low, _ := hex4(b[2:])
		if r := utf16.DecodeRune(high, low); r != utf8.RuneError {
			return r, b[6:]
		}
	}
	return utf8.RuneError, b
}

// appendCompact appends valid JSON without the white space between its tokens, as one line.
func appendCompact(dst, json []byte) []byte {
	inString := false
	for i := 0; i < len(json); i++ {
		c := json[i]
		switch {
		case !inString && isJSONSpace(c):
			continue
		case c == '"':
			inString = !inString
		case inString && c == '\\':
			dst = append(dst, c)
			i++
			c = json[i]
		}
		dst = append(dst, c)
	}
	return dst
}
