package proxy

import (
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
)

// breaker is a service's circuit breaker, shared by all loops.
//
//	closed ──consecutive failures──▶ open ──after a time──▶ half-open
//	   ▲                              ▲                      │    │
//	   │                              └───a probe fails──────┘    │
//	   └──────────────────────────a probe succeeds────────────────┘
//
// It judges requests, not attempts: what a retry or a hedge has mended is no
// failure. While it is closed, a request costs two atomic loads; loops that race
// at a change may let a probe more through, and agree from then on.
type breaker struct {
	consecutive int32
	open        time.Duration
	halfOpen    int32

	failures atomic.Int32 // in a row, while closed
	until    atomic.Int64 // 0: closed; else open until then, and half-open after
	probes   atomic.Int32 // out, while half-open
}

func newBreaker(c *config.Breaker) *breaker {
	return &breaker{consecutive: int32(c.Consecutive), open: c.Open, halfOpen: int32(c.HalfOpen)}
}

// pass is what a breaker gave a request.
type pass uint8

const (
	passNone  pass = iota // none: refused, or the service has no breaker
	passFree              // the breaker is closed
	passProbe             // the breaker is half-open, and learns from this request
)

// verdict is what a request says about its service.
type verdict uint8

const (
	verdictNone verdict = iota // nothing: withdrawn, or refused here
	verdictGood
	verdictBad
)

func verdictOf(status int) verdict {
	if status >= 500 {
		return verdictBad
	}
	return verdictGood
}

// verdict tells whether the failure is the service's. One that had no chance,
// because a limit or the request itself was in the way, says nothing.
func (f *Failure) verdict() verdict {
	switch f {
	case FailConnect, FailUnprocessed, FailReset, FailMalformed, FailDeadline:
		return verdictBad
	}
	return verdictNone
}

// ask lets a request pass or, with passNone, not. Each pass is followed by one
// tell.
func (b *breaker) ask(now time.Duration) pass {
	until := b.until.Load()
	switch {
	case until == 0:
		return passFree
	case int64(now) < until:
		return passNone
	case b.probes.Add(1) > b.halfOpen:
		b.probes.Add(-1)
		return passNone
	}
	return passProbe
}

// tell is the outcome of a request with pass p. Requests that passed before the
// breaker opened neither close it nor keep it open.
func (b *breaker) tell(now time.Duration, p pass, v verdict) {
	if p == passProbe {
		b.probes.Add(-1)
	}
	switch until := b.until.Load(); {
	case v == verdictNone:
	case until == 0: // a second probe's, perhaps
		b.count(now, v)
	case p != passProbe:
	case v == verdictGood:
		b.failures.Store(0)
		b.until.CompareAndSwap(until, 0)
	default:
		b.until.CompareAndSwap(until, int64(now+b.open))
	}
}

// count is tell while b is closed.
func (b *breaker) count(now time.Duration, v verdict) {
	if v == verdictGood {
		if b.failures.Load() != 0 {
			b.failures.Store(0)
		}
		return
	}
	if b.failures.Add(1) >= b.consecutive && b.until.CompareAndSwap(0, int64(now+b.open)) {
		b.failures.Store(0)
	}
}

// judge tells the breaker that gave the pass *p what came of its request or
// stream. It does so once, and nothing without a breaker.
func (b *serviceBounds) judge(now time.Duration, p *pass, v verdict) {
	if *p != passNone {
		b.breaker.tell(now, *p, v)
		*p = passNone
	}
}

func (ex *exchange) judge(v verdict) {
	if ex.svc != nil {
		ex.bounds.judge(ex.w.loop.Now(), &ex.pass, v)
	}
}

// BreakerState is where a service's breaker stands.
type BreakerState uint8

// The states of a breaker.
const (
	BreakerNone     BreakerState = iota // the service has none
	BreakerClosed                       // requests pass
	BreakerOpen                         // none passes
	BreakerHalfOpen                     // a probe may pass, or is out
)

// state is where b stands at now; b may be nil.
func (b *breaker) state(now time.Duration) BreakerState {
	if b == nil {
		return BreakerNone
	}
	switch until := b.until.Load(); {
	case until == 0:
		return BreakerClosed
	case int64(now) < until:
		return BreakerOpen
	}
	return BreakerHalfOpen
}
