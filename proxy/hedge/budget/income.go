package budget

import "time"

// hedgeSpan is the time whose earnings hedges may spend at once. A freeze of a replica makes as
// many requests late as reach it until its silence shows, a few medians: fewer than a budget of
// 5% earns in this time. A queue makes all requests late, and a hedge for each doubles the load
// when there is no room for it.
const hedgeSpan = 250 * time.Millisecond

// Income is what primaries earn, for one or more buckets.
type Income struct {
	minBurst float64
	total    float64 // since the start
	earned   lastSecond
}

// NewIncome returns an income whose buckets hold minBurst tokens even at a low rate, and at least 1. A
// bucket that can't hold a token never opens.
func NewIncome(minBurst float64) Income { return Income{minBurst: max(1, minBurst)} }

// Add adds the budget of one primary or more.
func (i *Income) Add(now time.Duration, budget float64) {
	i.earned.add(now, budget)
	i.total += budget
}

// PerSecond returns the tokens that the last second earned.
func (i *Income) PerSecond(now time.Duration) float64 { return i.earned.perSecond(now) }

// burst is what the primaries of the last second earn within span, at least minBurst.
func (i *Income) burst(now, span time.Duration) float64 {
	return max(i.minBurst, i.PerSecond(now)*span.Seconds())
}

// Hedges is a bucket of hedges: it holds what hedgeSpan earns.
type Hedges struct {
	tokens   float64 // when the total of the income was credited
	credited float64
}

// Full returns a full bucket of an income that has earned nothing yet.
func Full(from *Income) Hedges { return Hedges{tokens: from.minBurst} }

// Have returns the tokens in the bucket, and how many it holds.
func (h *Hedges) Have(now time.Duration, from *Income) (have, burst float64) {
	burst = from.burst(now, hedgeSpan)
	h.tokens = min(h.tokens+from.total-h.credited, burst)
	h.credited = from.total
	return h.tokens, burst
}

// Take takes n tokens; a negative n gives -n back.
func (h *Hedges) Take(n float64) { h.tokens -= n }
