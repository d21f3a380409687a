package limit

import (
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Breaker is a service's circuit breaker, shared by all loops.
//
//	closed ──consecutive failures──▶ open ──after a time──▶ half-open
//	   ▲                              ▲                      │    │
//	   │                              └───a probe fails──────┘    │
//	   └──────────────────────────a probe succeeds────────────────┘
//
// It judges requests, not attempts: a request that a retry or a hedge has saved is no
// failure. While it is closed, a request costs two atomic loads. Loops that race
// at a change may let one probe more pass, and agree from then on.
type Breaker struct {
	consecutive int32
	open        time.Duration
	halfOpen    int32

	failures atomic.Int32 // in a row, while closed
	until    atomic.Int64 // 0 means closed; else open until then, and half-open after
	probes   atomic.Int32 // in flight, while half-open
}

// NewBreaker returns a closed breaker with the settings c.
func NewBreaker(c *config.Breaker) *Breaker {
	return &Breaker{consecutive: int32(c.Consecutive), open: c.Open, halfOpen: int32(c.HalfOpen)}
}

// Permit is a breaker's permission for one request.
type Permit uint8

const (
	NoPermit    Permit = iota // none: refused, or the service has no breaker
	FreePermit                // the breaker is closed
	ProbePermit               // the breaker is half-open, and learns from this request
)

// Allow returns a permit for a request at now; NoPermit refuses it. Each other permit
// must be given back with one Record.
func (b *Breaker) Allow(now time.Duration) Permit {
	until := b.until.Load()
	switch {
	case until == 0:
		return FreePermit
	case int64(now) < until:
		return NoPermit
	case b.probes.Add(1) > b.halfOpen:
		b.probes.Add(-1)
		return NoPermit
	}
	return ProbePermit
}

// Refuses reports whether a request at now would get no permit.
func (b *Breaker) Refuses(now time.Duration) bool {
	switch b.State(now) {
	case stats.BreakerOpen:
		return true
	case stats.BreakerHalfOpen:
		return b.probes.Load() >= b.halfOpen
	}
	return false
}

// Record counts the verdict of a request with permit p. A request that was allowed
// before the breaker opened neither closes it nor keeps it open.
func (b *Breaker) Record(now time.Duration, p Permit, v fault.Verdict) {
	if p == ProbePermit {
		b.probes.Add(-1)
	}
	switch until := b.until.Load(); {
	case v == fault.VerdictNone:
	case until == 0: // closed, perhaps by another probe
		b.count(now, v)
	case p != ProbePermit:
	case v == fault.VerdictGood:
		b.failures.Store(0)
		b.until.CompareAndSwap(until, 0)
	default:
		b.until.CompareAndSwap(until, int64(now+b.open))
	}
}

// count records a verdict while b is closed.
func (b *Breaker) count(now time.Duration, v fault.Verdict) {
	if v == fault.VerdictGood {
		if b.failures.Load() != 0 {
			b.failures.Store(0)
		}
		return
	}
	if b.failures.Add(1) >= b.consecutive {
		b.until.CompareAndSwap(0, int64(now+b.open))
	}
}

// State returns the state of b at now, and BreakerNone if b is nil.
func (b *Breaker) State(now time.Duration) stats.BreakerState {
	if b == nil {
		return stats.BreakerNone
	}
	switch until := b.until.Load(); {
	case until == 0:
		return stats.BreakerClosed
	case int64(now) < until:
		return stats.BreakerOpen
	}
	return stats.BreakerHalfOpen
}
