package lb

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb/outlier"
)

const sec = time.Second

// judged returns a set of n endpoints, and the first one.
func judged(n int, o outlier.Rules) (*Set, *Endpoint) {
	s := &Set{Outlier: o}
	s.Update(numbered(n, even))
	return s, s.At(0)
}

func (e *Endpoint) judgeMany(now time.Duration, n int, good bool) {
	for range n {
		e.Judge(now, good)
	}
}

var strict = outlier.Rules{Consecutive: 5, SuccessRate: 0.5, Base: sec, MaxEjected: 0.5}

func TestEjection(t *testing.T) {
	for _, c := range []struct {
		name   string
		o      outlier.Rules
		do     func(e *Endpoint)
		want   outlier.Reason
		ejects bool
	}{
		{"one failure below the limit", strict, func(e *Endpoint) { e.judgeMany(0, 4, false) }, 0, false},
		{"the limit", strict, func(e *Endpoint) { e.judgeMany(0, 5, false) }, outlier.ByConsecutive, true},
		{"a good one in between", strict, func(e *Endpoint) {
			e.judgeMany(0, 4, false)
			e.Judge(0, true)
			e.judgeMany(0, 4, false)
		}, 0, false},
		{"half fail", strict, func(e *Endpoint) {
			for range 50 {
				e.Judge(0, true)
				e.Judge(0, false)
			}
		}, 0, false},
		{"one more than half", strict, func(e *Endpoint) {
			for range 10 {
				e.Judge(0, true)
				e.Judge(0, false)
			}
			e.Judge(0, false)
		}, outlier.BySuccessRate, true},
		{"more than half of too few", strict, func(e *Endpoint) {
			for range 6 {
				e.judgeMany(0, 1, true)
				e.judgeMany(0, 2, false)
			}
			e.Judge(0, false) // the nineteenth
		}, 0, false},
		{"failures long ago", strict, func(e *Endpoint) {
			for at := time.Duration(0); at < 100*sec; at += 6 * sec {
				e.judgeMany(at, 4, false)
				e.judgeMany(at, 3, true)
			}
		}, 0, false},
		{"nothing is looked at", outlier.Rules{Base: sec, MaxEjected: 1}, func(e *Endpoint) { e.judgeMany(0, 100, false) }, 0, false},
		{"none may be ejected", outlier.Rules{Consecutive: 1, Base: sec}, func(e *Endpoint) { e.judgeMany(0, 100, false) }, 0, false},
		{"a deadline passed in silence", strict, func(e *Endpoint) {
			for range 5 {
				e.Start(0)
			}
			for range 5 {
				e.TimedOut(sec)
				e.Drop()
			}
		}, outlier.ByConsecutive, true},
		{"in a shorter silence", strict, func(e *Endpoint) {
			for range 5 {
				e.Start(1)
			}
			for range 5 {
				e.TimedOut(sec)
				e.Drop()
			}
		}, 0, false},
		{"while it answered others", strict, func(e *Endpoint) {
			for range 6 {
				e.Start(0)
			}
			e.Finish(sec, sec)
			for range 5 {
				e.TimedOut(sec + 1)
				e.Drop()
			}
		}, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, e := judged(4, c.o)
			c.do(e)
			why, ejected := e.Ejected()
			if ejected != c.ejects || ejected && why != c.want {
				t.Errorf("ejected %v by %v; want %v by %v", ejected, why, c.ejects, c.want)
			}
			if total := s.peers.health.counts[outlier.ByConsecutive] + s.peers.health.counts[outlier.BySuccessRate]; (total == 1) != c.ejects {
				t.Errorf("counted %v", s.peers.health.counts)
			}
		})
	}
}

// TestSilenceOfNone: without an ejection time, any silence is bad, and no silence is not.
func TestSilenceOfNone(t *testing.T) {
	_, e := judged(2, outlier.Rules{})
	e.Start(sec)
	if e.TimedOut(sec) || !e.TimedOut(sec+1) {
		t.Error("bad without a silence, or not bad after one")
	}
}

