package limit

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

func TestBreakerSteps(t *testing.T) {
	b := NewBreaker(&config.Breaker{Consecutive: 3, Open: time.Second, HalfOpen: 1})
	now := time.Hour
	one := func(v fault.Verdict) {
		t.Helper()
		p := b.Allow(now)
		if p == NoPermit {
			t.Fatal("refused")
		}
		b.Record(now, p, v)
	}
	expect := func(want stats.BreakerState) {
		t.Helper()
		if got := b.State(now); got != want {
			t.Fatalf("state %d, want %d", got, want)
		}
	}
	one(fault.VerdictBad)
	one(fault.VerdictBad)
	one(fault.VerdictGood) // the row is broken
	one(fault.VerdictBad)
	one(fault.VerdictBad)
	one(fault.VerdictNone)
	expect(stats.BreakerClosed)
	early := b.Allow(now) // still out when it opens
	one(fault.VerdictBad)
	expect(stats.BreakerOpen)
	if b.Allow(now) != NoPermit {
		t.Error("a request passed an open breaker")
	}
	b.Record(now, early, fault.VerdictGood)
	expect(stats.BreakerOpen)
	now += time.Second
	expect(stats.BreakerHalfOpen)
	probe := b.Allow(now)
	if probe != ProbePermit || b.Allow(now) != NoPermit {
		t.Error("half-open, not exactly one probe passed")
	}
	b.Record(now, probe, fault.VerdictNone) // its caller went away
	one(fault.VerdictBad)
	expect(stats.BreakerOpen)
	now += time.Second
	one(fault.VerdictGood)
	expect(stats.BreakerClosed)
	one(fault.VerdictBad)
	one(fault.VerdictBad)
	expect(stats.BreakerClosed)
}

// Whatever comes in whatever order: it opens after a row of failures only, lets
// nothing pass before its time, never more probes than allowed, and ends closed
// once the service is well.
func TestBreakerProperties(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		c := &config.Breaker{Consecutive: 1 + rnd.IntN(5), Open: time.Second, HalfOpen: 1 + rnd.IntN(3)}
		b := NewBreaker(c)
		var out []Permit
		var opened time.Duration
		now, row := time.Hour, 0
		for range 3000 {
			now += time.Duration(rnd.Int64N(int64(50 * time.Millisecond)))
			before := b.State(now)
			if len(out) == 0 || rnd.IntN(2) == 0 {
				p := b.Allow(now)
				if p != NoPermit && before == stats.BreakerOpen {
					t.Fatalf("seed %d: a request passed %v after it opened", seed, now-opened)
				}
				if p != NoPermit {
					out = append(out, p)
				}
			} else {
				i := rnd.IntN(len(out))
				p, v := out[i], fault.Verdict(rnd.IntN(3))
				out = append(out[:i], out[i+1:]...)
				switch v {
				case fault.VerdictGood:
					row = 0
				case fault.VerdictBad:
					row++
				}
				b.Record(now, p, v)
				if before == stats.BreakerClosed && b.State(now) == stats.BreakerOpen {
					if row < c.Consecutive {
						t.Fatalf("seed %d: open after %d failures in a row of %d", seed, row, c.Consecutive)
					}
					opened, row = now, 0
				}
			}
			probes := 0
			for _, p := range out {
				if p == ProbePermit {
					probes++
				}
			}
			if probes > c.HalfOpen || int(b.probes.Load()) != probes {
				t.Fatalf("seed %d: %d probes out, %d counted, %d allowed", seed, probes, b.probes.Load(), c.HalfOpen)
			}
		}
		for _, p := range out {
			b.Record(now, p, fault.VerdictNone)
		}
		now += time.Second
		b.Record(now, b.Allow(now), fault.VerdictGood)
		if b.State(now) != stats.BreakerClosed {
			t.Fatalf("seed %d: not closed by a success", seed)
		}
	}
}
