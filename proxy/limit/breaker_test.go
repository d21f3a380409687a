package limit

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

func TestBreakerStates(t *testing.T) {
	b := NewBreaker(&config.Breaker{Consecutive: 3, Open: time.Second, HalfOpen: 1})
	now := time.Hour
	request := func(v fault.Verdict) {
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
	request(fault.VerdictBad)
	request(fault.VerdictBad)
	request(fault.VerdictGood) // failures are in a row no more
	request(fault.VerdictBad)
	request(fault.VerdictBad)
	request(fault.VerdictNone)
	expect(stats.BreakerClosed)
	early := b.Allow(now) // in flight when the breaker opens
	request(fault.VerdictBad)
	expect(stats.BreakerOpen)
	if b.Allow(now) != NoPermit {
		t.Error("the open breaker allowed a request")
	}
	b.Record(now, early, fault.VerdictGood)
	expect(stats.BreakerOpen)
	now += time.Second
	expect(stats.BreakerHalfOpen)
	probe := b.Allow(now)
	if probe != ProbePermit || b.Allow(now) != NoPermit {
		t.Error("the half-open breaker did not allow exactly one probe")
	}
	b.Record(now, probe, fault.VerdictNone) // cancelled by its caller
	request(fault.VerdictBad)
	expect(stats.BreakerOpen)
	now += time.Second
	request(fault.VerdictGood)
	expect(stats.BreakerClosed)
	request(fault.VerdictBad)
	request(fault.VerdictBad)
	expect(stats.BreakerClosed)
	if (*Breaker)(nil).State(now) != stats.BreakerNone {
		t.Error("no breaker has a state")
	}
}

// TestBreakerReopens: failures before the breaker opened do not count once it is closed again.
func TestBreakerReopens(t *testing.T) {
	b := NewBreaker(&config.Breaker{Consecutive: 2, Open: time.Second, HalfOpen: 1})
	now := time.Hour
	for round := range 3 {
		for failures := range 2 {
			if got := b.State(now); got != stats.BreakerClosed {
				t.Fatalf("round %d: state %d after %d failures", round, got, failures)
			}
			b.Record(now, b.Allow(now), fault.VerdictBad)
		}
		if got := b.State(now + time.Second - 1); got != stats.BreakerOpen {
			t.Fatalf("round %d: state %d after two failures", round, got)
		}
		now += time.Second
		b.Record(now, b.Allow(now), fault.VerdictGood)
	}
}

// For any order of requests and verdicts, the breaker opens only after enough failures
// in a row, allows nothing while it is open and no more probes than configured, and
// closes once a probe succeeds.
func TestBreakerProperties(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		c := &config.Breaker{Consecutive: 1 + rnd.IntN(5), Open: time.Second, HalfOpen: 1 + rnd.IntN(3)}
		b := NewBreaker(c)
		var inFlight []Permit
		var opened time.Duration
		now, row := time.Hour, 0
		for range 3000 {
			now += time.Duration(rnd.Int64N(int64(50 * time.Millisecond)))
			before := b.State(now)
			if len(inFlight) == 0 || rnd.IntN(2) == 0 {
				refuses := b.Refuses(now)
				p := b.Allow(now)
				if refuses != (p == NoPermit) {
					t.Fatalf("seed %d: Refuses is %t, and the permit %d", seed, refuses, p)
				}
				if p != NoPermit && before == stats.BreakerOpen {
					t.Fatalf("seed %d: the open breaker allowed a request %v after it opened", seed, now-opened)
				}
				if p != NoPermit {
					inFlight = append(inFlight, p)
				}
			} else {
				i := rnd.IntN(len(inFlight))
				p, v := inFlight[i], fault.Verdict(rnd.IntN(3))
				inFlight = append(inFlight[:i], inFlight[i+1:]...)
				switch v {
				case fault.VerdictGood:
					row = 0
				case fault.VerdictBad:
					row++
				}
				b.Record(now, p, v)
				if before == stats.BreakerClosed && b.State(now) == stats.BreakerOpen {
					if row < c.Consecutive {
						t.Fatalf("seed %d: open after %d failures in a row, want %d", seed, row, c.Consecutive)
					}
					opened, row = now, 0
				}
			}
			probes := 0
			for _, p := range inFlight {
				if p == ProbePermit {
					probes++
				}
			}
			if probes > c.HalfOpen || int(b.probes.Load()) != probes {
				t.Fatalf("seed %d: %d probes in flight, %d counted, at most %d may be", seed, probes, b.probes.Load(), c.HalfOpen)
			}
		}
		for _, p := range inFlight {
			b.Record(now, p, fault.VerdictNone)
		}
		now += time.Second
		b.Record(now, b.Allow(now), fault.VerdictGood)
		if b.State(now) != stats.BreakerClosed {
			t.Fatalf("seed %d: a successful probe did not close the breaker", seed)
		}
	}
}
