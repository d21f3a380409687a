package lb

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb/spare"
)

// TestSpareUnknown: what is not known is judged by what is, up to the usual load; and what was
// learned long ago is not known.
func TestSpareUnknown(t *testing.T) {
	_, e := one(t)
	e.Start(0)
	pending := func(n int) { e.Report(0, Load{Pending: n}, 1) }
	expect := func(n int, want bool) {
		t.Helper()
		pending(n)
		if got := e.Spare(0); got != want {
			t.Errorf("with %d pending: room is %v, want %v", n, got, want)
		}
	}
	expect(1, true)
	expect(2, false) // 0 is usual
	for range 100 {
		e.Learn(0, ms, spare.LevelOf(3))
	}
	expect(3, true)
	expect(4, false) // not known
	pending(6)
	for range 600 {
		e.Start(0)
		e.Drop()
	}
	expect(5, true) // 6 is usual
	expect(6, false)
	for range 100 {
		e.Learn(0, 2*ms, spare.LevelOf(4))
	}
	expect(3, true)
	expect(5, false)
	later := 2 * time.Minute
	e.Report(later, Load{Pending: 5}, 1)
	if !e.Spare(later) {
		t.Error("what was learned is not forgotten")
	}
}
