package service

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge"
)

// TestDelaysInTurn: a look makes a few choices of delays anew, and those of all routes in turn.
func TestDelaysInTurn(t *testing.T) {
	const ms, routes = time.Millisecond, choosePerLook + 2
	s, l := newTestService(t)
	for range routes {
		r := hedge.NewRoute(hedge.Policy{Mode: hedge.On, MinDelay: ms, MaxDelay: 50 * ms, Budget: .05, Max: 1}, 1)
		for i := range 5000 {
			took := 4*ms + time.Duration(i%64)*ms/32
			if i%20 == 0 {
				took = 49 * ms
			}
			r.Latencies.Observe(l.Now(), took, 0)
		}
		s.Routes = append(s.Routes, HedgedRoute{Route: r})
	}
	for _, want := range []int{choosePerLook, routes} {
		s.stalls.chooseDelays(l.Now())
		known := 0
		for _, r := range s.Routes {
			if best := r.Delays.Best(); best.Known() {
				known++
			}
		}
		if known != want {
			t.Errorf("%d delays are chosen, want %d", known, want)
		}
	}
}
