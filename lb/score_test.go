package lb

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb/log2"
	"github.com/remora-proxy/remora/lb/spare"
)

// TestRank: the rank is the recent latency, divided by the discount. Once the recent latency is old, a lower usual latency takes
// its place.
func TestRank(t *testing.T) {
	const at = 10 * sec // of the latency
	for _, c := range []struct {
		name     string
		latency  time.Duration // 0 means none
		usual    time.Duration
		discount float64
		age      time.Duration
		want     time.Duration
	}{
		{"nothing known", 0, 0, 1, 0, 0},
		{"recent", 4 * ms, 0, 1, 0, 4 * ms},
		{"recent, and quicker as usual", 4 * ms, ms, 1, 8 * ms, 4 * ms},
		{"old, and quicker as usual", 4 * ms, ms, 1, 8*ms + 1, ms},
		{"old, and slower as usual", 4 * ms, 9 * ms, 1, 9 * ms, 4 * ms},
		{"old, and nothing is usual", 4 * ms, 0, 1, 9 * ms, 4 * ms},
		{"forgotten", 4 * ms, ms, 1, latencyLife, 0},
		{"half of the discount", 4 * ms, 0, .5, 0, 8 * ms},
		{"nothing known but failures", 0, 0, .5, 0, 2 * latencyLife},
	} {
		_, e := one(t)
		if e.discount = c.discount; c.latency > 0 {
			e.latency.Add(at, c.latency)
		}
		e.slowness.usual = float64(c.usual)
		v := View{Query: Query{Now: at + c.age}}
		if got := v.rank(e); got != float64(c.want) {
			t.Errorf("%s: %v, want %v", c.name, time.Duration(got), c.want)
		}
	}
}

