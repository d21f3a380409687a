package limit

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
)

// For any arrivals, no span of time has more requests than the burst and the rate
// allow, and no request is refused that they allow.
func TestRateInEverySpan(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		rate, burst := 1+rnd.IntN(2000), 1+rnd.IntN(50)
		l := NewRate(&config.RateLimit{Rate: rate, Burst: burst})
		now := time.Duration(rnd.Int64N(int64(time.Hour)))
		var passed []time.Duration
		tokens, last := float64(burst), now // a plain token bucket, to compare
		for range 2000 {
			now += time.Duration(rnd.ExpFloat64() * float64(l.token) * 2 * rnd.Float64())
			tokens = min(float64(burst), tokens+float64(now-last)/float64(l.token))
			last = now
			has := l.Has(now)
			took := l.Take(now)
			if has != took {
				t.Fatalf("seed %d: Has is %t, and Take %t", seed, has, took)
			}
			if took {
				tokens--
				passed = append(passed, now)
			}
			if took && tokens < -1e-6 || !took && tokens > 1+1e-6 {
				t.Fatalf("seed %d: Take is %t with %.6f tokens left", seed, took, tokens)
			}
		}
		for from := range passed {
			for n := burst; from+n < len(passed); n += burst {
				if span := passed[from+n] - passed[from]; float64(n+1) > float64(burst)+float64(span)/float64(l.token)+1e-6 {
					t.Fatalf("seed %d: %d requests within %v at rate %d and burst %d", seed, n+1, span, rate, burst)
				}
			}
		}
	}
}

// A burst of 0 means one second of the rate.
func TestRateDefaultBurst(t *testing.T) {
	l := NewRate(&config.RateLimit{Rate: 10})
	n := 0
	for l.Take(time.Hour) {
		n++
	}
	if n != 10 {
		t.Errorf("%d requests passed at once, want 10", n)
	}
	if l.Take(time.Hour+time.Second/10-1) || !l.Take(time.Hour+time.Second/10) {
		t.Error("the next request does not pass a tenth of a second later")
	}
}

// Loops that take tokens concurrently get exactly the tokens that there are.
func TestRateOverLoops(t *testing.T) {
	l := NewRate(&config.RateLimit{Rate: 1000, Burst: 100})
	var passed atomic.Int32
	var loops sync.WaitGroup
	for range 4 {
		loops.Go(func() {
			for range 1000 {
				if l.Take(time.Hour) {
					passed.Add(1)
				}
			}
		})
	}
	loops.Wait()
	if n := passed.Load(); n != 100 {
		t.Errorf("%d requests passed, want 100", n)
	}
}
