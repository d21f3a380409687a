package registry

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

// TestLimit: a service has no more endpoints than the bound, and each time that it begins to have more is logged once.
func TestLimit(t *testing.T) {
	for _, most := range []int{0, 7} {
		l, bound := Limit{Most: most}, most
		if most == 0 {
			bound = MaxEndpoints
		}
		var log bytes.Buffer
		for i, c := range []struct{ endpoints, lines int }{
			{bound, 0}, {bound + 1, 1}, {2 * bound, 1}, {0, 1}, {bound + 1, 2},
		} {
			var all []Endpoint
			for n := range c.endpoints {
				all = append(all, Endpoint{Addr: fmt.Sprintf("%05d", n)})
			}
			n := len(l.Cut(all, "s", slog.New(slog.NewTextHandler(&log, nil)).Warn))
			if n != min(c.endpoints, bound) || strings.Count(log.String(), "too many endpoints") != c.lines {
				t.Errorf("bound %d, step %d: %d endpoints, and the log has %s", bound, i, n, log.String())
			}
		}
	}
}

// TestLimitKeeps: of more endpoints than the bound, those that are in use stay.
func TestLimitKeeps(t *testing.T) {
	l := Limit{Most: 3}
	for i, step := range []struct{ has, want string }{
		{"m n", "m n"},
		{"a b c m n", "a m n"},
		{"b c d m n o", "b m n"}, // a has gone
		{"a b c d e f", "a b c"}, // m and n have gone
		{"a", "a"},
		{"0 1 2 a b c", "0 1 a"}, // b and c were not in use
		{"", ""},
	} {
		var all []Endpoint
		for _, addr := range strings.Fields(step.has) {
			all = append(all, Endpoint{Addr: addr, Weight: i + 1})
		}
		var got []string
		for _, e := range l.Cut(all, "s", slog.New(slog.DiscardHandler).Warn) {
			if got = append(got, e.Addr); e.Weight != i+1 {
				t.Errorf("step %d: %s is an old one", i, e.Addr)
			}
		}
		if !slices.Equal(got, strings.Fields(step.want)) {
			t.Errorf("step %d: %v stay, want %s", i, got, step.want)
		}
	}
}
