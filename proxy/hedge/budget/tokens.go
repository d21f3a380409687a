// Package budget bounds what hedges and paid retries add to the load of a service.
package budget

import "time"

// Tokens is the token bucket that bounds the extra load of one service on one loop, shared by
// hedges and paid retries. Each primary adds its route's budget; each hedge or paid retry
// takes 1. The bucket holds as much as the last second earned: the loss of a replica can spend
// at once the savings of one second, and no more. The bucket starts full.
type Tokens struct {
	income   Income
	tokens   float64
	refunded lastSecond
}

// New returns a bucket that holds minBurst tokens even at a low rate; see NewIncome.
func New(minBurst float64) Tokens {
	income := NewIncome(minBurst)
	return Tokens{income: income, tokens: income.minBurst}
}

// Primary adds the budget of one primary's route.
func (b *Tokens) Primary(now time.Duration, budget float64) {
	b.income.Add(now, budget)
	b.tokens = min(b.tokens+budget, b.income.burst(now))
}

// Allows reports whether there is a token for a hedge. A full bucket has one for any request.
func (b *Tokens) Allows(now time.Duration, stuck bool) bool {
	return b.Have(now) >= b.income.Need(now, stuck)
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
	if b.refunded.perSecond(now) >= max(b.income.minBurst, b.income.PerSecond(now)) {
		return
	}
	b.refunded.add(now, 1)
	b.tokens = min(b.tokens+1, b.income.burst(now))
}

// Have returns the number of tokens, below 0 if some are owed. The bound shrinks with the rate, and
// savings with it.
func (b *Tokens) Have(now time.Duration) float64 {
	return min(b.tokens, b.income.burst(now))
}

// PerSecond returns the tokens that the last second earned.
func (b *Tokens) PerSecond(now time.Duration) float64 { return b.income.PerSecond(now) }
