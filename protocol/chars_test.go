package protocol

import (
	"strings"
	"testing"
)

// TestIsAuthority: a host with or without a port, and nothing else, is an authority.
func TestIsAuthority(t *testing.T) {
	for _, c := range []struct {
		text             string
		valid, withAPort bool // withAPort also where a port is needed
	}{
		{"", true, false},
		{"a", true, false},
		{"a.b-c_d~1:80", true, true},
		{"a%20b!$&'()*+,;=", true, false},
		{"a:0", true, true},
		{"a:65535", true, true},
		{"a:1239", true, true},
		{"a:00080", true, true},
		{"a:", true, false},
		{"a:65536", false, false},
		{"a:99999", false, false},
		{"a:000080", false, false},
		{"a:8a", false, false},
		{"a:/", false, false},
		{"a::80", false, false},
		{":80", false, false},
		{":", false, false},
		{"u@a", false, false},
		{"a/b", false, false},
		{"a b", false, false},
		{"a]", false, false},
		{"[::]", true, false},
		{"[::1]:80", true, true},
		{"[::ffff:1.2.3.4]:1", true, true},
		{"[ABCDEF::abcdef]", true, false},
		{"[::]:", true, false},
		{"[::]80", false, false},
		{"[::]a:80", false, false},
		{"[:]", false, false},
		{"[]", false, false},
		{"[", false, false},
		{"[::1", false, false},
		{"[::g]", false, false},
		{"[fe80::1%25eth0]", false, false},
		{"[[::]", false, false},
	} {
		if got := IsAuthority([]byte(c.text), false); got != c.valid {
			t.Errorf("%q is an authority: %t", c.text, got)
		}
		if got := IsAuthority([]byte(c.text), true); got != c.withAPort {
			t.Errorf("%q is an authority with a port: %t", c.text, got)
		}
	}
}

// TestCharTables: a table has the bytes of its sets, and spans a text up to the first other byte.
func TestCharTables(t *testing.T) {
	alphanumeric := func(c byte) bool {
		return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
	}
	for c := range 256 {
		c := byte(c)
		for name, of := range map[string]struct {
			table *CharTable
			want  bool
		}{
			"TokenChar":  {&TokenChar, alphanumeric(c) || c > ' ' && c < 0x7f && !strings.ContainsRune(`"(),/:;<=>?@[\]{}`, rune(c))},
			"TargetChar": {&TargetChar, c > ' ' && c < 0x7f && c != '#'},
		} {
			text := []byte{'a', c, 'b', c}
			span := 1
			if of.want {
				span = len(text)
			}
			if of.table.Span(text) != span || of.table.All(text) != of.want || of.table[c] != of.want {
				t.Errorf("%s: %q is in it: %t, spans %d", name, c, of.table[c], of.table.Span(text))
			}
		}
	}
	if !TokenChar.All(nil) || TokenChar.Span(nil) != 0 {
		t.Error("an empty text has another byte")
	}
}

// TestDefinesContent: which methods say that there is no content.
func TestDefinesContent(t *testing.T) {
	for method, want := range map[string]bool{
		"GET": false, "HEAD": false, "DELETE": false, "OPTIONS": false, "TRACE": false, "CONNECT": false,
		"POST": true, "PUT": true, "PATCH": true, "get": true, "": true,
	} {
		if got := DefinesContent([]byte(method)); got != want {
			t.Errorf("%q: %t", method, got)
		}
	}
}
