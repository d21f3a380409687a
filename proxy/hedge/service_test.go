package hedge

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// The names are what metrics and dashboards are built on.
func TestNames(t *testing.T) {
	for g, want := range map[Gate]string{
		Open: "open", NotIdempotent: "not_idempotent", Cascade: "cascade", NoEndpoint: "no_endpoint",
		Deadline: "deadline", Budget: "budget", Concurrency: "concurrency", Correlated: "correlated",
		Useless: "useless", Gate(Gates): "unknown",
	} {
		if g.String() != want {
			t.Errorf("gate %d is called %q, want %q", g, g, want)
		}
	}
	transient := 0
	for g := range Gates {
		if Gate(g).Transient() {
			transient |= 1 << g
		}
	}
	if want := 1<<NoEndpoint | 1<<Budget | 1<<Concurrency | 1<<Correlated | 1<<Useless; transient != want {
		t.Errorf("transient gates %b, want %b", transient, want)
	}
	for m, want := range map[Mode]string{Off: "off", Shadow: "shadow", On: "on", 9: "unknown"} {
		if m.String() != want {
			t.Errorf("mode %d is called %q, want %q", m, m, want)
		}
	}
}

func willing() Question {
	return Question{Idempotent: true, Untried: 1, Left: NoDeadline}
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(s *Service, r *Route, q *Question)
		want Gate
	}{
		{"all well", func(s *Service, r *Route, q *Question) {}, Open},
		{"nothing said", func(s *Service, r *Route, q *Question) { *q = Question{} }, NotIdempotent},
		{"not idempotent", func(s *Service, r *Route, q *Question) { q.Idempotent = false }, NotIdempotent},
		{"cascade", func(s *Service, r *Route, q *Question) { q.Cascade = true }, Cascade},
		{"all are silent", func(s *Service, r *Route, q *Question) { q.Endpoints, q.Heard, q.Silent = 3, 3, 3 }, Correlated},
		{"both are silent", func(s *Service, r *Route, q *Question) { q.Endpoints, q.Heard, q.Silent = 2, 2, 2 }, Correlated},
		{"one of three speaks", func(s *Service, r *Route, q *Question) { q.Endpoints, q.Heard, q.Silent = 3, 3, 2 }, Open},
		{"one of three is idle", func(s *Service, r *Route, q *Question) { q.Endpoints, q.Heard, q.Silent = 3, 2, 2 }, Open},
		{"the only one is silent", func(s *Service, r *Route, q *Question) { q.Endpoints, q.Heard, q.Silent = 1, 1, 1 }, Open},
		{"two of many are silent, and nothing is heard of the rest", func(s *Service, r *Route, q *Question) { q.Endpoints, q.Heard, q.Silent = 9, 2, 2 }, Open},
		{"half of six are silent", func(s *Service, r *Route, q *Question) { q.Endpoints, q.Heard, q.Silent = 6, 6, 3 }, Open},
		{"more than half are silent", func(s *Service, r *Route, q *Question) { q.Endpoints, q.Heard, q.Silent = 6, 5, 3 }, Correlated},
		{"cascade comes first", func(s *Service, r *Route, q *Question) { q.Endpoints, q.Heard, q.Silent, q.Cascade = 3, 3, 3, true }, Cascade},
		{"hedges do not win", func(s *Service, r *Route, q *Question) { neverWin(r) }, Useless},
		{"they do not, but this one is stuck", func(s *Service, r *Route, q *Question) {
			neverWin(r)
			q.Stuck = true
		}, Open},
		{"they do not, but it is too late anyway", func(s *Service, r *Route, q *Question) {
			neverWin(r)
			q.Left = 3 * ms
		}, Deadline},
		{"no endpoint", func(s *Service, r *Route, q *Question) { q.Untried = 0 }, NoEndpoint},
		{"past the deadline", func(s *Service, r *Route, q *Question) { q.Left = -ms }, Deadline},
		{"less than a median left", func(s *Service, r *Route, q *Question) { q.Left = 3 * ms }, Deadline},
		{"a median left", func(s *Service, r *Route, q *Question) { q.Left = 5 * ms }, Open},
		{"budget spent", func(s *Service, r *Route, q *Question) {
			for s.Retry(0) {
			}
		}, Budget},
		{"the rest of the budget is for the stuck", func(s *Service, r *Route, q *Question) {
			for s.Tokens(0) > 3 {
				s.Retry(0)
			}
		}, Budget},
		{"which this one is", func(s *Service, r *Route, q *Question) {
			for s.Tokens(0) > 1 {
				s.Retry(0)
			}
			q.Stuck = true
		}, Open},
		{"no budget at all", func(s *Service, r *Route, q *Question) { r.Policy.Budget = 0 }, Budget},
		{"too many in flight", func(s *Service, r *Route, q *Question) { s.inFlight.n = 10 }, Concurrency},
		{"the budget is asked first", func(s *Service, r *Route, q *Question) {
			s.inFlight.n = 10
			for s.Retry(0) {
			}
		}, Budget},
		{"facts before costs", func(s *Service, r *Route, q *Question) {
			q.Cascade = true
			for s.Retry(0) {
			}
		}, Cascade},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, r, q := NewService(1), NewRoute(*auto(), 1), willing()
			observe(&r.Estimator, 1000, 0, 4*ms)
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
		})
	}
}

