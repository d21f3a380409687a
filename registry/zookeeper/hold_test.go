package zookeeper

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/registry"
)

// TestHold: each line is what ZooKeeper has, or an event, and which endpoints are used then.
func TestHold(t *testing.T) {
	for name, steps := range map[string][]struct {
		at   int    // seconds
		live string // addresses, after "-" those whose record says that they must not be used; "lost" is a lost session, "start" a start with the cache "a b"
		use  string
	}{
		"no loss": {{0, "a b", "a b"}, {1, "b", "b"}, {2, "", ""}},
		"some come back": {
			{0, "a b c", "a b c"}, {5, "lost", ""}, {5, "b", "a b c"}, {10, "b d", "a b c d"}, {34, "b d", "a b c d"}, {35, "b d", "b d"}, {36, "", ""}},
		"none comes back for long": {
			{0, "a b", "a b"}, {5, "lost", ""}, {5, "", "a b"}, {1000, "", "a b"}, {2000, "b", "a b"}, {2029, "b", "a b"}, {2030, "b", "b"}},
		"all come back": {{0, "a b", "a b"}, {5, "lost", ""}, {5, "a b", "a b"}, {6, "a", "a"}},
		"lost again": {
			{0, "a b", "a b"}, {5, "lost", ""}, {5, "a", "a b"}, {20, "lost", ""}, {20, "", "a b"}, {60, "a", "a b"}, {89, "a", "a b"}, {90, "a", "a"}},
		"comes and goes": {{0, "a b", "a b"}, {5, "lost", ""}, {5, "a", "a b"}, {6, "", "b"}, {35, "", ""}},
		"back, but not to be used": {
			{0, "a b c", "a b c"}, {5, "lost", ""}, {5, "-a", "b c"}, {34, "-a", "b c"}, {35, "-a", ""}},
		"all back, none to be used": {{0, "a b", "a b"}, {5, "lost", ""}, {5, "-a -b", ""}},
		"a start, and none comes back": {
			{0, "start", ""}, {0, "", "a b"}, {29, "", "a b"}, {30, "", ""}, {31, "a", "a"}, {60, "", ""}},
		"a start, and some come back": {
			{0, "start", ""}, {0, "", "a b"}, {20, "b c", "a b c"}, {49, "b c", "a b c"}, {50, "b c", "b c"}},
		"a start, and all are there": {{0, "start", ""}, {0, "a b", "a b"}, {1, "a", "a"}},
		"a start, and the session is lost": {
			{0, "start", ""}, {0, "", "a b"}, {10, "lost", ""}, {10, "", "a b"}, {1000, "", "a b"}, {1001, "c", "a b c"}, {1031, "c", "c"}},
		"lost first": {{0, "lost", ""}, {0, "", ""}, {1, "a", "a"}, {2, "", ""}},
	} {
		var h hold
		begin := time.Unix(1000, 0)
		for i, s := range steps {
			now := begin.Add(time.Duration(s.at) * time.Second)
			switch s.live {
			case "start":
				h.current = []registry.Endpoint{{Addr: "a", Weight: 1}, {Addr: "b", Weight: 1}}
				h.lose(now.Add(30 * time.Second))
				continue
			case "lost":
				h.lose(time.Time{})
				continue
			}
			var live []registry.Endpoint
			var back []string
			for _, a := range strings.Fields(s.live) {
				addr, isOff := strings.CutPrefix(a, "-")
				back = append(back, addr)
				if !isOff {
					live = append(live, registry.Endpoint{Addr: addr, Weight: 1})
				}
			}
			use, wake := h.settle(live, back, now, 30*time.Second)
			var got []string
			for _, e := range use {
				got = append(got, e.Addr)
			}
			if strings.Join(got, " ") != s.use {
				t.Errorf("%s, step %d: use %v, want %s", name, i, got, s.use)
			}
			// The result is the same until wake, and what is held is dropped then.
			after := func(at time.Time) int {
				later := h
				later.held = maps.Clone(h.held)
				use, _ := later.settle(live, nil, at, 30*time.Second)
				return len(use)
			}
			if end := begin.Add(time.Hour); wake.IsZero() && after(end) != len(use) {
				t.Errorf("%s, step %d: changes without a wake", name, i)
			} else if !wake.IsZero() && (!wake.After(now) || after(wake.Add(-1)) != len(use) || after(wake) != len(live)) {
				t.Errorf("%s, step %d: wakes at %v", name, i, wake.Sub(begin))
			}
		}
	}
}
