package route

import (
	"bytes"
	"maps"
	"regexp"
	"slices"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
)

// valueMatch is a condition on the value of a header or of a parameter of the query.
type valueMatch struct {
	name  string // of a header in lower case
	is    string // a value of config.Condition.Is
	text  []byte
	regex *regexp.Regexp // nil unless is says so
	not   bool
}

func newValueMatches(all map[string]config.Condition, name func(string) string) (out []valueMatch) {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		c := all[key]
		m := valueMatch{name: name(key), is: c.Is, text: []byte(c.Text), not: c.Not}
		if c.Is == config.IsRegex {
			m.regex, _ = config.CompileRegex(c.Text) // valid, as the configuration is
		}
		out = append(out, m)
	}
	return out
}

// holds reports whether the condition holds for a value.
func (m *valueMatch) holds(value []byte) bool {
	if m.regex != nil && len(value) > config.MaxRegexInput {
		return false
	}
	return m.meets(value) != m.not
}

// meets is holds without the negation.
func (m *valueMatch) meets(value []byte) bool {
	switch m.is {
	case config.IsExact:
		return bytes.Equal(value, m.text)
	case config.IsPrefix:
		return bytes.HasPrefix(value, m.text)
	case config.IsRegex:
		return m.regex.Match(value)
	}
	return true // it is present
}

// matchHeader reports whether the condition holds for a header. Several lines of a name are one
// value, joined with a comma and a space (RFC 9110 section 5.3), so a line more can't add a match.
func (m *valueMatch) matchHeader(hs []protocol.Header) bool {
	i := m.lineOf(hs)
	switch {
	case i < 0:
		return m.not
	case m.is == config.IsExact:
		return m.equalLines(hs[i].Value, hs[i+1:]) != m.not
	case m.is == config.IsPresent || m.lineOf(hs[i+1:]) < 0:
		return m.holds(hs[i].Value)
	}
	value := bytebufferpool.Get()
	value.B = m.appendLines(value.B[:0], hs[i:])
	ok := m.holds(value.B)
	bytebufferpool.Put(value)
	return ok
}

// lineOf returns the index of the first line of the header, or -1.
func (m *valueMatch) lineOf(hs []protocol.Header) int {
	for i := range hs {
		if protocol.EqualFold(hs[i].Name, m.name) {
			return i
		}
	}
	return -1
}

// equalLines reports whether a header has the exact value. Its first line has the value first, and
// its others are among hs.
func (m *valueMatch) equalLines(first []byte, hs []protocol.Header) bool {
	rest, ok := bytes.CutPrefix(m.text, first)
	for i := 0; ok && i < len(hs); i++ {
		if !protocol.EqualFold(hs[i].Name, m.name) {
			continue
		}
		if rest, ok = bytes.CutPrefix(rest, listSeparator); ok {
			rest, ok = bytes.CutPrefix(rest, hs[i].Value)
		}
	}
	return ok && len(rest) == 0
}

// appendLines appends the lines of the header, joined, to dst, which is empty. The first of hs is
// one.
func (m *valueMatch) appendLines(dst []byte, hs []protocol.Header) []byte {
	for i := range hs {
		switch {
		case !protocol.EqualFold(hs[i].Name, m.name):
			continue
		case i > 0:
			dst = append(dst, listSeparator...)
		}
		dst = append(dst, hs[i].Value...)
	}
	return dst
}

var listSeparator = []byte(", ")

// matchQuery reports whether the condition holds for the first parameter with its name in the
// query of target.
func (m *valueMatch) matchQuery(target []byte) bool {
	raw, found := Parameter(target, m.name)
	switch {
	case !found:
		return m.not
	case m.is == config.IsPresent || !bytes.ContainsAny(raw, "%+"):
		return m.holds(raw)
	}
	value := bytebufferpool.Get()
	value.B = appendDecoded(value.B[:0], raw)
	ok := m.holds(value.B)
	bytebufferpool.Put(value)
	return ok
}

// Parameter returns the value of the first parameter with a name in the query of target, as it
// is there, with its escapes.
func Parameter(target []byte, name string) (value []byte, found bool) {
	_, query, more := bytes.Cut(target, questionMark)
	for more {
		var pair []byte
		pair, query, more = bytes.Cut(query, pairSeparator)
		key, value, _ := bytes.Cut(pair, valueSeparator)
		if equalDecoded(key, name) {
			return value, true
		}
	}
	return nil, false
}

var pairSeparator, valueSeparator = []byte("&"), []byte("=")

// appendDecoded appends a name or value of a query, decoded as that of a form, to dst.
func appendDecoded(dst, b []byte) []byte {
	for len(b) > 0 {
		c, width := decoded(b)
		dst, b = append(dst, c), b[width:]
	}
	return dst
}

// equalDecoded reports whether a name of a query, decoded, is want.
func equalDecoded(b []byte, want string) bool {
	for i := range len(want) {
		if len(b) == 0 {
			return false
		}
		c, width := decoded(b)
		if c != want[i] {
			return false
		}
		b = b[width:]
	}
	return len(b) == 0
}

// decoded returns the byte that b starts with, and the length of its text. A plus sign is a
// space, and a malformed escape its own text.
func decoded(b []byte) (c byte, width int) {
	switch b[0] {
	case '+':
		return ' ', 1
	case '%':
		if c, ok := unescape(b); ok {
			return c, 3
		}
	}
	return b[0], 1
}