func TestDecideBeforeAnythingIsKnown(t *testing.T) {
	s, r, q := NewService(1), NewRoute(*auto(), 1), willing()
	q.Left = 1
	if got := s.Decide(0, r, &q); got != Open {
		t.Errorf("%v, want open: no median says that it is too late", got)
	}
	q.Left = 0
	if got := s.Decide(0, r, &q); got != Deadline {
		t.Errorf("%v with nothing left, want deadline", got)
	}
}

func TestDoneWithoutHedge(t *testing.T) {
	s := NewService(1)
	defer func() {
		if recover() == nil {
			t.Error("a slot was given back that nobody had")
		}
	}()
	s.Done()
}

func TestInFlightLimit(t *testing.T) {
	for _, c := range []struct {
		loops     int
		latency   time.Duration
		perSecond float64
		want      int
	}{
		{1, 0, 0, 10},
		{1, 4 * ms, 50, 10},
		{1, 20 * ms, 1000, 20},
		{1, 20 * ms, 1001, 21},
		{4, 0, 0, 3},
		{4, 20 * ms, 1000, 20},
		{64, 0, 0, 1},
	} {
		s := NewService(c.loops)
		if got := s.inFlight.Limit(c.latency, c.perSecond); got != c.want {
			t.Errorf("%+v: limit %d", c, got)
		}
	}
}

func TestTokens(t *testing.T) {
	s := NewService(1)
	r := NewRoute(*auto(), 1)
	take := func(now time.Duration) (n int) {
		for s.Retry(now) {
			n++
		}
		return n
	}
	if n := take(0); n != 10 {
		t.Errorf("%d tokens at the start, want 10", n)
	}
	primaries := func(from, to time.Duration, perSecond int) {
		for at := from; at < to; at += time.Second / time.Duration(perSecond) {
			s.Primary(at, r)
		}
	}
	primaries(0, time.Second, 100)
	if n := take(time.Second); n < 4 || n > 5 {
		t.Errorf("%d tokens for 100 primaries, want 5", n)
	}
	primaries(time.Second, 11*time.Second, 1000)
	if n := take(11 * time.Second); n < 45 || n > 50 {
		t.Errorf("%d tokens after 10 s at 1000 a second, want one second's worth, 50", n)
	}
	primaries(11*time.Second, 12*time.Second, 1000)
	if n := take(14 * time.Second); n != 10 {
		t.Errorf("%d tokens after 2 s of silence, want 10: the rest was for a rate that is over", n)
	}
	for range 20 {
		s.Refund(14 * time.Second)
	}
	if got := s.Tokens(14 * time.Second); got != 10 {
		t.Errorf("%v tokens after too many refunds, want 10", got)
	}
	if s = NewService(100); take(0) != 1 {
		t.Error("of 100 loops each must be able to hold a token")
	}
}

