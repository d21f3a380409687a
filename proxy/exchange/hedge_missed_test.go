package exchange_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/registry"
)

// TestMissedHedgesLimited: a hedge that finds every slot taken is tried elsewhere, but only
// twice, and not with a large body.
func TestMissedHedgesLimited(t *testing.T) {
	for _, c := range []struct {
		body   int
		hedges uint64
	}{
		{10, 3},         // one, and two after misses
		{64 << 10, 3},   // at the limit
		{64<<10 + 1, 1}, // one above it
		{1_000_000, 1},
	} {
		t.Run(fmt.Sprint(c.body), func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 6, Provider: "max_concurrency: 1", Service: proxytest.HedgeOn})
			var eps []registry.Endpoint
			var calls []*proxytest.Call
			for i, a := range m.Apps {
				a.FrozenUntil = m.W.Now() + 500*time.Millisecond
				n := m.Nodes[1+i]
				eps = append(eps, registry.Endpoint{Addr: n.Host + ":15006", Weight: 1})
				// All slots but the first are taken by requests that the consumer has not sent.
				m.Consumer.Update("compute", eps[i])
				k := m.Post(10, "x-remora-attempt: 1") // not hedged itself
				if i == 0 {
					k = m.Post(c.body)
				}
				calls = append(calls, k)
			}
			for i := len(calls) - 1; i >= 0; i-- {
				m.Consumer.Update("compute", eps[i])
				m.Do(calls[i])
				busy := func() bool { used, _ := m.Nodes[1+i].Proc.Slots("local"); return used == 1 }
				if !m.W.RunUntil(busy, time.Second) {
					t.Fatal("the slot is not taken")
				}
			}
			m.Consumer.Update("compute", eps...)
			m.Finish(calls...)
			m.OK(calls...)
			m.Settled()
			if s := m.Consumer.Stats("compute"); s.Hedges != c.hedges || s.HedgesMissed != c.hedges {
				t.Errorf("%d hedges, %d missed; want %d, all missed", s.Hedges, s.HedgesMissed, c.hedges)
			}
		})
	}
}
