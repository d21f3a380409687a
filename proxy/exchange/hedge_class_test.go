package exchange_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestHedgeClasses: where long and short requests share a route, a short one at a frozen replica
// is hedged long before the long ones take a response. Their classes are told by the size of the
// body, by the caller, or by a header that the route names.
func TestHedgeClasses(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name, hedging string
		size          int // of long requests
		long          []string
		short         []string
		classes       bool
	}{
		{"size", "mode: on", 5000, []string{"x-kind: long"}, nil, true},
		{"caller", "mode: on", 10, []string{"x-kind: long", "x-remora-class: long"}, nil, true},
		{"header", "mode: on, class: X-Kind", 10, []string{"x-kind: long"}, nil, true},
		{"the caller before the header", "mode: on, class: x-request-id", 10, []string{"x-kind: long", "x-remora-class: long"}, []string{"x-remora-class: short"}, true},
		{"none", "mode: on, class: none", 5000, []string{"x-kind: long", "x-remora-class: long"}, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Service: "idempotent: true, hedge: {" + c.hedging + "}"})
			for _, a := range m.Apps {
				long := false
				a.OnRequest = func(req *protocol.Request) { long = protocol.Find(req.Headers, "x-kind") != nil }
				a.Delay = func() time.Duration {
					if long {
						return 20 * ms
					}
					return ms
				}
			}
			var calls []*proxytest.Call
			for range 300 {
				calls = append(calls, m.Post(10, c.short...), m.Post(c.size, c.long...))
			}
			m.Do(calls...)
			m.OK(calls...)
			short := classOf(m, ms)
			if c.classes != (short != nil) {
				t.Fatalf("a class of short requests: %+v, want %v", short, c.classes)
			}
			m.Apps[0].FrozenUntil = m.W.Now() + time.Second
			before := m.Consumer.Stats("compute").Hedges
			calls = nil
			for range 3 { // one of them is sent to the frozen replica
				k := m.Post(10, c.short...)
				m.Do(k)
				calls = append(calls, k)
			}
			m.OK(calls...)
			took := time.Duration(0)
			for _, k := range calls {
				took = max(took, k.Took)
			}
			hedges := m.Consumer.Stats("compute").Hedges - before
			if hedges == 0 || (took < 10*ms) != c.classes {
				t.Errorf("the longest of the short requests took %v, with %d hedges", took, hedges)
			}
		})
	}
}

// classOf returns the class whose median is within a factor of two of the given one, or nil.
func classOf(m *proxytest.Mesh, median time.Duration) (found *hedge.ClassReport) {
	m.Consumer.Loop.Do(func() {
		for _, c := range m.Consumer.Proc.Workers()[0].Report(stats.Forecasts).Services[0].Routes[0].Classes {
			if c.Median > median/2 && c.Median < 2*median {
				found = &c
			}
		}
	})
	return found
}