// TestEjectionReturns checks that an ejected endpoint gets nothing for its time, and then
// one probe. After a good probe its record is clear; after a bad one it is ejected for
// twice as long.
func TestEjectionReturns(t *testing.T) {
	s, e := judged(3, strict)
	rnd := rand.NewPCG(1, 2)
	for i := 1; i < 3; i++ { // an idle endpoint would be picked at once
		s.At(i).Start(0)
	}
	picked := func(now time.Duration) bool { return s.Pick(Query{Now: now, Rand: rnd}) == e }
	now, term := time.Duration(0), sec
	e.judgeMany(now, 5, false)
	for round := range 9 {
		e.judgeMany(now, 50, round%2 == 0) // started before the ejection: ignored
		if picked(now + term - 1) {
			t.Fatalf("round %d: picked before %v were over", round, term)
		}
		now += term
		if !picked(now) {
			t.Fatalf("round %d: no probe after %v", round, term)
		}
		e.Start(now)
		if picked(now + term - 1) {
			t.Fatalf("round %d: a second request while the probe is in flight", round)
		}
		if s.PickHedge(Query{Now: now, Rand: rnd}, false) == e {
			t.Fatal("a hedge to an ejected endpoint")
		}
		now += term / 2
		e.Judge(now, false)
		e.Finish(now, 0)
		term = min(2*term, 64*sec)
	}
	if s.peers.health.counts[outlier.ByConsecutive] != 10 {
		t.Errorf("counted %v", s.peers.health.counts)
	}

	now += term
	e.Start(now) // a probe without an outcome
	e.Drop()
	if picked(now+term-1) || !picked(now+term) {
		t.Error("after a probe without an outcome the next is due a term later")
	}
	e.Start(now + term)
	now += term + ms
	e.Judge(now, true)
	e.Finish(now, ms)
	if _, ejected := e.Ejected(); ejected || !picked(now) || e.discount != 1 {
		t.Errorf("after a good probe: ejected %t, discount %v", ejected, e.discount)
	}
	e.judgeMany(now, 4, false)
	if _, ejected := e.Ejected(); ejected {
		t.Error("failures from before the ejection count")
	}
	e.Judge(now, false)
	lasts := func(d time.Duration) bool { return !e.ejection.Over(now+d-1) && e.ejection.Over(now+d) }
	if !lasts(64 * sec) {
		t.Error("failed again at once, it is not ejected for 64 s")
	}
	now += 64 * sec
	e.Judge(now, true)
	now += 64 * sec
	e.judgeMany(now, 5, false)
	if !lasts(sec) {
		t.Error("failed after it served for as long as it was ejected, it is not ejected for 1 s")
	}
}

// TestEjectionLimit checks that at most the given share is ejected.
func TestEjectionLimit(t *testing.T) {
	for _, c := range []struct {
		n    int
		max  float64
		want int
	}{
		{1, 0.5, 0}, {2, 0.5, 1}, {3, 0.5, 1}, {4, 0.5, 2}, {10, 0.3, 3}, {10, 0.29, 2}, {100, 0.29, 29}, {3, 1, 3}, {3, 0, 0},
	} {
		o := strict
		o.MaxEjected = c.max
		s, _ := judged(c.n, o)
		for _, e := range s.peers.all.endpoints {
			e.judgeMany(0, 10, false)
		}
		out := 0
		for _, e := range s.peers.all.endpoints {
			if _, ejected := e.Ejected(); ejected {
				out++
			}
		}
		if out != c.want {
			t.Errorf("%d of %d are ejected, want %d", out, c.n, c.want)
		}
	}

	s, _ := judged(8, strict)
	for i := range 4 {
		s.At(i).judgeMany(0, 5, false)
	}
	s.Update(numbered(5, even)) // the four and one more
	if s.peers.health.ejected != 2 {
		t.Errorf("%d of five are ejected after the set shrank, want 2", s.peers.health.ejected)
	}
	s.Update(numbered(1, even))
	if why, ejected := s.At(0).Ejected(); ejected {
		t.Errorf("the only endpoint is ejected by %v", why)
	}
}

