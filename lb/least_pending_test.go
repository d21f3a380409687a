package lb

import (
	"math/rand/v2"
	"testing"
	"time"
)

// An endpoint of little weight is nearly always idle. It must still get about its share
// while the others have pending requests.
func TestLeastPendingLightEndpoint(t *testing.T) {
	for _, c := range []struct {
		weights []float64
		pending int // of all endpoints, all the time
	}{
		{[]float64{1000, 1}, 2},
		{[]float64{100, 1}, 8},
		{[]float64{1, 1, 0.1}, 2},
		{[]float64{1, 1, 0.1}, 5},
		{[]float64{5, 5, 1, 1}, 4},
		{[]float64{3, 2, 1}, 3},
	} {
		s := Set{}
		s.Update(numbered(len(c.weights), func(i int) float64 { return c.weights[i] }))
		rnd := rand.NewPCG(1, 2)
		draw := rand.New(rnd)
		var out []*Endpoint
		const picks = 100_000
		got := map[*Endpoint]float64{}
		for i := range picks {
			now := time.Duration(i) * ms / 10
			if len(out) == c.pending {
				last, j := len(out)-1, draw.IntN(len(out))
				out[j].Finish(now, ms)
				out[j], out = out[last], out[:last]
			}
			e := s.Pick(Query{Now: now, Rand: rnd})
			e.Start(now)
			out = append(out, e)
			got[e] += 1. / picks
		}
		for i, e := range s.peers.all.endpoints {
			want := e.Weight / s.peers.all.sums[len(s.peers.all.sums)-1]
			if got[e] > 2*want || got[e] < want/2 {
				t.Errorf("%v with %d pending: the share of %v is %.4f, want about %.4f", c.weights, c.pending, c.weights[i], got[e], want)
			}
		}
	}
}
