package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestErrorBounds: what errors show of a file at a bound, and of one that is past it.
func TestErrorBounds(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	keys := func(n int) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, "x%d: 1\n", i)
		}
		return text.String()
	}
	aliases := func(n int) string { // each repeats 256 values
		return "a: &a [" + strings.Repeat("0, ", 254) + "0]\nb: [" + strings.Repeat("*a, ", n) + "]\n"
	}
	for _, c := range []struct {
		what, text string
		want       string // in an error
		last       string // in the last error; empty means the same
		not        string // in no error
	}{
		{"all errors", keys(maxErrors), "x99: unknown key", "", "more"},
		{"an error more", keys(maxErrors + 1), "x99: unknown key", "and 1 more", "x100: unknown key"},
		{"a whole text", "loops: " + x(maxQuoted), `got "` + x(maxQuoted) + `"`, "", "..."},
		{"a byte more", "loops: " + x(maxQuoted+1), `got "` + x(maxQuoted) + `..."`, "", x(maxQuoted + 1)},
		{"a whole path", x(maxShown) + ": 1", ": " + x(maxShown) + ": unknown key", "", "..."},
		{"a path with a byte more", x(maxShown+1) + ": 1", ": " + x(maxShown) + "...: unknown key", "", x(maxShown + 1)},
		{"what a terminal does not show", "\"a\\u202eb\\u00e4\": 1", `a\u202ebä: unknown key`, "", "\u202e"},
		{"aliases", aliases(256), "unknown key", "", "aliases"},
		{"an alias more", aliases(257), "aliases repeat more than 65536 values", "", ""},
	} {
		_, err := Parse("f", []byte(c.text), environment)
		var all Errors
		if !errors.As(err, &all) {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		if got := err.Error(); !strings.Contains(got, c.want) || !strings.Contains(all[len(all)-1].Error(), cmp.Or(c.last, c.want)) || c.not != "" && strings.Contains(got, c.not) {
			t.Errorf("%s: %.700s\nwant %q, at the end %q, and not %q", c.what, got, c.want, cmp.Or(c.last, c.want), c.not)
		}
	}
}

// TestNameHints: how many names are compared with one that is wrong, and listed.
func TestNameHints(t *testing.T) {
	names := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("n%03d", i))
		}
		return all
	}
	long := strings.Repeat("a", 63)
	for _, c := range []struct {
		given string
		names []string
		want  string
	}{
		{"zzzzzzzz", nil, "; there are none"},
		{"zzzzzzzz", []string{""}, "; there are none"},
		{"zzzzzzzz", []string{"b", "b", "", "a"}, "; expected one of b, a"},
		{"zzzzzzzz", names(8), "; expected one of n000, n001, n002, n003, n004, n005, n006, n007"},
		{"zzzzzzzz", names(9), "; expected one of n000, n001, n002, n003, n004, n005, n006, n007 and 1 more"},
		{"n00x", names(maxCompared), "; did you mean n000?"},
		{"n00x", names(maxCompared + 1), "; expected one of n000, n001, n002, n003, n004, n005, n006, n007 and 249 more"},
		{long + "x", []string{long + "b"}, "; did you mean " + long + "b?"},
		{long + "xx", []string{long + "xb"}, "; expected one of " + long + "xb"},
	} {
		if got := knownNames(c.given, c.names); got != c.want {
			t.Errorf("%s of %d names: %q, want %q", c.given, len(c.names), got, c.want)
		}
	}
}

// TestFirstErrors: the line that counts the rest names the file of the first error. It is a warning if the first error is a warning.
func TestFirstErrors(t *testing.T) {
	for _, warning := range []bool{false, true} {
		got := Errors{{File: "b", Text: "x"}, {File: "c", Text: "y"}, {File: "a", Text: "z", Warning: warning}}.first(1)
		if want := (Errors{{File: "a", Text: "z", Warning: warning}, {File: "a", Text: "and 2 more", Warning: warning}}); !slices.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	}
}

// TestDistance compares the number of edits between short texts with that by its definition.
func TestDistance(t *testing.T) {
	texts := []string{""}
	for i := 0; len(texts[i]) < 3; i++ {
		for _, c := range "abc" {
			texts = append(texts, texts[i]+string(c))
		}
	}
	for _, a := range texts {
		for _, b := range append(texts, a+"aba", "bab"+a) {
			if got, want := distance(a, b), edits(a, b); got != want {
				t.Errorf("from %q to %q: %d edits, want %d", a, b, got, want)
			}
		}
	}
}

// edits returns how many edits there are from a to b, by trying all: it is for a few characters, with each of which the work triples.
func edits(a, b string) int {
	if a == "" || b == "" {
		return len(a) + len(b)
	}
	least := min(edits(a[1:], b), edits(a, b[1:])) + 1 // a character is removed or added
	change := 1
	if a[0] == b[0] {
		change = 0
	}
	least = min(least, change+edits(a[1:], b[1:]))
	if len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] {
		least = min(least, 1+edits(a[2:], b[2:]))
	}
	return least
}
