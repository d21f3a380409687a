package hedge

import (
	"math"
	"testing"
	"time"
)

const ms = time.Millisecond

func auto() *Policy {
	p := defaultPolicy()
	p.Mode = On
	return &p
}

func observe(e *Estimator, n int, at, latency time.Duration) {
	for range n {
		e.Observe(at, latency)
	}
}

// quantile returns the measured q-quantile. ok is false with too few samples, or if the
// quantile falls among the censored ones.
func quantile(e *Estimator, now time.Duration, q float64) (d time.Duration, ok bool) {
	if s, enough := e.read(now); enough {
		return s.Quantile(q)
	}
	return 0, false
}

func near(a, b time.Duration) bool { return math.Abs(float64(a-b)) <= 0.03*float64(b) }

func TestWindowForgets(t *testing.T) {
	const old, fresh = 40 * ms, 2 * ms
	for _, c := range []struct {
		name string
		fill func(e *Estimator)
		at   time.Duration
		want time.Duration // median; 0: unknown
	}{
		{"nothing", func(*Estimator) {}, 0, 0},
		{"99 samples", func(e *Estimator) { observe(e, 99, 0, old) }, 0, 0},
		{"100 samples", func(e *Estimator) { observe(e, 100, 0, old) }, 0, old},
		{"100 samples, but none lately", func(e *Estimator) { observe(e, 100, 0, old) }, 20 * time.Second, old},
		{"99 samples, but none lately", func(e *Estimator) { observe(e, 99, 0, old) }, 20 * time.Second, 0},
		{"both halves", func(e *Estimator) {
			observe(e, 150, 4*time.Second, old)
			observe(e, 100, 6*time.Second, fresh)
		}, 9 * time.Second, old},
		{"the first half has expired", func(e *Estimator) {
			observe(e, 150, 4*time.Second, old)
			observe(e, 100, 6*time.Second, fresh)
		}, 10 * time.Second, fresh},
		{"the first half is reused", func(e *Estimator) {
			observe(e, 150, 4*time.Second, old)
			observe(e, 100, 10*time.Second, fresh)
		}, 10 * time.Second, fresh},
		{"just enough recent samples: the short window", func(e *Estimator) {
			observe(e, 150, 4*time.Second, old)
			observe(e, 100, 14*time.Second, fresh)
		}, 14 * time.Second, fresh},
		{"too few recent samples: the long window", func(e *Estimator) {
			observe(e, 150, 4*time.Second, old)
			observe(e, 50, 14*time.Second, fresh)
		}, 14 * time.Second, old},
		{"both short halves have expired", func(e *Estimator) {
			observe(e, 150, 4*time.Second, old)
		}, 59 * time.Second, old},
		{"all halves have expired", func(e *Estimator) {
			observe(e, 150, 4*time.Second, old)
		}, 60 * time.Second, 0},
		{"a day without requests", func(e *Estimator) {
			observe(e, 150, 4*time.Second, old)
		}, 24 * time.Hour, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var e Estimator
			c.fill(&e)
			before := e
			got, ok := quantile(&e, c.at, 0.5)
			if ok != (c.want != 0) || ok && !near(got, c.want) {
				t.Errorf("median %v (%v), want %v", got, ok, c.want)
			}
			if e != before {
				t.Error("reading changed it")
			}
		})
	}
}

func TestDelay(t *testing.T) {
	spread := func(e *Estimator, slow time.Duration) { // 3.5% are slow
		observe(e, 965, 0, 2*ms)
		observe(e, 35, 0, slow)
	}
	for _, c := range []struct {
		name   string
		policy func(p *Policy)
		fill   func(e *Estimator)
		want   time.Duration
	}{
		{"too few", func(*Policy) {}, func(e *Estimator) { observe(e, 99, 0, 2*ms) }, 50 * ms},
		{"too few, some of them censored", func(*Policy) {}, func(e *Estimator) {
			observe(e, 98, 0, 2*ms)
			e.Censor(0)
		}, 50 * ms},
		{"censored ones are samples", func(*Policy) {}, func(e *Estimator) {
			observe(e, 99, 0, 2*ms)
			e.Censor(0)
		}, 2 * ms},
		{"the quantile", func(*Policy) {}, func(e *Estimator) { spread(e, 9*ms) }, 9 * ms},
		{"a lower quantile", func(p *Policy) { p.Quantile = 0.96 }, func(e *Estimator) { spread(e, 9*ms) }, 2 * ms},
		{"min", func(p *Policy) { p.MinDelay = 20 * ms }, func(e *Estimator) { spread(e, 9*ms) }, 20 * ms},
		{"max", func(p *Policy) { p.MaxDelay = 5 * ms }, func(e *Estimator) { spread(e, 9*ms) }, 5 * ms},
		{"fixed", func(p *Policy) { p.Delay = 7 * ms }, func(e *Estimator) { spread(e, 9*ms) }, 7 * ms},
		{"fixed is not clamped", func(p *Policy) { p.Delay = 70 * ms }, func(e *Estimator) {}, 70 * ms},
		{"censored, and never measured", func(*Policy) {}, func(e *Estimator) {
			observe(e, 96, 0, 2*ms)
			for range 4 {
				e.Censor(0)
			}
		}, 50 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			var e Estimator
			p := auto()
			c.policy(p)
			c.fill(&e)
			if got := e.Delay(0, p); !near(got, c.want) {
				t.Errorf("delay %v, want %v", got, c.want)
			}
		})
	}
}

