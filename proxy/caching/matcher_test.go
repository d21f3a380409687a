package caching

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestMatcher: a matcher finds what a search for each of its patterns finds, also if they overlap or begin with one another.
func TestMatcher(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	word := func(letters string, most int) string {
		b := make([]byte, 1+rnd.IntN(most))
		for i := range b {
			b[i] = letters[rnd.IntN(len(letters))]
		}
		return string(b)
	}
	plain := strings.NewReplacer("_", "-", ".", "-")
	for range 300 {
		patterns := make([]string, 1+rnd.IntN(6))
		for i := range patterns {
			patterns[i] = word("abz-", 5)
		}
		m := newMatcher(patterns)
		for range 50 {
			name := word("abzABZ-_.1{@", 9)
			text := "-" + plain.Replace(strings.ToLower(name)) + "-"
			want := slices.ContainsFunc(patterns, func(p string) bool { return strings.Contains(text, p) })
			if got := m.find([]byte(name)); got != want {
				t.Fatalf("%q in %q: %t", patterns, name, got)
			}
		}
	}
}
