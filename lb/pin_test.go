package lb

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb/outlier"
)

// TestPin: a pinned request goes to its endpoint, whatever the policy, however slow and loaded that is.
// If the endpoint is tried, unhealthy, ejected or gone, the policy picks.
func TestPin(t *testing.T) {
	for _, p := range Policies {
		name, policy := p.Name, p.Policy
		s := &Set{Policy: policy, Balance: 1.25, Stall: Stall{After: 10 * ms, Probe: time.Hour}, Outlier: outlier.Rules{Consecutive: 1, Base: time.Second, MaxEjected: 1}}
		targets := []Target{{Addr: "a"}, {Addr: "b"}, {Addr: "c"}}
		s.Update(targets)
		pin := s.Lookup("b")
		check := func(when string, pinned bool, tried ...*Endpoint) {
			t.Helper()
			for range 20 {
				if e := s.Pick(Query{Now: time.Minute, Rand: rand.NewPCG(1, 2), Key: 1, Tried: tried, Pin: pin}); (e == pin) != pinned {
					t.Errorf("%s: %s: picked %s", name, when, e.Addr)
					return
				}
			}
		}
		check("at first", true)
		check("tried", false, pin)
		for range 50 {
			pin.Start(time.Minute - time.Second)
		}
		check("stalled, with all of the load", true)
		pin.CountNoRoom(time.Minute, time.Minute-time.Second)
		check("after a refusal", true)
		pin.Judge(time.Minute, false)
		check("ejected", false)
		if s.Usable(pin) {
			t.Error(name, "an ejected endpoint keeps its sessions")
		}
		s.Update(targets[:1])
		s.Update(targets)
		check("gone, and another one has come", false)
		pin = s.Lookup("b")
		targets[1].Unhealthy = true
		s.Update(targets)
		check("unhealthy", false)
		s.PanicThreshold = 0.3
		s.Retune()
		check("unhealthy in a panic", true)
	}
}
