package lb

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestLevels(t *testing.T) {
	for load, want := range map[float64]Level{
		-1: 0, 0: 0, 0.9: 0, 1: 1, 7.9: 7, 8: 8, 11: 8, 12: 9, 15: 9, 16: 10, 24: 11, 1023: 21, 1024: 22, 1e9: 23, math.MaxFloat64: 23,
	} {
		if got := levelOf(load); got != want {
			t.Errorf("level of %v: %d, want %d", load, got, want)
		}
	}
}

// TestSpareWorkers: an endpoint has room while fewer attempts are pending than it has workers,
// which no one has told. The latencies are those of requests that find so many others.
func TestSpareWorkers(t *testing.T) {
	for _, workers := range []int{1, 2, 4, 7} {
		for _, sigma := range []float64{0.1, 0.5, 1} {
			_, e := one(t)
			rnd := rand.New(rand.NewPCG(1, 2))
			work := func() time.Duration { return time.Duration(math.Exp(rnd.NormFloat64()*sigma) * float64(ms)) }
			for range 4000 {
				found := rnd.IntN(2*workers + 2)
				took := work()
				for range found - workers + 1 { // the workers share what came before
					took += work() / time.Duration(workers)
				}
				e.Learn(0, took, levelOf(float64(found)))
			}
			for pending := range 2*workers + 1 {
				if pending != workers && e.Spare(0) != (pending < workers) { // at the bound it takes but a little longer
					t.Errorf("%d workers, sigma %v: spare is %v with %d pending", workers, sigma, e.Spare(0), pending)
				}
				e.Started(0)
			}
		}
	}
}

// TestSpareUnknown: what is not known is judged by what is, up to the usual load; and what was
// learned long ago is not known.
func TestSpareUnknown(t *testing.T) {
	_, e := one(t)
	e.Started(0)
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
		e.Learn(0, ms, levelOf(3))
	}
	expect(3, true)
	expect(4, false) // not known
	pending(6)
	for range 600 {
		e.Started(0)
		e.Dropped(0)
	}
	expect(5, true) // 6 is usual
	expect(6, false)
	for range 100 {
		e.Learn(0, 2*ms, levelOf(4))
	}
	expect(3, true)
	expect(5, false)
	later := 2 * levelHalfMost
	e.Report(later, Load{Pending: 5}, 1)
	if !e.Spare(later) {
		t.Error("what was learned is not forgotten")
	}
}
