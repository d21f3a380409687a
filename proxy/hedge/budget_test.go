package hedge

import (
	"math/rand/v2"
	"testing"
	"time"
)

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
		t.Errorf("%d tokens after 2 s without requests, want 10: the burst shrinks with the rate", n)
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

// TestHedgesAtOnce: hedges take at once what a second earns, but for a quarter of it, which they leave to stuck
// requests and to retries.
func TestHedgesAtOnce(t *testing.T) {
	s, r := NewService(1), NewRoute(*auto(), 1)
	for at := time.Duration(0); at < 10*time.Second; at += ms / 2 {
		s.Primary(at, r)
	}
	const now = 10 * time.Second
	hedges := func(stuck bool) (n int) {
		for s.Decide(now, r, &Question{Idempotent: true, Paid: true, Endpoints: 3, Untried: 1, Left: time.Hour, Stuck: stuck}) == Open {
			s.Done()
			n++
		}
		return n
	}
	if late, stuck := hedges(false), hedges(true); late < 74 || late > 75 || stuck < 24 || stuck > 25 {
		t.Errorf("%d hedges of late requests and %d of stuck ones, want 75 and 25 of the 100 that a second earns", late, stuck)
	}
	for range 5 {
		s.Refund(now)
	}
	if n := hedges(true); n != 5 {
		t.Errorf("%d hedges after 5 were given back", n)
	}
}

// TestTokensAhead: no more is owed than was in flight, and nothing is sent until it is earned.
func TestTokensAhead(t *testing.T) {
	s, r := NewService(1), NewRoute(*auto(), 1)
	n := 0
	for s.RetryAhead(0, 30) {
		n++
	}
	if have := s.Tokens(0); n != 40 || have != -30 || s.Retry(0) {
		t.Errorf("%d retries, %v tokens; want 10 and 30 in advance, and no other", n, have)
	}
	for range 20*31 + 1 {
		s.Primary(0, r)
	}
	if !s.Retry(0) || s.Retry(0) {
		t.Errorf("%v tokens after the debt and one token were earned", s.Tokens(0))
	}
}

// At any time, and for any arrivals, the tokens taken so far are bounded by the
// budget of the primaries so far and one burst.
func TestBudgetBound(t *testing.T) {
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
			if have := s.Tokens(now); have < 0 || have > max(start, s.tokens.PerSecond(now))+1e-6 {
				t.Fatalf("%v tokens", have)
			}
		}
		if taken == 0 {
			t.Fatal("no token was taken: the test shows nothing")
		}
	}
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
		if got := s.limit(c.latency, c.perSecond); got != c.want {
			t.Errorf("%+v: limit %d", c, got)
		}
	}
}

func TestDoneWithoutHedge(t *testing.T) {
	s := NewService(1)
	defer func() {
		if recover() == nil {
			t.Error("Done without a hedge in flight did not panic")
		}
	}()
	s.Done()
}
