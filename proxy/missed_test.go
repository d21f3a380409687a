package proxy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/registry"
)

// A hedge that finds every slot taken is tried elsewhere, but not for ever, and
// not with a body that is much to send.
func TestMissedHedgesAreBounded(t *testing.T) {
	for _, c := range []struct {
		body   int
		hedges uint64
	}{
		{10, 3},         // one, and two for those that missed
		{64 << 10, 3},   // at the limit
		{64<<10 + 1, 1}, // one past it
		{1_000_000, 1},
	} {
		t.Run(fmt.Sprint(c.body), func(t *testing.T) {
			m := newMesh(t, meshOptions{apps: 6, provider: ", max_concurrency: 1", service: hedgeOn})
			var eps []registry.Endpoint
			var calls []*call
			for i, a := range m.apps {
				a.frozen = m.w.Now() + 500*time.Millisecond
				n := m.nodes[1+i]
				eps = append(eps, registry.Endpoint{Addr: n.host + ":15006", Weight: 1})
				// Taken unbeknown to the consumer, but for the first.
				m.consumer.update("compute", eps[i])
				k := m.post(10, "x-remora-attempt: 1") // not hedged itself
				if i == 0 {
					k = m.post(c.body)
				}
				calls = append(calls, k)
			}
			for i := len(calls) - 1; i >= 0; i-- {
				m.consumer.update("compute", eps[i])
				m.do(calls[i])
				busy := func() bool { used, _ := m.nodes[1+i].proc.Slots("local"); return used == 1 }
				if !m.w.RunUntil(busy, time.Second) {
					t.Fatal("the slot is not taken")
				}
			}
			m.consumer.update("compute", eps...)
			m.finish(calls...)
			m.ok(calls...)
			m.settled()
			if s := m.consumer.stats("compute"); s.Hedges != c.hedges || s.HedgesMissed != c.hedges {
				t.Errorf("%d hedges, %d missed; want %d, all missed", s.Hedges, s.HedgesMissed, c.hedges)
			}
		})
	}
}
