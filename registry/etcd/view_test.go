package etcd

import (
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/registry"
)

// TestViewRules has a script for each rule of the package comment, with a clock of its
// own, a ttl of 10 and a grace of 5 seconds.
func TestViewRules(t *testing.T) {
	type step struct {
		at   int    // seconds
		do   string // "list a b", "lost a b" (a list after a loss), "put a", "del a", ""
		want string // the endpoints afterwards
		wake int    // second of the next wake-up; 0 means none
	}
	for name, script := range map[string][]step{
		"changes": {
			{0, "list a b", "a b", 0}, {1, "put c", "a b c", 0}, {2, "del a", "b c", 0}, {3, "list c", "c", 0},
		},
		"last one is kept for grace": {
			{0, "list a", "a", 0}, {1, "del a", "a", 6}, {5, "", "a", 6}, {6, "", "", 0},
		},
		"last one comes back": {
			{0, "list a", "a", 0}, {1, "del a", "a", 6}, {2, "put b", "b", 0}, {9, "del b", "b", 14},
		},
		"nothing ever": {{0, "list", "", 0}},
		"loss: kept until all had time": {
			{0, "list a b", "a b", 0}, {1, "lost", "a b", 16}, {2, "put a", "a b", 16}, {15, "", "a b", 16}, {16, "", "a", 0},
		},
		"loss: all come back": {
			{0, "list a b", "a b", 0}, {1, "lost a", "a b", 16}, {2, "put b", "a b", 0}, {3, "del b", "a", 0},
		},
		"loss: a new list without loss between": {
			{0, "list a b", "a b", 0}, {1, "lost a", "a b", 16}, {3, "list a c", "a b c", 16}, {16, "", "a c", 0},
		},
		"loss: back and gone again at once": {
			{0, "list a b", "a b", 0}, {1, "lost", "a b", 16}, {2, "put a", "a b", 16}, {3, "del a", "b", 16},
		},
		"loss: kept forever while no node registers": {
			{0, "list a", "a", 0}, {1, "lost", "a", 16}, {16, "", "a", 0}, {999, "", "a", 0}, {1000, "put b", "b", 0},
		},
		"loss, twice": {
			{0, "list a b", "a b", 0}, {1, "lost a", "a b", 16}, {9, "lost", "a b", 24}, {10, "put b", "a b", 24}, {24, "", "b", 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			v, start := newView(10*time.Second, 5*time.Second), time.Now()
			before := ""
			for i, s := range script {
				now := start.Add(time.Duration(s.at) * time.Second)
				op, rest, _ := strings.Cut(s.do, " ")
				switch op {
				case "list", "lost":
					live := make(map[string]entry)
					for _, k := range strings.Fields(rest) {
						live[k] = named(k, 1)
					}
					v.replace(live, op == "lost", now)
				case "put":
					v.put(rest, named(rest, 1))
				case "del":
					v.remove(rest)
				}
				changed, wake := v.settle(now)
				got := spell(v.current)
				if got != s.want {
					t.Fatalf("step %d (%+v): endpoints %q", i, s, got)
				}
				if changed != (got != before) {
					t.Errorf("step %d (%+v): changed %v", i, s, changed)
				}
				if at := start.Add(time.Duration(s.wake) * time.Second); s.wake == 0 && !wake.IsZero() || s.wake != 0 && !wake.Equal(at) {
					t.Errorf("step %d (%+v): wake %v after the start", i, s, wake.Sub(start))
				}
				if kept := len(v.current) - len(v.live); v.kept() != kept || v.holding() != (kept > 0) {
					t.Errorf("step %d (%+v): %d are kept, want %d", i, s, v.kept(), kept)
				}
				before = got
			}
		})
	}
}

func TestViewLaterKeyWins(t *testing.T) {
	for _, order := range [][]string{{"x", "y"}, {"y", "x"}} {
		v := newView(0, 0)
		for _, key := range order {
			e := named("a", 1)
			if key == "y" {
				e.revision, e.endpoint.Weight = 2, 9
			}
			v.put(key, e)
		}
		v.settle(time.Now())
		if len(v.current) != 1 || v.current[0].Weight != 9 {
			t.Errorf("order %v: %v", order, v.current)
		}
	}
}

func named(addr string, revision int64) entry {
	return entry{registry.Endpoint{Addr: addr, Weight: 1}, revision}
}

func spell(endpoints []registry.Endpoint) string {
	var names []string
	for _, e := range endpoints {
		names = append(names, e.Addr)
	}
	return strings.Join(names, " ")
}

func TestPositionLost(t *testing.T) {
	floor := position{cluster: 1, term: 2, revision: 10}
	for _, c := range []struct {
		floor, now position
		want       bool
	}{
		{position{}, floor, false},
		{floor, floor, false},
		{floor, position{1, 3, 12}, false},
		{floor, position{1, 2, 9}, true},
		{floor, position{1, 1, 12}, true},
		{floor, position{2, 2, 12}, true},
	} {
		if got := c.now.lostSince(c.floor); got != c.want {
			t.Errorf("%+v after %+v: %v", c.now, c.floor, got)
		}
	}
}
