package proxy_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// Two of three applications freeze within a few milliseconds, again and again: what
// is sent to the one is hedged at the other. A second hedge finds the third, and no
// gate keeps it from going there.
func TestSecondHedgeWhenTwoOfThreeFreeze(t *testing.T) {
	const (
		length = 6 * time.Second
		every  = 500 * time.Millisecond
		freeze = 50 * time.Millisecond
	)
	slow := map[int]int{} // requests that took over 20 ms, by max
	for most := 1; most <= 2; most++ {
		m := newMesh(t, meshOptions{service: fmt.Sprintf(", idempotent: true, timeout: 2s, hedge: {mode: on, max: %d}", most)})
		m.lognormal(1)
		rnd := rand.New(rand.NewPCG(1, 2))
		for at := time.Second; at < length; at += every {
			first := rnd.IntN(3)
			m.freeze(at, freeze, m.apps[first])
			m.freeze(at+time.Duration(rnd.Int64N(int64(6*time.Millisecond))), freeze, m.apps[(first+1)%3])
		}
		calls := m.stream(1, 1000, length)
		m.finishStream(length, calls)
		m.ok(calls...)
		m.settled()
		for _, c := range calls {
			if c.sent > time.Second && c.took > 20*time.Millisecond {
				slow[most]++
			}
		}
		t.Logf("max %d: %d of %d requests took over 20 ms, gates %v", most, slow[most], len(calls), m.consumer.stats("compute").Gates)
	}
	if slow[1] == 0 || slow[2] > slow[1]/10 {
		t.Errorf("%d requests took over 20 ms with one hedge, %d with two; want some, and next to none", slow[1], slow[2])
	}
}
