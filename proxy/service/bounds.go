package service

import (
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/limit"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Bounds decide whether a service takes a request or stream: max_pending, rate_limit and breaker of one configuration,
// over all loops.
type Bounds struct {
	shared     *SharedService // has the counts
	maxPending int32
	unreserved int32          // places of maxPending that every request may take
	rate       *limit.Rate    // nil means no limit
	breaker    *limit.Breaker // nil means no breaker
}

// reservedPart is the part of max_pending that is for connections with one request, as a divisor.
const reservedPart = 8

func newBounds(c *config.Service, shared *SharedService) *Bounds {
	most := int32(c.MaxPending)
	b := &Bounds{shared: shared, maxPending: most, unreserved: most - most/reservedPart}
	if c.RateLimit.Rate > 0 {
		b.rate = limit.NewRate(&c.RateLimit)
	}
	if c.Breaker.Consecutive > 0 {
		b.breaker = limit.NewBreaker(&c.Breaker)
	}
	return b
}

// Passage is the way of a request or stream past the bounds of a service. The zero value has passed none.
type Passage struct {
	bounds  *Bounds
	permit  limit.Permit  // of the breaker in bounds
	counted *atomic.Int32 // of the service: pending, or streams; nil means neither

	Alone bool // its connection has no other request at the service; see Bounds.place
}

// Claimant is a request that asks for a place in max_pending.
type Claimant interface {
	// Concurrency counts the requests of the claimant's connection that are in flight at the service, the
	// claimant included. Counting may stop at the number most. 0 means that no connection waits for the claimant.
	Concurrency(most int) int
}

// Pass lets the request of c pass the bounds of the service by p. Without a Failure the request counts against
// max_pending until End, and its outcome must be judged.
func (b *Bounds) Pass(p *Passage, now time.Duration, batch bool, c Claimant) (f *fault.Failure) {
	if !b.takeToken(now) {
		return fault.RateLimited
	}
	n := b.shared.pending.Add(1)
	ok, alone := b.place(n, batch, c)
	if !ok {
		b.shared.pending.Add(-1)
		return fault.Overloaded
	}
	p.bounds, p.counted, p.Alone = b, &b.shared.pending, alone
	if p.permit, f = b.allow(now); f != nil {
		p.End()
	}
	return f
}

// Refuses returns why Pass would refuse the request of c now, or nil. It takes nothing from the bounds.
func (b *Bounds) Refuses(now time.Duration, batch bool, c Claimant) *fault.Failure {
	if b.rate != nil && !b.rate.Has(now) {
		return fault.RateLimited
	}
	ok, _ := b.place(b.shared.pending.Load()+1, batch, c)
	switch {
	case !ok:
		return fault.Overloaded
	case b.breaker != nil && b.breaker.Refuses(now):
		return fault.BreakerOpen
	}
	return nil
}

// PassStream is Pass for a stream, for which max_pending does not count.
func (b *Bounds) PassStream(p *Passage, now time.Duration) (f *fault.Failure) {
	if !b.takeToken(now) {
		return fault.RateLimited
	}
	b.CountStream(p)
	p.bounds = b
	if p.permit, f = b.allow(now); f != nil {
		p.End()
	}
	return f
}

// CountStream counts a stream by p until End. The stream has passed, or is the response to a request that has.
func (b *Bounds) CountStream(p *Passage) {
	b.shared.streams.Add(1)
	p.counted = &b.shared.streams
}

// Judge gives a verdict, once, to the breaker that let the request pass, if there is one.
func (p *Passage) Judge(now time.Duration, v fault.Verdict) {
	if p.permit != limit.NoPermit {
		p.bounds.breaker.Record(now, p.permit, v)
		p.permit = limit.NoPermit
	}
}

// End ends the request or stream: it is not in flight any more. A second call changes nothing.
func (p *Passage) End() {
	if p.counted != nil {
		p.counted.Add(-1)
		p.counted = nil
	}
}

// Probes reports whether the breaker waits for the verdict of this request.
func (p *Passage) Probes() bool { return p.permit == limit.ProbePermit }

// Transfer leaves the verdict for a closed breaker to the stream that the response becomes. A half-open breaker gets its
// verdict from the response.
func (p *Passage) Transfer(to *Passage) {
	if p.permit == limit.FreePermit {
		to.bounds, to.permit, p.permit = p.bounds, p.permit, limit.NoPermit
	}
}

// place reports whether the request of c, the last of so many pending ones, gets a place in max_pending. The places beyond
// unreserved are for connections with one request at the service: otherwise a few connections with many requests would
// shut out all others. A connection that has all pending requests shuts out nobody, and gets these places, too.
//
// alone reports whether the connection of c has no other request at the service. Below half of the unreserved places
// nobody counts, and alone is false. Above that half this sidecar counts, also for the next sidecar, which may be fuller: it
// is told of alone.
func (b *Bounds) place(pending int32, batch bool, c Claimant) (ok, alone bool) {
	switch {
	case batch:
		return pending <= half(b.maxPending), false
	case pending <= b.unreserved/2:
		return true, false
	}
	most := 2 // whether there is another
	if pending > b.unreserved {
		most = int(pending)
	}
	own := c.Concurrency(most)
	alone = own == 1
	return pending <= b.unreserved || pending <= b.maxPending && (alone || own >= int(pending)), alone
}

func (b *Bounds) takeToken(now time.Duration) bool { return b.rate == nil || b.rate.Take(now) }

// breakerState is the state of the breaker, as reports say it.
func (b *Bounds) breakerState(now time.Duration) stats.BreakerState { return b.breaker.State(now) }

// allow asks the breaker.
func (b *Bounds) allow(now time.Duration) (limit.Permit, *fault.Failure) {
	if b.breaker == nil {
		return limit.NoPermit, nil
	}
	p := b.breaker.Allow(now)
	if p == limit.NoPermit {
		return p, fault.BreakerOpen
	}
	return p, nil
}
