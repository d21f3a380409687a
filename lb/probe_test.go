package lb

import (
	"math/rand/v2"
	"testing"

	"github.com/remora-proxy/remora/lb/outlier"
)

// A probe is sent as soon as it is due, even if other endpoints are idle and fast and the
// ejected one has only failed.
func TestProbeDue(t *testing.T) {
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
		e.Start(0)
		e.Finish(ms, ms)
		e.Judge(ms, true)
	}
	bad.judgeMany(2*ms, 5, false)
	probed := 0
	for now := 2 * ms; now < 3*sec/2; now += 2 * ms {
		e := s.Pick(Query{Now: now, Rand: rnd})
		e.Start(now)
		if e == bad {
			if probed++; now < sec {
				t.Fatalf("%T of %d: picked at %v, ejected", p, n, now)
			}
			e.Finish(now+ms, 0)
			e.Judge(now+ms, false)
			continue
		}
		e.Finish(now+ms, ms)
		e.Judge(now+ms, true)
	}
	if probed != 1 {
		t.Errorf("%T of %d: %d probes within 0.5 s after the first was due, want 1", p, n, probed)
	}
}

// A retry is no probe. While others are left, a request goes to at most one ejected
// endpoint, even if several probes are due.
func TestProbeNotRetried(t *testing.T) {
	for _, n := range []int{6, 40} {
		for _, p := range policies {
			s := Set{Policy: p, Outlier: outlier.Rules{Consecutive: 1, Base: sec, MaxEjected: 0.5}}
			s.Update(numbered(n, even))
			for i := range n / 2 {
				s.At(i).Judge(ms, false)
			}
			rnd := rand.NewPCG(1, 2)
			for range n {
				var tried []*Endpoint
				for range 3 {
					e := s.Pick(Query{Now: 2 * sec, Rand: rnd, Tried: tried})
					e.Start(2 * sec)
					if _, ejected := e.Ejected(); ejected && len(tried) > 0 {
						t.Errorf("%T of %d: attempt %d goes to an ejected endpoint", p, n, len(tried)+1)
					}
					tried = append(tried, e)
				}
			}
		}
	}
}

// An ejected endpoint of another zone is probed, too, although the load lets no request leave its zone.
func TestProbeInOtherZone(t *testing.T) {
	for _, p := range policies {
		s := zoned(p, map[string]int{"a": 2, "b": 2})
		s.Outlier = strict
		s.Retune()
		bad := s.At(2)
		bad.judgeMany(ms, 5, false)
		rnd := rand.NewPCG(1, 2)
		probed := 0
		for now := 2 * ms; now < 3*sec/2; now += 2 * ms {
			e := s.Pick(Query{Now: now, Rand: rnd})
			e.Start(now)
			if e.Zone != "a" {
				if probed++; e != bad || now < sec {
					t.Fatalf("%T: picked %s at %v", p, e.Addr, now)
				}
			}
			e.Finish(now+ms, ms)
			e.Judge(now+ms, true)
		}
		if probed != 1 || bad.isEjected() {
			t.Errorf("%T: %d probes, ejected %t; want 1 and not", p, probed, bad.isEjected())
		}
	}
}

// TestProbesInOtherZone: which endpoint of another zone is probed.
func TestProbesInOtherZone(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(s *Set)
		want string
	}{
		{"the one that is due", func(s *Set) { s.Lookup("b0").Judge(sec, false); s.Lookup("b1").Judge(0, false) }, "b1"},
		{"none, as no probe is due", func(s *Set) { s.Lookup("b0").Judge(sec, false) }, "a0"},
		{"none, as the endpoint has no room", func(s *Set) {
			for _, e := range s.peers.far.endpoints {
				e.Judge(0, false)
				e.CountNoRoom(3*sec/2, 3*sec/2)
				e.started = 3 * sec / 2
			}
		}, "a0"},
		{"none in a panic", func(s *Set) {
			s.Lookup("b1").Judge(0, false)
			s.PanicThreshold = .1
			s.Retune()
		}, "a0"},
	} {
		for _, p := range Policies {
			s := zoned(p.Policy, map[string]int{"a": 1, "b": 2})
			s.Outlier = outlier.Rules{Consecutive: 1, Base: sec, MaxEjected: 1}
			s.Retune()
			c.do(s)
			if e := s.Pick(Query{Now: 3 * sec / 2, Rand: rand.NewPCG(1, 2)}); e.Addr != c.want || s.PassedOver != 0 {
				t.Errorf("%s, %s: picked %s, and passed %d over", c.name, p.Name, e.Addr, s.PassedOver)
			}
		}
	}
}

// TestStreamIsProbe: a stream to an ejected endpoint is its probe, too. An endpoint that is unhealthy as well gets none.
func TestStreamIsProbe(t *testing.T) {
	s, e := judged(4, strict)
	e.judgeMany(0, 5, false)
	if !e.probeDue(sec) {
		t.Error("no probe is due")
	}
	if e.Unhealthy = true; e.probeDue(sec) {
		t.Error("a probe of an unhealthy endpoint is due")
	}
	e.Unhealthy = false
	if e.OpenStream(sec); e.probeDue(sec) {
		t.Error("another probe is due")
	}
	if got := s.Pick(Query{Now: sec, Rand: rand.NewPCG(1, 2)}); got == e {
		t.Error("picked once more")
	}
}