// TestPanic checks that all endpoints are picked if more than the share is bad, and only
// the good ones at exactly the share.
func TestPanic(t *testing.T) {
	rnd := rand.NewPCG(1, 2)
	s := Set{Policy: Random{}, Outlier: outlier.Rules{Consecutive: 1, Base: time.Hour, MaxEjected: 1}, PanicThreshold: 0.5}
	targets := numbered(6, even)
	targets[0].Unhealthy = true
	s.Update(targets)
	reached := func() int {
		got := map[*Endpoint]bool{}
		for range 400 {
			got[s.Pick(Query{Now: 0, Rand: rnd})] = true
		}
		return len(got)
	}
	s.At(1).Judge(0, false)
	s.At(2).Judge(0, false)
	if n := reached(); n != 3 || s.Panics() {
		t.Errorf("half is bad: %d of 6 are picked, panic %v", n, s.Panics())
	}
	s.At(3).Judge(0, false)
	if n := reached(); n != 6 || !s.Panics() {
		t.Errorf("more than half is bad: %d of 6 are picked, panic %v", n, s.Panics())
	}
	targets[0].Unhealthy = false
	s.Update(targets)
	if n := reached(); n != 3 || s.Panics() {
		t.Errorf("one is healthy again: %d of 6 are picked, panic %v", n, s.Panics())
	}
}

// TestPanicShare: how many bad endpoints make a set panic.
func TestPanicShare(t *testing.T) {
	for _, c := range []struct {
		n, bad int
		share  float64
		want   bool
	}{
		{0, 0, 0, false}, {1, 0, 0, false}, {1, 1, 0, true}, {4, 3, 0, false}, {4, 4, 0, true},
		{4, 2, .5, false}, {4, 3, .5, true}, {4, 0, .5, false}, {4, 3, 1, false}, {4, 4, 1, true}, {0, 0, .5, false},
	} {
		s := Set{PanicThreshold: c.share}
		targets := numbered(c.n, even)
		for i := range c.bad {
			targets[i].Unhealthy = true
		}
		if s.Update(targets); s.Panics() != c.want {
			t.Errorf("%d of %d are bad, at a threshold of %v: panic %t", c.bad, c.n, c.share, s.Panics())
		}
	}
}

// TestRetune checks that changed settings apply to the present endpoints, and that what
// they still allow stays.
func TestRetune(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(s *Set)
		out    int // of the three ejected endpoints
		panics bool
	}{
		{"nothing", func(*Set) {}, 3, false},
		{"none may be ejected", func(s *Set) { s.Outlier.MaxEjected = 0 }, 0, false},
		{"fewer may be", func(s *Set) { s.Outlier.MaxEjected = 0.2 }, 2, false},
		{"more may be", func(s *Set) { s.Outlier.MaxEjected = 1 }, 3, false},
		{"the share that counts is smaller", func(s *Set) { s.PanicThreshold = 0.2 }, 3, true},
		{"both", func(s *Set) { s.PanicThreshold, s.Outlier.MaxEjected = 0.2, 0.2 }, 2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Set{Policy: Random{}, Outlier: outlier.Rules{Consecutive: 1, Base: time.Hour, MaxEjected: 0.5}, PanicThreshold: 0.5}
			s.Update(numbered(10, even))
			for i := range 3 {
				s.At(i).Judge(0, false)
			}
			c.change(&s)
			s.Retune()
			got := map[*Endpoint]bool{}
			rnd := rand.NewPCG(1, 2)
			for range 1000 {
				got[s.Pick(Query{Now: 0, Rand: rnd})] = true
			}
			want := 10 - c.out
			if c.panics {
				want = 10
			}
			if s.peers.health.ejected != c.out || s.Panics() != c.panics || len(got) != want {
				t.Errorf("%d out, panic %t, %d picked; want %d, %t, %d", s.peers.health.ejected, s.Panics(), len(got), c.out, c.panics, want)
			}
		})
	}
}

