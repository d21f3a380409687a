package fleet

import (
	"strings"
	"testing"

	"github.com/remora-proxy/remora/fleet"
)

// TestDiff compares texts line by line.
func TestDiff(t *testing.T) {
	for _, c := range []struct{ a, b, want string }{
		{"", "", ""},
		{"a\n", "a\n", " a\n"},
		{"", "a\nb", "+a\n+b\n"},
		{"a\nb", "", "-a\n-b\n"},
		{"a\nb\nc\n", "a\nx\nc\n", " a\n-b\n+x\n c\n"},
		{"a\tb\n", "\x1b[31mred\u202e\r\n", "-a\tb\n+\ufffd[31mred\ufffd\ufffd\n"},
		{"a\nb\nc\nd\n", "b\nd\ne\n", "-a\n b\n-c\n d\n+e\n"},
		{strings.Repeat("a\n", 3000), strings.Repeat("b\n", 3000), strings.Repeat("-a\n", 3000) + strings.Repeat("+b\n", 3000)},
	} {
		var out strings.Builder
		if err := printDiff(&out, lines(c.a), lines(c.b)); err != nil || out.String() != c.want {
			t.Errorf("%.20q and %.20q: got %.60q, %v; want %.60q", c.a, c.b, out.String(), err, c.want)
		}
	}
}

// TestDefaultSides: without arguments diff compares what a roll-out changes, or what the last one has changed.
func TestDefaultSides(t *testing.T) {
	for _, c := range []struct {
		head     fleet.Head
		from, to string
	}{
		{fleet.Head{}, "0", "0"},
		{fleet.Head{Stable: 1, Candidate: 2, Past: []int64{0}}, "1", "2"},
		{fleet.Head{Stable: 3, Past: []int64{0, 1}}, "1", "3"},
		{fleet.Head{Stable: 3}, "0", "3"},
	} {
		if from, to := defaultSides(&c.head); from != c.from || to != c.to {
			t.Errorf("%+v: %s and %s", c.head, from, to)
		}
	}
}