// If more than 1-q of the primaries were censored, the quantile is unknown. The
// last finite estimate holds until the quantile is measured again, or until the
// window has expired.
func TestLastFiniteEstimate(t *testing.T) {
	var e Estimator
	p := auto()
	observe(&e, 960, 0, 2*ms)
	observe(&e, 40, 0, 8*ms)
	if got := e.Delay(0, p); !near(got, 8*ms) {
		t.Fatalf("delay %v, want 8 ms", got)
	}
	now := 100 * ms
	for range 60 {
		e.Censor(now)
	}
	if _, ok := quantile(&e, now, p.quantile()); ok {
		t.Error("a quantile among the censored samples was reported as measured")
	}
	if got := e.Delay(now, p); !near(got, 8*ms) {
		t.Errorf("delay %v, want the last finite 8 ms", got)
	}
	now = 6 * time.Second
	observe(&e, 10000, now, 3*ms)
	if got := e.Delay(now, p); !near(got, 3*ms) {
		t.Errorf("delay %v, want the measured 3 ms", got)
	}
	now = 10 * time.Minute
	if got := e.Delay(now, p); got != p.MaxDelay {
		t.Errorf("delay %v after ten minutes without a request, want max_delay", got)
	}
	for range 100 {
		e.Censor(now)
	}
	if got := e.Delay(now+cacheAge, p); got != p.MaxDelay {
		t.Errorf("delay %v, want max_delay: the last finite estimate is too old", got)
	}
}

// When all requests get slower, the delay rises: the budget bounds the hedges, so
// most primaries are still measured.
func TestDelayFollowsASlowdown(t *testing.T) {
	var e Estimator
	p := auto()
	observe(&e, 1000, 0, 2*ms)
	e.Delay(0, p)
	for i := range 10000 {
		now := 5*time.Second + time.Duration(i)*ms
		if i%20 == 0 { // 5% are hedged, half of the hedges win
			if i%40 == 0 {
				e.Censor(now)
			}
			continue
		}
		e.Observe(now, 20*ms)
	}
	if got := e.Delay(15*time.Second, p); !near(got, 20*ms) {
		t.Errorf("delay %v, want 20 ms", got)
	}
}

func TestDelayCache(t *testing.T) {
	var e Estimator
	p := auto()
	observe(&e, 1000, 0, 2*ms)
	if got := e.Delay(0, p); !near(got, 2*ms) {
		t.Fatalf("delay %v, want 2 ms", got)
	}
	observe(&e, 500, 0, 9*ms)
	if got := e.Delay(cacheAge-1, p); !near(got, 2*ms) {
		t.Errorf("delay %v, want the cached 2 ms", got)
	}
	if got := e.Delay(cacheAge, p); !near(got, 9*ms) {
		t.Errorf("delay %v, want a new 9 ms", got)
	}
	observe(&e, cacheSamples-1, cacheAge, 15*ms)
	if got := e.Delay(cacheAge, p); !near(got, 9*ms) {
		t.Errorf("delay %v, want the cached 9 ms", got)
	}
	e.Observe(cacheAge, 15*ms)
	if got := e.Delay(cacheAge, p); !near(got, 15*ms) {
		t.Errorf("delay %v, want a new 15 ms", got)
	}
	other := auto()
	other.Quantile = 0.1
	if got := e.Delay(cacheAge, other); !near(got, 2*ms) {
		t.Errorf("delay %v of another quantile, want 2 ms", got)
	}
}

func TestStallAfter(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy func(p *Policy)
		fill   func(e *Estimator)
		want   time.Duration
	}{
		{"three medians", func(p *Policy) {}, func(e *Estimator) { observe(e, 100, 0, 4*ms) }, 12 * ms},
		{"the delay", func(p *Policy) {}, func(e *Estimator) {
			observe(e, 90, 0, 4*ms)
			observe(e, 10, 0, 30*ms)
		}, 30 * ms},
		{"unknown", func(p *Policy) {}, func(e *Estimator) {}, 50 * ms},
		{"unknown, fixed delay", func(p *Policy) { p.Delay = 5 * ms }, func(e *Estimator) {}, 50 * ms},
		{"fixed delay", func(p *Policy) { p.Delay = 5 * ms }, func(e *Estimator) { observe(e, 100, 0, ms) }, 5 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			var e Estimator
			p := auto()
			c.policy(p)
			c.fill(&e)
			if got := e.StallAfter(0, p); !near(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// TestEstimatorRecovers: once latencies have clearly fallen, the delay is that of the last seconds.
func TestEstimatorRecovers(t *testing.T) {
	for _, c := range []struct {
		name      string
		gap, fell time.Duration // between requests; latency after the trouble
		want      time.Duration // delay two seconds after it
	}{
		{"clearly", ms, 4 * ms, 4 * ms},
		{"a little", ms, 11 * ms, 15 * ms},
		{"too few requests to tell", 5 * ms, 4 * ms, 15 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			var e Estimator
			now := time.Duration(0)
			run := func(latency time.Duration) {
				for end := now + 2*time.Second; now < end; now += c.gap {
					e.Observe(now, latency)
				}
			}
			run(15 * ms)
			run(c.fell)
			if got := e.Delay(now, auto()); !near(got, c.want) {
				t.Errorf("the delay is %v, want %v", got, c.want)
			}
		})
	}
}
