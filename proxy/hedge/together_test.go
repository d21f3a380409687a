package hedge

import (
	"testing"
	"time"
)

// TestTogether: an attempt is covered if the endpoints were silent together for more than half of its time.
func TestTogether(t *testing.T) {
	for _, c := range []struct {
		name      string
		noted     []silence
		sent, now time.Duration
		want      bool
	}{
		{"no silence", nil, 10 * ms, 60 * ms, false},
		{"no silence, no time", nil, 0, 0, false},
		{"sent in it", []silence{{100 * ms, 150 * ms}}, 110 * ms, 152 * ms, true},
		{"sent before it", []silence{{100 * ms, 150 * ms}}, 99 * ms, 151 * ms, true},
		{"sent at its end", []silence{{100 * ms, 150 * ms}}, 149 * ms, 152 * ms, false},
		{"sent after it", []silence{{100 * ms, 150 * ms}}, 151 * ms, 160 * ms, false},
		{"in flight for much longer", []silence{{100 * ms, 150 * ms}}, 40 * ms, 151 * ms, false},
		{"it is noted again as it goes on", []silence{{100 * ms, 120 * ms}, {100 * ms, 150 * ms}}, 105 * ms, 151 * ms, true},
		{"a shorter one follows at once", []silence{{100 * ms, 150 * ms}, {150 * ms, 153 * ms}}, 110 * ms, 154 * ms, true},
		{"shorter ones follow at once", []silence{{100 * ms, 150 * ms}, {150 * ms, 153 * ms}, {153 * ms, 155 * ms}}, 110 * ms, 156 * ms, true},
		{"a shorter one follows later", []silence{{100 * ms, 150 * ms}, {250 * ms, 260 * ms}}, 251 * ms, 261 * ms, true},
		{"sent in a shorter one that follows soon", []silence{{100 * ms, 150 * ms}, {170 * ms, 190 * ms}}, 172 * ms, 191 * ms, true},
		{"sent in it, and over after a shorter one", []silence{{100 * ms, 150 * ms}, {170 * ms, 190 * ms}}, 130 * ms, 201 * ms, true},
		{"it is over when another begins", []silence{{100 * ms, 150 * ms}, {150 * ms, 153 * ms}, {157 * ms, 158 * ms}}, 147 * ms, 158 * ms, false},
		{"one as long follows at once", []silence{{100 * ms, 110 * ms}, {110 * ms, 120 * ms}, {120 * ms, 125 * ms}}, 108 * ms, 126 * ms, true},
		{"one of many hears from the others later", []silence{{100 * ms, 150 * ms}, {120 * ms, 151 * ms}}, 101 * ms, 152 * ms, true},
		{"one hears from the others since before the last one", []silence{{0, 10 * ms}, {12 * ms, 13 * ms}, {5 * ms, 14 * ms}}, 5 * ms, 25 * ms, false},
	} {
		var s Together
		for _, n := range c.noted {
			s.Note(n.from, n.to)
		}
		if got := s.Covers(c.sent, c.now); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}