// Whatever comes when, all that was taken by any moment is within the budget of
// the primaries so far and one burst.
func TestBudgetHolds(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 9))
	for range 50 {
		s := NewService(1 + rnd.IntN(4))
		start := s.Tokens(0)
		r := NewRoute(*auto(), 1)
		r.Policy.Budget = 0.01 + 0.2*rnd.Float64()
		var now time.Duration
		earned, taken := 0.0, 0.0
		for range 5000 {
			now += time.Duration(rnd.ExpFloat64() * float64(rnd.IntN(20)) * float64(ms))
			if rnd.IntN(3) > 0 {
				s.Primary(now, r)
				earned += r.Policy.Budget
			} else if s.Retry(now) {
				taken++
			}
			if taken > earned+start+1e-6 {
				t.Fatalf("%v taken of %v earned and %v at the start", taken, earned, start)
			}
			if have := s.Tokens(now); have < 0 || have > max(start, s.tokens.in.perSecond(now))+1e-6 {
				t.Fatalf("%v tokens", have)
			}
		}
		if taken == 0 {
			t.Fatal("nothing was taken: the experiment shows nothing")
		}
	}
}

func TestIncome(t *testing.T) {
	var in income
	for at := time.Duration(0); at < 10*time.Second; at += 10 * ms {
		in.add(at, 1)
		if at < time.Second {
			continue
		}
		if got := in.perSecond(at); math.Abs(got-100) > 2 {
			t.Fatalf("at %v: %v a second, want 100", at, got)
		}
	}
	before := in
	for _, c := range []struct {
		at   time.Duration
		want float64
	}{{10500 * ms, 50}, {10999 * ms, 0}, {11 * time.Second, 0}, {time.Hour, 0}} {
		if got := in.perSecond(c.at); math.Abs(got-c.want) > 1 {
			t.Errorf("at %v: %v a second, want %v", c.at, got, c.want)
		}
	}
	if in != before {
		t.Error("reading changed it")
	}
}

func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s, r := NewService(1), NewRoute(*auto(), 1)
	var now time.Duration
	opened := 0
	allocs := testing.AllocsPerRun(5000, func() {
		now += ms
		s.Primary(now, r)
		r.Estimator.Observe(now, 2*ms)
		r.Delay(now)
		r.Estimator.StallAfter(now, &r.Policy)
		q := willing()
		if s.Decide(now, r, &q) == Open {
			opened++
			r.Estimator.Censor(now)
			r.Won()
			s.Done()
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations per request", allocs)
	}
	if opened == 0 {
		t.Error("no hedge was sent: that path was not measured")
	}
}

// One request's share: earn, delay, observe.
func BenchmarkRequest(b *testing.B) {
	s, r := NewService(1), NewRoute(*auto(), 1)
	var now time.Duration
	b.ReportAllocs()
	for b.Loop() {
		now += 20 * time.Microsecond
		s.Primary(now, r)
		r.Delay(now)
		r.Estimator.Observe(now, 2*ms)
	}
}

// A late request leaves a quarter of the bucket to stuck ones, to the token; a full
// bucket has one for either, however small it is.
func TestSpare(t *testing.T) {
	for _, c := range []struct {
		burst, tokens float64
		late, stuck   bool
	}{
		{8, 3, true, true},
		{8, 2.99, false, true},
		{8, 1, false, true},
		{8, 0.99, false, false},
		{1.2, 1.2, true, true},
		{1.2, 1.19, false, true},
		{1, 1, true, true},
		{1, 0.99, false, false},
	} {
		b := NewTokens(c.burst)
		b.tokens = c.tokens
		if late, stuck := b.spare(0, false), b.spare(0, true); late != c.late || stuck != c.stuck {
			t.Errorf("%v of %v tokens: %t for a late request, %t for a stuck one", c.tokens, c.burst, late, stuck)
		}
	}
}
