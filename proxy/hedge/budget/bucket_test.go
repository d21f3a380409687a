package budget

import (
	"testing"
	"time"
)

const sec = time.Second

// TestTokens: primaries earn tokens, up to what a second earns, and each hedge takes one.
func TestTokens(t *testing.T) {
	b := New(3)
	have := func(now time.Duration, want float64) {
		t.Helper()
		if got := b.Have(now); got != want {
			t.Errorf("%v tokens, want %v", got, want)
		}
	}
	take := func(want bool) {
		t.Helper()
		if got := b.Take(0); got != want {
			t.Errorf("a token was taken: %t, want %t", got, want)
		}
	}
	have(0, 3)
	for range 3 {
		take(true)
	}
	take(false)
	have(0, 0)
	b.Primary(0, .5)
	take(false)
	b.Primary(0, .5)
	take(true)
	have(0, 0)

	b = New(1)
	for range 20 {
		b.Primary(0, .25)
	}
	have(0, 5)
	if got := b.PerSecond(0); got != 5 {
		t.Errorf("%v tokens a second, want 5", got)
	}
	have(2*sec, 1) // savings shrink with the rate
}

// TestTakeAhead: so many tokens may be owed, and no more.
func TestTakeAhead(t *testing.T) {
	b := New(1)
	for i, c := range []struct {
		owed int
		want bool
		have float64
	}{{0, true, 0}, {0, false, 0}, {1, true, -1}, {1, false, -1}, {2, true, -2}, {2, false, -2}} {
		if got := b.TakeAhead(0, c.owed); got != c.want || b.Have(0) != c.have {
			t.Errorf("step %d: %t, then %v tokens; want %t and %v", i, got, b.Have(0), c.want, c.have)
		}
	}
}

// TestRefund: a second gives back what it earns, at least minBurst, and never more than the bucket holds.
func TestRefund(t *testing.T) {
	for _, c := range []struct {
		burst, earned float64
		want          int // tokens that a second gives back
	}{{2, 0, 2}, {1, 3, 3}, {3, 2, 3}} {
		b := New(c.burst)
		if c.earned > 0 {
			b.Primary(0, c.earned)
		}
		full := b.Have(0)
		if b.Refund(0); b.Have(0) != full {
			t.Errorf("%+v: a full bucket has %v tokens after a refund, and %v before", c, b.Have(0), full)
		}
		b = New(c.burst)
		if c.earned > 0 {
			b.Primary(0, c.earned)
		}
		for _, times := range []int{c.want, 10} {
			for b.Take(0) {
			}
			for range times {
				b.Refund(0)
			}
			if got := b.Have(0); got != float64(c.want) {
				t.Errorf("%+v: %v tokens come back, want %d", c, got, c.want)
			}
			c.want = 0 // in the same second
		}
		if b.Refund(3 * sec); b.Have(3*sec) != 1 {
			t.Errorf("%+v: %v tokens later, want 1", c, b.Have(3*sec))
		}
	}
}

// TestHedges: a bucket of hedges is credited with what was earned since it was asked.
func TestHedges(t *testing.T) {
	from := NewIncome(2)
	h := Full(&from)
	have := func(now time.Duration, want float64) {
		t.Helper()
		for range 2 { // asking changes nothing
			if got := h.Have(now, &from); got != want {
				t.Errorf("%v tokens, want %v", got, want)
			}
		}
	}
	have(0, 2)
	h.Take(1.5)
	have(0, .5)
	from.Add(0, 1)
	have(0, 1.5)
	from.Add(0, 5)
	have(0, 6)
	have(2*sec, 2)
	least := NewIncome(0)
	if h = Full(&least); h.Have(0, &least) != 1 {
		t.Errorf("a bucket for nothing has %v tokens, want 1", h.Have(0, &least))
	}
}

// TestPause: what was added before a pause of two seconds does not count.
func TestPause(t *testing.T) {
	var l lastSecond
	l.add(0, 5)
	l.add(5*sec, 1)
	for at, want := range map[time.Duration]float64{5 * sec: 1, 5*sec + sec/2: 1, 6 * sec: 1, 6*sec + sec/2: .5, 7 * sec: 0, time.Hour: 0} {
		if got := l.perSecond(at); got != want {
			t.Errorf("at %v: %v a second, want %v", at, got, want)
		}
	}
	l.add(6*sec, 3)
	if got := l.perSecond(6*sec + sec/2); got != 3.5 {
		t.Errorf("with half of the second before: %v, want 3.5", got)
	}
}
