package lb

import (
	"math/rand/v2"
	"testing"
	"time"
)

// An endpoint that fails some of its requests at once looks faster. It must get at most
// its share.
func TestFailureShare(t *testing.T) {
	for _, failing := range []float64{0.1, 0.4, 0.8} {
		const n, busy, seeds = 30000, 30, 5
		picked := 0
		for seed := range uint64(seeds) {
			var s Set // ejects no endpoint
			s.Update(numbered(3, even))
			bad := s.At(0)
			rnd := rand.New(rand.NewPCG(seed, 2))
			var queue Events
			for i := range n {
				for queue.Len() > busy {
					queue.Next()
				}
				e := s.Pick(Query{Now: queue.Now, Rand: rnd})
				if e == bad && i >= 1000 {
					picked++
				}
				e.Start(queue.Now)
				took := time.Duration(1+rnd.ExpFloat64()*1000) * time.Microsecond
				fails := e == bad && rnd.Float64() < failing
				if fails {
					took = time.Microsecond
				}
				queue.After(took, func() {
					e.Judge(queue.Now, !fails)
					if fails {
						took = 0
					}
					e.Finish(queue.Now, took)
				})
			}
		}
		if share := float64(picked) / (seeds * (n - 1000)); share > 0.4 {
			t.Errorf("an endpoint that fails %v of its requests got %.3f of all", failing, share)
		}
	}
}

// Without load, an endpoint that fails at once does not count as the fastest. Once its
// failures are old, it is picked again.
func TestFailureShareIdle(t *testing.T) {
	for _, p := range policies {
		s := Set{Policy: p}
		s.Update(numbered(3, even))
		rnd := rand.NewPCG(1, 2)
		var now time.Duration
		picks := func(works bool) (ofFirst int) { // of 3000
			for range 3000 {
				now += ms
				e := s.Pick(Query{Now: now, Rand: rnd})
				e.Start(now)
				latency := 2 * ms
				if e == s.At(0) {
					ofFirst++
					if !works {
						latency = 0
					}
				}
				e.Judge(now, latency > 0)
				e.Finish(now, latency)
			}
			return ofFirst
		}
		if n := picks(false); n > 1200 {
			t.Errorf("%T: %d of 3000 picks go to a failing endpoint", p, n)
		}
		now += 10 * sec
		s.Pick(Query{Now: now, Rand: rnd})
		now += 5 * sec
		if n := picks(true); n < 600 {
			t.Errorf("%T: %d of 3000 picks go to the recovered endpoint", p, n)
		}
	}
}
