package lb

import (
	"math/rand/v2"
	"testing"
)

// A probe goes as soon as it is due, also where others are idle, and have shown how
// fast they are when the ejected one has only failed.
func TestProbeIsNotPutOff(t *testing.T) {
	for _, n := range []int{3, 8, 40} {
		for _, p := range policies {
			probeInTime(t, p, n)
		}
	}
}

func probeInTime(t *testing.T, p Policy, n int) {
	s, bad := judged(n, strict)
	s.Policy = p
	rnd := rand.NewPCG(1, 2)
	for i := range n {
		e := s.At(i)
		e.Started(0)
		e.Answered(ms, ms)
		e.Judge(ms, true)
	}
	bad.judgeMany(2*ms, 5, false)
	probed := 0
	for now := 2 * ms; now < 3*sec/2; now += 2 * ms {
		e := s.Pick(now, rnd, nil)
		e.Started(now)
		if e == bad {
			if probed++; now < sec {
				t.Fatalf("%T of %d: picked at %v, ejected", p, n, now)
			}
			e.Answered(now+ms, 0)
			e.Judge(now+ms, false)
			continue
		}
		e.Answered(now+ms, ms)
		e.Judge(now+ms, true)
	}
	if probed != 1 {
		t.Errorf("%T of %d: %d probes within 0.5 s after the first was due, want 1", p, n, probed)
	}
}
