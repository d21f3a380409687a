package hedge

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/racetest"
	"github.com/remora-proxy/remora/proxy/hedge/periodic"
)

func willing() Question {
	return Question{Idempotent: true, Paid: true, Untried: 1, Left: time.Hour}
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(s *Service, r *Route, q *Question)
		want Gate
	}{
		{"all gates open", func(s *Service, r *Route, q *Question) {}, Open},
		{"zero question", func(s *Service, r *Route, q *Question) { *q = Question{} }, NotIdempotent},
		{"not idempotent", func(s *Service, r *Route, q *Question) { q.Idempotent = false }, NotIdempotent},
		{"cascade", func(s *Service, r *Route, q *Question) { q.Cascade = true }, Cascade},
		{"all are silent", func(s *Service, r *Route, q *Question) { q.Endpoints, q.Active, q.Silent = 3, 3, 3 }, Correlated},
		{"both are silent", func(s *Service, r *Route, q *Question) { q.Endpoints, q.Active, q.Silent = 2, 2, 2 }, Correlated},
		{"one of three responds", func(s *Service, r *Route, q *Question) { q.Endpoints, q.Active, q.Silent = 3, 3, 2 }, Open},
		{"one of three is idle", func(s *Service, r *Route, q *Question) { q.Endpoints, q.Active, q.Silent = 3, 2, 2 }, Open},
		{"the only one is silent", func(s *Service, r *Route, q *Question) { q.Endpoints, q.Active, q.Silent = 1, 1, 1 }, Open},
		{"two of many are silent, and the rest are idle", func(s *Service, r *Route, q *Question) { q.Endpoints, q.Active, q.Silent = 9, 2, 2 }, Open},
		{"half of six are silent", func(s *Service, r *Route, q *Question) { q.Endpoints, q.Active, q.Silent = 6, 6, 3 }, Open},
		{"more than half are silent", func(s *Service, r *Route, q *Question) { q.Endpoints, q.Active, q.Silent = 6, 5, 3 }, Correlated},
		{"cascade before correlated", func(s *Service, r *Route, q *Question) { q.Endpoints, q.Active, q.Silent, q.Cascade = 3, 3, 3, true }, Cascade},
		{"a stall is due", func(s *Service, r *Route, q *Question) { s.Stalls = stalls(-10 * time.Second) }, Periodic},
		{"correlated before periodic", func(s *Service, r *Route, q *Question) {
			s.Stalls, q.Endpoints, q.Active, q.Silent = stalls(-10*time.Second), 3, 3, 3
		}, Correlated},
		{"periodic before no endpoint", func(s *Service, r *Route, q *Question) { s.Stalls, q.Untried = stalls(-10*time.Second), 0 }, Periodic},
		{"no stall is due", func(s *Service, r *Route, q *Question) {
			s.Stalls = stalls(-15 * time.Second)
		}, Open},
		{"hedges save nothing", func(s *Service, r *Route, q *Question) { neverSave(r) }, Useless},
		{"hedges save nothing, and the request is stuck", func(s *Service, r *Route, q *Question) {
			neverSave(r)
			q.Stuck = true
		}, Open},
		{"deadline before useless", func(s *Service, r *Route, q *Question) {
			neverSave(r)
			q.Left = 3 * ms
		}, Deadline},
		{"no endpoint", func(s *Service, r *Route, q *Question) { q.Untried = 0 }, NoEndpoint},
		{"past the deadline", func(s *Service, r *Route, q *Question) { q.Left = -ms }, Deadline},
		{"less than a median left", func(s *Service, r *Route, q *Question) { q.Left = 3 * ms }, Deadline},
		{"a median left", func(s *Service, r *Route, q *Question) { q.Left = 5 * ms }, Open},
		{"exactly a median left", func(s *Service, r *Route, q *Question) { _, q.Left, _ = r.Latencies.estimateOf(0, 0) }, Open},
		{"a moment less than a median left", func(s *Service, r *Route, q *Question) {
			_, q.Left, _ = r.Latencies.estimateOf(0, 0)
			q.Left--
		}, Deadline},
		{"budget spent", func(s *Service, r *Route, q *Question) {
			for s.Retry(0) {
			}
		}, Budget},
		{"only the reserve is left", func(s *Service, r *Route, q *Question) {
			for s.tokens.Allows(0, false) {
				s.tokens.Take(0)
			}
		}, Budget},
		{"only the reserve is left, and the request is stuck", func(s *Service, r *Route, q *Question) {
			for s.tokens.Allows(0, false) {
				s.tokens.Take(0)
			}
			q.Stuck = true
		}, Open},
		{"the budget does not pay", func(s *Service, r *Route, q *Question) { q.Paid = false }, Budget},
		{"the budget does not pay, and the request is stuck", func(s *Service, r *Route, q *Question) { q.Paid, q.Stuck = false, true }, Open},
		{"no budget at all", func(s *Service, r *Route, q *Question) { r.Policy.Budget = 0 }, Budget},
		{"too many in flight", func(s *Service, r *Route, q *Question) { s.inFlight = 10 }, Concurrency},
		{"budget before concurrency", func(s *Service, r *Route, q *Question) {
			s.inFlight = 10
			for s.Retry(0) {
			}
		}, Budget},
		{"cascade before budget", func(s *Service, r *Route, q *Question) {
			q.Cascade = true
			for s.Retry(0) {
			}
		}, Cascade},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, r, q := NewService(1), NewRoute(*auto(), 1), willing()
			observe(&r.Latencies.Primaries, 1000, 0, 4*ms)
			c.do(&s, r, &q)
			tokens, inFlight := s.Tokens(0), s.InFlight()
			if got := s.Decide(0, r, &q); got != c.want {
				t.Fatalf("%v, want %v", got, c.want)
			}
			if c.want == Open {
				tokens, inFlight = tokens-1, inFlight+1
			}
			if s.Tokens(0) != tokens || s.InFlight() != inFlight {
				t.Errorf("%v tokens and %d in flight, want %v and %d", s.Tokens(0), s.InFlight(), tokens, inFlight)
			}
			counts := Counts{Hedges: map[Gate]uint64{Open: 1}[c.want]}
			if counts.Gates[c.want] = 1; r.Counts != counts {
				t.Errorf("counted %+v, want %+v", r.Counts, counts)
			}
		})
	}
}