func TestLatencyEjection(t *testing.T) {
	for _, c := range []struct {
		name    string
		latency []time.Duration // mean of each
		answers int
		factor  float64
		want    int // ejected, from the slowest on
	}{
		{"alike", []time.Duration{ms, ms, ms, ms, ms, ms}, 30, 3, 0},
		{"at the factor", []time.Duration{ms, ms, ms, 3 * ms}, 30, 3, 0},
		{"past it", []time.Duration{ms, ms, ms, 3*ms + 1}, 30, 3, 1},
		{"too few answers", []time.Duration{ms, ms, ms, 9 * ms}, 19, 3, 0},
		{"enough", []time.Duration{ms, ms, ms, 9 * ms}, 20, 3, 1},
		{"two of six", []time.Duration{ms, ms, ms, ms, 9 * ms, 8 * ms}, 30, 3, 2},
		{"of two", []time.Duration{ms, 9 * ms}, 30, 3, 1},
		{"half of them", []time.Duration{ms, ms, 9 * ms, 9 * ms}, 30, 3, 2},
		{"most of them", []time.Duration{ms, 9 * ms, 9 * ms, 9 * ms}, 30, 3, 0},
		{"alone", []time.Duration{9 * ms}, 30, 3, 0},
		{"a factor of 1", []time.Duration{ms, ms, ms, 3 * ms}, 30, 1, 1},
		{"no factor", []time.Duration{ms, ms, ms, 9 * ms}, 30, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := strict
			o.Latency = c.factor
			s, _ := judged(len(c.latency), o)
			s.Pick(Query{Now: sec, Rand: rand.NewPCG(1, 2)})
			for i, latency := range c.latency {
				e := s.At(i)
				for range c.answers {
					e.Start(sec)
					e.Finish(sec, latency)
				}
			}
			s.Pick(Query{Now: sec + reviewEvery, Rand: rand.NewPCG(1, 2)})
			if got := int(s.peers.health.counts[outlier.ByLatency]); got != c.want || s.peers.health.ejected != c.want {
				t.Errorf("%d were ejected, want %d", got, c.want)
			}
			for i, latency := range c.latency {
				if why, ejected := s.At(i).Ejected(); ejected && (why != outlier.ByLatency || latency < 3*ms) {
					t.Errorf("ejected by %v with a mean of %v", why, latency)
				}
			}
		})
	}
}

// TestFreezeNoLatencyEjection checks that short freezes are no reason for an ejection by
// latency.
func TestFreezeNoLatencyEjection(t *testing.T) {
	o := strict
	o.Latency = 3
	s, e := judged(3, o)
	rnd := rand.NewPCG(1, 2)
	for i := range 20000 {
		now := time.Duration(i) * ms
		for j := range s.Len() {
			s.At(j).Start(now)
			latency := ms
			if s.At(j) == e && i%1000 < 3 { // the requests in a freeze of 50 ms
				latency = 50 * ms
			}
			s.At(j).Finish(now, latency)
		}
		s.Pick(Query{Now: now, Rand: rnd})
	}
	if s.peers.health.counts[outlier.ByLatency] != 0 {
		t.Errorf("counted %v", s.peers.health.counts)
	}
}

// TestRemovedEndpointJudged checks that pending attempts may end at a removed endpoint.
func TestRemovedEndpointJudged(t *testing.T) {
	s, e := judged(4, strict)
	s.Update(numbered(4, even)[1:])
	e.judgeMany(0, 50, false)
	e.CountNoRoom(0, 0)
	e.TimedOut(sec)
	if s.peers.health.ejected != 0 || s.peers.health.counts != [outlier.Reasons]uint64{} {
		t.Errorf("%d ejected, counted %v", s.peers.health.ejected, s.peers.health.counts)
	}
}

// TestEjectionsCounted: what reports say of ejections, and of the attempts that led to them.
func TestEjectionsCounted(t *testing.T) {
	s := Set{Outlier: outlier.Rules{Consecutive: 2, Base: time.Second, MaxEjected: 1}}
	s.Update(numbered(2, even))
	e := s.At(0)
	e.Judge(0, true)
	e.Judge(0, false)
	if failed, good := e.Streak(0); failed != 1 || good != 1 || e.Ejections() != 0 || s.Ejections() != [outlier.Reasons]uint64{} {
		t.Errorf("%d failed in a row, %d were good, ejected %d times", failed, good, e.Ejections())
	}
	e.Judge(0, false)
	if failed, _ := e.Streak(0); failed != 2 || e.Ejections() != 1 || s.Ejections() != [outlier.Reasons]uint64{outlier.ByConsecutive: 1} {
		t.Errorf("%d failed in a row, ejected %d times, %v in all", failed, e.Ejections(), s.Ejections())
	}
	e.Judge(time.Second, false) // the probe
	if e.Ejections() != 2 || s.Ejections() != [outlier.Reasons]uint64{outlier.ByConsecutive: 2} || s.At(1).Ejections() != 0 {
		t.Errorf("ejected %d times after the probe, %v in all", e.Ejections(), s.Ejections())
	}
}
