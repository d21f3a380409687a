package hedge

import "time"

// lastSecond estimates the sum of the values added within the last second: the current clock
// second, and the fraction of the previous one that is less than a second ago.
type lastSecond struct {
	second    int64
	cur, prev float64
}

func (l *lastSecond) add(now time.Duration, x float64) {
	switch s := int64(now / time.Second); s - l.second {
	case 0:
	case 1:
		l.second, l.cur, l.prev = s, 0, l.cur
	default:
		l.second, l.cur, l.prev = s, 0, 0
	}
	l.cur += x
}

func (l *lastSecond) perSecond(now time.Duration) float64 {
	elapsed := float64(now%time.Second) / float64(time.Second)
	switch int64(now/time.Second) - l.second {
	case 0:
		return l.cur + l.prev*(1-elapsed)
	case 1:
		return l.cur * (1 - elapsed)
	}
	return 0
}

// hedgeSpan is the time whose earnings hedges may spend at once. A freeze of a replica makes as
// many requests late as reach it until its silence shows, a few medians: fewer than a budget of
// 5% earns in this time. A queue makes all requests late, and a hedge for each doubles the load
// when there is no room for it.
const hedgeSpan = 250 * time.Millisecond

// Tokens is the token bucket that bounds the extra load of one service on one loop, shared by
// hedges and paid retries. Each primary adds its route's budget; each hedge or paid retry
// takes 1. The bucket holds as much as the last second earned: the loss of a replica can spend
// at once the savings of one second, and no more. Hedges also have a bucket of their own, which
// holds what hedgeSpan earns. Both start full.
type Tokens struct {
	tokens   float64
	minBurst float64
	earned   lastSecond
	refunded lastSecond

	total    float64 // earned since the start
	hedges   float64 // tokens of the bucket of hedges, when total was credited
	credited float64
}

// NewTokens returns buckets that hold minBurst tokens even at a low rate: the loop's part of
// the documented 10, and at least 1. A bucket that can't hold a token never opens.
func NewTokens(minBurst float64) Tokens {
	minBurst = max(1, minBurst)
	return Tokens{tokens: minBurst, minBurst: minBurst, hedges: minBurst}
}

// Primary adds the budget of one primary's route.
func (b *Tokens) Primary(now time.Duration, budget float64) {
	b.earned.add(now, budget)
	b.total += budget
	b.tokens = min(b.tokens+budget, b.burst(now, time.Second))
}

// stuckReserve is the fraction of the bucket of hedges that only those of stuck requests may
// spend. A stuck request fails without its hedge; one that is merely late may wait.
const stuckReserve = 0.25

// allows reports whether there is a token for a hedge. A full bucket has one for any request.
func (b *Tokens) allows(now time.Duration, stuck bool) bool {
	have, burst := b.forHedges(now)
	need := 1.0
	if !stuck {
		need = min(1+stuckReserve*burst, burst)
	}
	return have >= need && b.Have(now) >= 1
}

// forHedges returns the tokens in the bucket of hedges, and how many it holds.
func (b *Tokens) forHedges(now time.Duration) (have, burst float64) {
	burst = b.burst(now, hedgeSpan)
	b.hedges = min(b.hedges+b.total-b.credited, burst)
	b.credited = b.total
	return b.hedges, burst
}

// takeHedge takes the token of a hedge that is allowed.
func (b *Tokens) takeHedge(now time.Duration) {
	b.Take(now)
	b.hedges--
}

// Take takes one token, and reports whether there was one.
func (b *Tokens) Take(now time.Duration) bool { return b.TakeAhead(now, 0) }

// TakeAhead takes one token, which primaries may earn later: up to owed tokens may be missing.
func (b *Tokens) TakeAhead(now time.Duration, owed int) bool {
	have := b.Have(now)
	if have < float64(1-owed) {
		return false
	}
	b.tokens = have - 1
	return true
}

// Refund gives back the token of a hedge that reached no application, within bounds. In a
// second it gives back no more than the second earns, and minBurst: where most hedges are
// refused, sending them has a price, too.
func (b *Tokens) Refund(now time.Duration) {
	if b.refunded.perSecond(now) >= max(b.minBurst, b.earned.perSecond(now)) {
		return
	}
	b.refunded.add(now, 1)
	b.tokens = min(b.tokens+1, b.burst(now, time.Second))
	b.hedges++
}

// Have returns the number of tokens, below 0 if some are owed. The bound shrinks with the rate, and
// savings with it.
func (b *Tokens) Have(now time.Duration) float64 {
	return min(b.tokens, b.burst(now, time.Second))
}

// burst is what the primaries of the last second earn within span, at least minBurst.
func (b *Tokens) burst(now, span time.Duration) float64 {
	return max(b.minBurst, b.earned.perSecond(now)*span.Seconds())
}
