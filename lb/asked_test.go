package lb

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb/outlier"
	"github.com/remora-proxy/remora/lb/probe"
)

// TestComparesLoad: answers to probes take the place of policies that pick by load, and of no other policy.
func TestComparesLoad(t *testing.T) {
	if !ComparesLoad(nil) {
		t.Error("the default policy does not compare load")
	}
	for _, p := range Policies {
		if got, want := ComparesLoad(p.Policy), p.Name == "least_pending" || p.Name == "peak_ewma"; got != want {
			t.Errorf("%s compares load: %t", p.Name, got)
		}
	}
}

// TestAskable: answers to probes decide, unless zones, a panic or an ejected endpoint that is due for a request do.
func TestAskable(t *testing.T) {
	eject := func(s *Set) { s.At(0).Judge(0, false) }
	slow := func(s *Set) {
		for i := range s.Len() {
			for range 20 {
				s.At(i).Start(0)
				s.At(i).Finish(0, []time.Duration{9 * ms, ms, ms, ms}[i])
			}
		}
	}
	for _, c := range []struct {
		name  string
		zones bool
		panic float64
		do    func(s *Set)
		now   time.Duration
		want  bool
	}{
		{"all are well", false, 0, func(*Set) {}, 0, true},
		{"zones", true, 0, func(*Set) {}, 0, false},
		{"an endpoint is ejected", false, .25, eject, sec - 1, true},
		{"it is due for a request", false, .25, eject, sec, false},
		{"it had that request", false, .25, func(s *Set) { eject(s); s.At(0).Start(sec) }, sec, true},
		{"a panic", false, .2, eject, sec - 1, false},
		{"a panic, since an endpoint turns out to be slow", false, .2, slow, 0, false},
	} {
		s := &Set{PanicThreshold: c.panic, Outlier: outlier.Rules{Consecutive: 1, Latency: 3, Base: sec, MaxEjected: 1}}
		targets := numbered(4, even)
		if c.zones {
			s.Zone, targets[0].Zone, targets[1].Zone = "a", "a", "b"
		}
		s.Update(targets)
		c.do(s)
		if got := s.Askable(c.now); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// TestMayPick: an answer is used only of an endpoint of the set that Pick could return.
func TestMayPick(t *testing.T) {
	s, other := &Set{}, &Set{}
	s.Update(numbered(2, even))
	other.Update(numbered(2, even))
	e := s.At(0)
	for _, c := range []struct {
		name string
		q    Query
		e    *Endpoint
		want bool
	}{
		{"an idle endpoint", Query{}, e, true},
		{"it was tried", Query{Tried: []*Endpoint{e}}, e, false},
		{"it is of another set", Query{}, other.At(0), false},
	} {
		if got := s.MayPick(&c.q, c.e); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
	if s.Update(numbered(2, even)[1:]); s.MayPick(&Query{}, e) {
		t.Error("an endpoint that has left the set may be picked")
	}
}

// TestSample: as many different endpoints that can be picked as there is room for, by weight. Of a small set it is all of
// them.
func TestSample(t *testing.T) {
	uneven := func(i int) float64 { return []float64{1000, 1, 1, 1}[i%4] }
	for _, c := range []struct {
		name   string
		n      int // endpoints
		weight func(i int) float64
		tried  int // of these
		want   int
	}{
		{"fewer than room", 3, even, 0, 3},
		{"as many as room", 4, uneven, 0, 4},
		{"of few, some were tried", 4, even, 1, 3},
		{"more than room", 40, even, 0, 4},
		{"of many, some were tried", 40, even, 20, 4},
		{"of many, all were tried", 40, even, 40, 0},
	} {
		s := &Set{}
		s.Update(numbered(c.n, c.weight))
		tried := s.peers.all.endpoints[:c.tried]
		got := s.Sample(&Query{Rand: rand.NewPCG(1, 2), Tried: tried}, make([]*Endpoint, 4))
		seen := map[*Endpoint]bool{}
		for _, e := range got {
			if e == nil || seen[e] || e.index < c.tried {
				t.Errorf("%s: %v", c.name, addrs(got))
				break
			}
			seen[e] = true
		}
		if len(got) != c.want {
			t.Errorf("%s: %d endpoints, want %d", c.name, len(got), c.want)
		}
	}
	s, rnd, heavy := &Set{}, rand.NewPCG(1, 2), 0
	s.Update(numbered(40, func(i int) float64 { return []float64{3, 1}[i%2] }))
	for range 4000 {
		heavy += int(s.Sample(&Query{Rand: rnd}, make([]*Endpoint, 1))[0].Weight / 3)
	}
	if heavy < 2900 || heavy > 3100 {
		t.Errorf("endpoints with three quarters of the weight are asked %d times of 4000", heavy)
	}
}

// TestAnswer: an answer counts the declined requests as load, and an endpoint that fails as one of less weight.
func TestAnswer(t *testing.T) {
	s := &Set{}
	s.Update(numbered(2, func(int) float64 { return 8 }))
	e := s.At(0)
	e.discount = .5
	e.excess = excess{load: 4, latency: sec}
	want := probe.Answer[*Endpoint]{From: e, Pending: 3 + 4, Weight: 4, Latency: ms, At: 0}
	if got := e.Answer(0, Load{Pending: 3, Latency: ms}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestTraffic: the load of others at an average endpoint, and the mean latency, as far as they are known.
func TestTraffic(t *testing.T) {
	s := &Set{}
	s.Update([]Target{{Addr: "a", Weight: 1}, {Addr: "b", Weight: 3}, {Addr: "c", Weight: 2}})
	check := func(when string, want probe.Traffic) {
		t.Helper()
		if got := s.Traffic(); got != want {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
	}
	check("at first", probe.Traffic{Endpoints: 3})
	s.At(0).Report(0, Load{Pending: 5}, 1) // 4 per weight
	s.At(1).Report(0, Load{Pending: 3}, 0) // 1 per weight
	check("after two reports", probe.Traffic{Endpoints: 3, Known: true, Others: 2.5 * 2})
	s.At(2).Learn(0, 1<<20, 0)
	check("after a response", probe.Traffic{Endpoints: 3, Known: true, Others: 2.5 * 2, Latency: 1 << 20})
}
