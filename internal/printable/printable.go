// Package printable keeps characters that do something from what people and parsers read. Names, paths and
// addresses come from strangers, and may hold control sequences of a terminal (U+009B), line ends (U+0085), or
// marks that turn the direction of text (U+202E).
package printable

import (
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Is reports whether a character shows as itself. Of blanks only the space does.
func Is(r rune) bool { return unicode.IsPrint(r) }

// Text replaces the characters of text that are neither printable nor in keep with U+FFFD.
func Text(text, keep string) string {
	return strings.Map(func(r rune) rune {
		if Is(r) || strings.ContainsRune(keep, r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

const hex = "0123456789abcdef"

// AppendEscape appends a character as a JSON string has it escaped (RFC 8259 section 7).
func AppendEscape(dst []byte, r rune) []byte {
	if r > 0xffff {
		high, low := utf16.EncodeRune(r)
		return AppendEscape(AppendEscape(dst, high), low)
	}
	return append(dst, '\\', 'u', hex[r>>12&0xf], hex[r>>8&0xf], hex[r>>4&0xf], hex[r&0xf])
}

// AppendJSON appends JSON with all characters of its strings escaped that are not printable. Outside of
// strings JSON has none but line ends and tabs, which stay.
func AppendJSON(dst, text []byte) []byte {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		if Is(r) || r == '\n' || r == '\t' {
			dst = append(dst, text[:n]...)
		} else {
			dst = AppendEscape(dst, r)
		}
		text = text[n:]
	}
	return dst
}

// JSON returns a writer of JSON to w that does what AppendJSON does. A character must not be split over two
// calls.
func JSON(w io.Writer) io.Writer { return jsonWriter{w} }

type jsonWriter struct{ to io.Writer }

func (w jsonWriter) Write(b []byte) (int, error) {
	if _, err := w.to.Write(AppendJSON(make([]byte, 0, len(b)), b)); err != nil {
		return 0, err
	}
	return len(b), nil
}
