package budget

import "time"

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

// burst is what the primaries of the last second earn, at least minBurst. Where hedges spend all that is
// earned, chance makes a bucket of a quarter of that empty for one late request in ten.
func (i *Income) burst(now time.Duration) float64 { return max(i.minBurst, i.PerSecond(now)) }

// stuckReserve is the fraction of the bucket that only retries and the hedges of stuck requests may
// spend. A stuck request fails without its hedge; one that is merely late may wait. TestConstants shows what happens at twice
// and at half.
var stuckReserve = 0.25

// Need returns how many tokens there must be for a hedge. A full bucket has enough for any request.
func (i *Income) Need(now time.Duration, stuck bool) float64 {
	if stuck {
		return 1
	}
	burst := i.burst(now)
	return min(1+stuckReserve*burst, burst)
}

// Hedges is a bucket of hedges alone: it holds what a second earns.
type Hedges struct {
	tokens   float64 // when the total of the income was credited
	credited float64
}

// Full returns a full bucket of an income that has earned nothing yet.
func Full(from *Income) Hedges { return Hedges{tokens: from.minBurst} }

// Have returns the tokens in the bucket.
func (h *Hedges) Have(now time.Duration, from *Income) float64 {
	h.tokens = min(h.tokens+from.total-h.credited, from.burst(now))
	h.credited = from.total
	return h.tokens
}

// Take takes n tokens.
func (h *Hedges) Take(n float64) { h.tokens -= n }
