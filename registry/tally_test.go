package registry

import "testing"

// TestTally: what all watches have found is added up, until each ends.
func TestTally(t *testing.T) {
	var all Tally
	a, b := NewCount(&all), NewCount(&all)
	for i, step := range []struct {
		do                      func()
		doubted, kept, unusable int
	}{
		{func() {}, 0, 0, 0},
		{func() { a.Doubt(3) }, 1, 3, 0},
		{func() { a.Doubt(2); b.Doubt(5); b.SetUnusable(4) }, 2, 7, 4},
		{func() { a.Doubt(0); a.SetUnusable(1) }, 1, 5, 5},
		{func() { b.SetUnusable(2) }, 1, 5, 3},
		{func() { b.End(); b.End() }, 0, 0, 1},
		{func() { b.Doubt(4); b.SetUnusable(4) }, 0, 0, 1}, // it has ended
		{func() { a.Doubt(1) }, 1, 1, 1},
	} {
		step.do()
		now := Condition{Doubted: 10, Kept: 20, Unusable: 30}
		all.Add(&now)
		if want := (Condition{Doubted: 10 + step.doubted, Kept: 20 + step.kept, Unusable: 30 + step.unusable}); now != want {
			t.Errorf("step %d: %+v, want %+v", i, now, want)
		}
	}
	NewCount(nil).Doubt(1)
}