// TestDecideSeldom: where hedges save nothing, one in many requests has one nevertheless.
func TestDecideSeldom(t *testing.T) {
	s, r, q := NewService(1), NewRoute(*auto(), 1), willing()
	observe(&r.Latencies.Primaries, 1000, 0, 4*ms)
	neverSave(r)
	oneIn := r.Savings.worth.OneIn()
	for i := range 3 * oneIn {
		got := s.Decide(0, r, &q)
		if want := (i+1)%oneIn == 0; (got == Open) != want || !want && got != Useless {
			t.Errorf("decision %d: %v", i, got)
		}
	}
}

func TestDecideWithoutSamples(t *testing.T) {
	s, r, q := NewService(1), NewRoute(*auto(), 1), willing()
	q.Left = 1
	if got := s.Decide(0, r, &q); got != Open {
		t.Errorf("%v, want open: without a median no time left is too short", got)
	}
	q.Left = 0
	if got := s.Decide(0, r, &q); got != Deadline {
		t.Errorf("%v with nothing left, want deadline", got)
	}
}

func TestNoAllocations(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector allocates")
	}
	s, r := NewService(1), NewRoute(*auto(), 1)
	var now time.Duration
	opened := 0
	allocs := testing.AllocsPerRun(5000, func() {
		now += ms
		s.Primary(now, r)
		r.Latencies.Primaries.Observe(now, 2*ms)
		r.Delays.Of(now, 0)
		r.Latencies.Primaries.StallAfter(now, &r.Policy)
		r.Delays.Choose(now)
		q := willing()
		if s.Decide(now, r, &q) == Open {
			opened++
			r.Latencies.Primaries.Censor(now)
			r.Counts.HedgesWon++
			r.Latencies.Responded(now, 3*ms)
			s.Done()
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations per request", allocs)
	}
	if opened == 0 {
		t.Error("no hedge was sent: the test did not measure that path")
	}
}

// BenchmarkRequest measures what each request costs: earn, delay, observe.
func BenchmarkRequest(b *testing.B) {
	s, r := NewService(1), NewRoute(*auto(), 1)
	var now time.Duration
	b.ReportAllocs()
	for b.Loop() {
		now += 20 * time.Microsecond
		s.Primary(now, r)
		r.Delays.Of(now, 0)
		r.Latencies.Primaries.Observe(now, 2*ms)
	}
}

// stalls returns what is known after stalls of a second each 10 s, until last.
func stalls(last time.Duration) (s periodic.Stalls) {
	for at := last - 50*time.Second; at <= last; at += 10 * time.Second {
		s.Look(at, false, 0, ms)
		s.Look(at+ms, true, at, ms)
		s.Look(at+time.Second, false, 0, ms)
	}
	return s
}

// neverSave closes the gate useless for seven of eight decisions.
func neverSave(r *Route) {
	for r.Savings.worth.OneIn() == 1 {
		r.Savings.worth.Judge(ms, 0)
	}
}