// TestPeakCost: what PeakEWMA compares, of an endpoint of weight 2.
func TestPeakCost(t *testing.T) {
	known := peak{float64(4 * ms), sec}
	for _, c := range []struct {
		name     string
		peak     peak
		excess   excess
		pending  int
		discount float64
		age      time.Duration
		want     float64
	}{
		{"unknown", peak{}, excess{}, 0, 1, 0, 0},
		{"unknown, with a request", peak{}, excess{}, 1, 1, 0, unknownLatency * 2 / 2},
		{"unknown, after a failure", peak{}, excess{}, 0, .5, 0, unknownLatency / (2 * .5)},
		{"idle", known, excess{}, 0, 1, 0, float64(4*ms) / 2},
		{"busy", known, excess{}, 2, 1, 0, float64(4*ms) * 3 / 2},
		{"after a failure", known, excess{}, 0, .5, 0, float64(4*ms) / (2 * .5)},
		{"a while ago", known, excess{}, 0, 1, peakLife, float64(2*ms) / 2},
		{"half of a declined request", known, excess{load: .5, loadAt: sec, latency: ms}, 0, 1, 0, float64(4*ms) * 1.5 / 2},
		{"quick errors beyond those of slower peers", known, excess{share: .5, peak: float64(9 * ms)}, 0, 1, 0, float64(9*ms) / 2},
		{"errors beyond those of quicker peers", known, excess{share: .5, peak: float64(ms)}, 0, 1, 0, float64(4*ms) / 2},
		{"no errors beyond those of the peers any more", known, excess{peak: float64(9 * ms)}, 0, 1, 0, float64(4*ms) / 2},
	} {
		s := &Set{}
		s.Update([]Target{{Addr: "a", Weight: 2}})
		e := s.At(0)
		for range c.pending {
			e.Start(0)
		}
		e.peak, e.excess, e.discount = c.peak, c.excess, c.discount
		if got := (&View{Query: Query{Now: sec + c.age}}).peakCost(e); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestPeak: a slower response replaces a peak. After the time peakLife a faster one counts half.
func TestPeak(t *testing.T) {
	for latency, want := range map[time.Duration]time.Duration{9 * ms: 9 * ms, 8 * ms: 8 * ms, 4 * ms: 6 * ms} {
		var p peak
		p.add(sec, 8*ms)
		now := sec + peakLife
		if p.add(now, latency); p.at(now) != float64(want) {
			t.Errorf("%v after 8ms: %v, want %v", latency, time.Duration(p.at(now)), want)
		}
	}
}

// TestSpareByQueue: an endpoint whose sidecar would queue one more request has no room, though many requests are usual.
func TestSpareByQueue(t *testing.T) {
	for _, c := range []struct {
		capacity capacity
		pending  int
		want     bool
	}{{1, 0, true}, {1, 1, false}, {4, 3, true}, {4, 4, false}, {0, 4, true}} {
		s, e := one(t)
		e.usualLoad.Add(50)
		for range c.pending {
			e.Start(0)
		}
		e.capacity = c.capacity
		if got := e.Spare(0); got != c.want {
			t.Errorf("%d pending of %v: room %t", c.pending, c.capacity, got)
		}
		if s.Update(nil); !e.Spare(0) {
			t.Errorf("%d pending of %v: no room after the endpoint has left", c.pending, c.capacity)
		}
	}
}

// TestHedgeOfStuck: where a hedge may go, and where the hedge of a stuck request.
func TestHedgeOfStuck(t *testing.T) {
	const now = sec
	start := func(n int, at time.Duration) func(*Endpoint) {
		return func(e *Endpoint) {
			for range n {
				e.Start(at)
			}
		}
	}
	for _, c := range []struct {
		name         string
		workers      int
		do           func(e *Endpoint)
		plain, stuck bool
	}{
		{"idle", 1, func(*Endpoint) {}, true, true},
		{"a free worker", 3, start(2, now), true, true},
		{"no free worker", 1, start(1, now), false, true},
		{"twice the time", 1, start(2, now), false, true},
		{"four times the time", 1, start(3, now), false, false},
		{"a free worker, and silent for a while", 3, start(2, now-5*ms+1), true, true},
		{"a free worker, and stalled", 3, start(2, now-5*ms), false, false},
		{"a refusal a moment ago", 3, func(e *Endpoint) {
			e.Start(now)
			e.CountNoRoom(now, now)
			e.Drop()
		}, false, false},
	} {
		s := &Set{Stall: Stall{After: 5 * ms, Probe: time.Hour}}
		s.Update(numbered(2, even))
		for load := range 4 {
			for range 100 {
				s.peers.curve.Learn(now, log2.Of(ms<<max(0, load-c.workers+1)), spare.LevelOf(float64(load)))
			}
		}
		c.do(s.At(1))
		for stuck, want := range map[bool]bool{false: c.plain, true: c.stuck} {
			e := s.PickHedge(Query{Now: now, Rand: &scripted{n: 2}, Tried: []*Endpoint{s.At(0)}}, stuck)
			if (e != nil) != want {
				t.Errorf("%s: stuck %t, a hedge %t", c.name, stuck, e != nil)
			}
		}
	}
}

// TestFound: an attempt finds the requests of this process, and those of others. A report of others fades to the mean.
func TestFound(t *testing.T) {
	s := &Set{}
	s.Update([]Target{{Addr: "a", Weight: 2}, {Addr: "b"}})
	e := s.At(0)
	e.Report(0, Load{Pending: 6, Latency: sec}, 0) // 3 per weight, for half a second
	s.At(1).Report(0, Load{Pending: 1, Latency: sec}, 0)
	for i, c := range []struct {
		at   time.Duration
		want float64
	}{{0, 6}, {0, 7}, {sec / 4, 5 + 2}, {sec / 2, 4 + 3}} {
		if got := e.load(c.at); got != c.want {
			t.Errorf("at %v the load is %v, want %v", c.at, got, c.want)
		}
		if got := e.Start(c.at); got != spare.LevelOf(c.want) {
			t.Errorf("attempt %d found the level %d, want that of %v", i+1, got, c.want)
		}
	}
	if got := e.usualLoad.Load(); got != (6+7+7+7)/4. {
		t.Errorf("the usual load is %v", got)
	}
}
