package fleet

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
)

// nodes returns the node.ids of a fleet.
func nodes(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("node-%d", i))
	}
	return ids
}

// running returns the nodes that run a revision.
func (h *Head) running(revision int64, ids []string) (on []string) {
	for _, id := range ids {
		if h.RevisionOf(id, nil) == revision {
			on = append(on, id)
		}
	}
	return on
}

func mustTarget(t *testing.T, text string) Target {
	t.Helper()
	to, err := ParseTarget(text)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// TestRollout: a fleet of any size goes through 5%, 20% and 100%. Each part is as large as it says, rounded up, and
// contains the smaller one.
func TestRollout(t *testing.T) {
	for _, size := range []int{1, 2, 10, 30, 1000} {
		ids := nodes(size)
		h, err := Head{}.Set(mustTarget(t, "5%").Among(ids), nil, Change{})
		if err != nil {
			t.Fatal(err)
		}
		var before []string
		for _, percent := range []int{5, 20, 50, 99} {
			if h, err = h.Rollout(mustTarget(t, fmt.Sprintf("%d%%", percent)).Among(ids), nil, Change{}); err != nil {
				t.Fatal(err)
			}
			on := h.running(1, ids)
			if want := (size*percent + 99) / 100; len(on) != want {
				t.Errorf("%d%% of %d sidecars: %d run it, want %d", percent, size, len(on), want)
			}
			for _, id := range before {
				if !slices.Contains(on, id) {
					t.Errorf("%s ran it, and does not at %d%%", id, percent)
				}
			}
			before = on
		}
		if h, err = h.Rollout(Everywhere(), nil, Change{}); err != nil || h.Stable != 1 || h.Candidate != 0 {
			t.Errorf("at the end: %+v, %v", h, err)
		}
	}
}

// TestRolloutOfFewer: a larger part contains the smaller one, also if fewer sidecars are known then.
func TestRolloutOfFewer(t *testing.T) {
	ids := nodes(100)
	h, err := Head{}.Set(mustTarget(t, "10%").Among(ids), nil, Change{})
	if err != nil {
		t.Fatal(err)
	}
	before := h.running(1, ids)
	if h, err = h.Rollout(mustTarget(t, "20%").Among(before[5:]), nil, Change{}); err != nil {
		t.Fatal(err)
	}
	if after := h.running(1, ids); !slices.Equal(before, after) {
		t.Errorf("%v at 10%%, %v at 20%%", before, after)
	}
	if h, err = h.Rollout(mustTarget(t, "5%").Among(ids), nil, Change{}); err != nil || len(h.running(1, ids)) != 5 {
		t.Errorf("back to 5%%: %v, %v", h.running(1, ids), err)
	}
}

// TestTargets: texts that name sidecars, and others.
func TestTargets(t *testing.T) {
	for _, c := range []struct {
		text     string
		labels   map[string]string
		selected bool
	}{
		{"100%", nil, true},
		{"tier=canary", map[string]string{"tier": "canary", "zone": "a"}, true},
		{"tier=canary", map[string]string{"tier": "other"}, false},
		{"tier=canary", nil, false},
		{"tier=canary,zone=a", map[string]string{"tier": "canary"}, false},
		{"tier=canary,zone=a", map[string]string{"tier": "canary", "zone": "a"}, true},
	} {
		to := mustTarget(t, c.text)
		if got := to.Selects("n", c.labels); got != c.selected || to.String() != c.text {
			t.Errorf("%s and %v: %v, printed as %s", c.text, c.labels, got, to)
		}
	}
	for _, text := range []string{"", "0%", "101%", "-1%", "5", "5.5%", "%", "tier", "tier=", "=canary", "a=b,"} {
		if _, err := ParseTarget(text); !errors.Is(err, errTarget) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if to := (Target{}); to.Selects("n", nil) {
		t.Error("the zero Target selects a sidecar")
	}
}

// TestChanges: sequences of changes, and the head after them.
func TestChanges(t *testing.T) {
	set := func(h Head) (Head, error) { return h.Set(Everywhere(), nil, Change{}) }
	some := func(h Head) (Head, error) { return h.Set(Target{Percent: 5, Cut: 1}, nil, Change{}) }
	finish := func(h Head) (Head, error) { return h.Rollout(Everywhere(), nil, Change{}) }
	back := func(h Head) (Head, error) { return h.Rollback(Change{}) }
	to := func(n int64) func(Head) (Head, error) {
		return func(h Head) (Head, error) { return h.RollbackTo(n, Change{}) }
	}
	type step = func(Head) (Head, error)
	for _, c := range []struct {
		name                      string
		steps                     []step
		newest, stable, candidate int64
		past                      []int64
		fails                     bool // the last step
	}{
		{"first", []step{set}, 1, 1, 0, []int64{0}, false},
		{"two", []step{set, set}, 2, 2, 0, []int64{0, 1}, false},
		{"roll-out", []step{set, some}, 2, 1, 2, []int64{0}, false},
		{"set during a roll-out", []step{some, set}, 1, 0, 1, nil, true},
		{"finished", []step{set, some, finish}, 2, 2, 0, []int64{0, 1}, false},
		{"nothing to finish", []step{finish}, 0, 0, 0, nil, true},
		{"taken back", []step{set, some, back}, 2, 1, 0, []int64{0}, false},
		{"set after it was taken back", []step{set, some, back, set}, 3, 3, 0, []int64{0, 1}, false},
		{"back", []step{set, set, back}, 2, 1, 0, []int64{0}, false},
		{"back twice", []step{set, set, back, back}, 2, 0, 0, nil, false},
		{"back too often", []step{set, back, back}, 1, 0, 0, nil, true},
		{"back to a revision", []step{set, set, set, to(1)}, 3, 1, 0, []int64{0, 1, 2, 3}, false},
		{"to the files alone", []step{set, to(0)}, 1, 0, 0, []int64{0, 1}, false},
		{"to a revision during a roll-out", []step{set, some, to(2)}, 2, 2, 0, []int64{0, 1}, false},
		{"to no revision", []step{set, to(2)}, 1, 1, 0, []int64{0}, true},
		{"to a negative one", []step{set, to(-1)}, 1, 1, 0, []int64{0}, true},
	} {
		var h Head
		var err error
		for i, s := range c.steps {
			if err != nil {
				t.Fatalf("%s: step %d: %v", c.name, i, err)
			}
			h, err = s(h)
		}
		if len(h.Past) == 0 {
			h.Past = nil
		}
		if (err != nil) != c.fails || h.Newest != c.newest || h.Stable != c.stable || h.Candidate != c.candidate || !reflect.DeepEqual(h.Past, c.past) {
			t.Errorf("%s: %+v, %v", c.name, h, err)
		}
	}
}

// TestPastIsBounded: rollback finds the last revisions.
func TestPastIsBounded(t *testing.T) {
	var h Head
	var err error
	for range maxPast + 5 {
		if h, err = h.Set(Everywhere(), nil, Change{}); err != nil {
			t.Fatal(err)
		}
	}
	if len(h.Past) != maxPast || h.Past[maxPast-1] != h.Stable-1 {
		t.Errorf("%+v", h)
	}
}

// TestGuardText: texts of guards, and others.
func TestGuardText(t *testing.T) {
	for _, text := range []string{"p99 <= 1.05x", "p99.9 <= 2x", "p5 <= 0.9x"} {
		if g, err := ParseGuard(text); err != nil || g.String() != text {
			t.Errorf("%q: %v, %v", text, g, err)
		}
	}
	for _, text := range []string{"", "p99", "p99 <= 1.05", "p100 <= 1x", "p0 <= 1x", "p99 <= 0x", "p99 >= 1x", "p99 <= x", "q99 <= 1x"} {
		if g, err := ParseGuard(text); err == nil {
			t.Errorf("%q: %v", text, g)
		}
	}
}

// TestOverlayOf: revision 0 is no overlay.
func TestOverlayOf(t *testing.T) {
	if o := (&Revision{}).Overlay(); o != nil {
		t.Errorf("%+v", o)
	}
	if o := (&Revision{Number: 7, Text: "a: b"}).Overlay(); o.Name != "revision 7" || string(o.Text) != "a: b" {
		t.Errorf("%+v", o)
	}
}
