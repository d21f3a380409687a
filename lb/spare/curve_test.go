package spare

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb/log2"
)

func TestLevels(t *testing.T) {
	for load, want := range map[float64]Level{
		-1: 0, 0: 0, 0.9: 0, 1: 1, 7.9: 7, 8: 8, 11: 8, 12: 9, 15: 9, 16: 10, 24: 11, 1023: 21, 1024: 22, 1e9: 23, math.MaxFloat64: 23,
	} {
		if got := LevelOf(load); got != want {
			t.Errorf("level of %v: %d, want %d", load, got, want)
		}
	}
}

// TestWorkers: an endpoint has room while fewer requests are pending than it has workers, though the
// curve only sees latencies and loads.
func TestWorkers(t *testing.T) {
	for _, workers := range []int{1, 2, 4, 7} {
		for _, sigma := range []float64{0.1, 0.5, 1} {
			var c Curve
			rnd := rand.New(rand.NewPCG(1, 2))
			work := func() time.Duration {
				return time.Duration(math.Exp(rnd.NormFloat64()*sigma) * float64(time.Millisecond))
			}
			for range 4000 {
				found := rnd.IntN(2*workers + 2)
				took := work()
				for range found - workers + 1 { // the workers share what came before
					took += work() / time.Duration(workers)
				}
				c.Learn(0, log2.Of(took), LevelOf(float64(found)))
			}
			for pending := range 2*workers + 1 {
				room := c.HasRoom(0, float64(pending), 0, false)
				if pending != workers && room != (pending < workers) { // at the bound it takes but a little longer
					t.Errorf("%d workers, sigma %v: room is %v with %d pending", workers, sigma, room, pending)
				}
			}
		}
	}
}
