package exchange_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestSecondHedgeTwoFrozen: two of three applications freeze within a few milliseconds,
// repeatedly, so a request at one may be hedged at the other. A second hedge reaches the
// third, and no gate stops it.
func TestSecondHedgeTwoFrozen(t *testing.T) {
	const (
		length = 6 * time.Second
		every  = 500 * time.Millisecond
		freeze = 50 * time.Millisecond
	)
	slow := map[int]int{} // requests that took over 20 ms, by max
	for most := 1; most <= 2; most++ {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Service: fmt.Sprintf("idempotent: true, timeout: 2s, hedge: {mode: on, max: %d}", most)})
		m.Apps.SetLognormalDelays(1)
		rnd := rand.New(rand.NewPCG(1, 2))
		for at := time.Second; at < length; at += every {
			first := rnd.IntN(3)
			proxytest.Apps{m.Apps[first]}.Freeze(at, freeze)
			proxytest.Apps{m.Apps[(first+1)%3]}.Freeze(at+time.Duration(rnd.Int64N(int64(6*time.Millisecond))), freeze)
		}
		calls := m.SendAtRate(1, 1000, length)
		m.FinishAfter(length, calls)
		m.OK(calls...)
		m.Settled()
		for _, c := range calls {
			if c.Sent > time.Second && c.Took > 20*time.Millisecond {
				slow[most]++
			}
		}
		t.Logf("max %d: %d of %d requests took over 20 ms, gates %v", most, slow[most], len(calls), m.Consumer.Stats("compute").Gates)
	}
	if slow[1] == 0 || slow[2] > slow[1]/10 {
		t.Errorf("%d requests took over 20 ms with one hedge, %d with two; want some, and almost none", slow[1], slow[2])
	}
}
