package proxy

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
)

func TestBreakerSteps(t *testing.T) {
	b := newBreaker(&config.Breaker{Consecutive: 3, Open: time.Second, HalfOpen: 1})
	now := time.Hour
	one := func(v verdict) {
		t.Helper()
		p := b.ask(now)
		if p == passNone {
			t.Fatal("refused")
		}
		b.tell(now, p, v)
	}
	expect := func(want BreakerState) {
		t.Helper()
		if got := b.state(now); got != want {
			t.Fatalf("state %d, want %d", got, want)
		}
	}
	one(verdictBad)
	one(verdictBad)
	one(verdictGood) // the row is broken
	one(verdictBad)
	one(verdictBad)
	one(verdictNone)
	expect(BreakerClosed)
	early := b.ask(now) // still out when it opens
	one(verdictBad)
	expect(BreakerOpen)
	if b.ask(now) != passNone {
		t.Error("a request passed an open breaker")
	}
	b.tell(now, early, verdictGood)
	expect(BreakerOpen)
	now += time.Second
	expect(BreakerHalfOpen)
	probe := b.ask(now)
	if probe != passProbe || b.ask(now) != passNone {
		t.Error("half-open, not exactly one probe passed")
	}
	b.tell(now, probe, verdictNone) // its caller went away
	one(verdictBad)
	expect(BreakerOpen)
	now += time.Second
	one(verdictGood)
	expect(BreakerClosed)
	one(verdictBad)
	one(verdictBad)
	expect(BreakerClosed)
}

// Whatever comes in whatever order: it opens after a row of failures only, lets
// nothing pass before its time, never more probes than allowed, and ends closed
// once the service is well.
func TestBreakerProperties(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		c := &config.Breaker{Consecutive: 1 + rnd.IntN(5), Open: time.Second, HalfOpen: 1 + rnd.IntN(3)}
		b := newBreaker(c)
		var out []pass
		var opened time.Duration
		now, row := time.Hour, 0
		for range 3000 {
			now += time.Duration(rnd.Int64N(int64(50 * time.Millisecond)))
			before := b.state(now)
			if len(out) == 0 || rnd.IntN(2) == 0 {
				p := b.ask(now)
				if p != passNone && before == BreakerOpen {
					t.Fatalf("seed %d: a request passed %v after it opened", seed, now-opened)
				}
				if p != passNone {
					out = append(out, p)
				}
			} else {
				i := rnd.IntN(len(out))
				p, v := out[i], verdict(rnd.IntN(3))
				out = append(out[:i], out[i+1:]...)
				switch v {
				case verdictGood:
					row = 0
				case verdictBad:
					row++
				}
				b.tell(now, p, v)
				if before == BreakerClosed && b.state(now) == BreakerOpen {
					if row < c.Consecutive {
						t.Fatalf("seed %d: open after %d failures in a row of %d", seed, row, c.Consecutive)
					}
					opened, row = now, 0
				}
			}
			probes := 0
			for _, p := range out {
				if p == passProbe {
					probes++
				}
			}
			if probes > c.HalfOpen || int(b.probes.Load()) != probes {
				t.Fatalf("seed %d: %d probes out, %d counted, %d allowed", seed, probes, b.probes.Load(), c.HalfOpen)
			}
		}
		for _, p := range out {
			b.tell(now, p, verdictNone)
		}
		now += time.Second
		b.tell(now, b.ask(now), verdictGood)
		if b.state(now) != BreakerClosed {
			t.Fatalf("seed %d: not closed by a success", seed)
		}
	}
}
