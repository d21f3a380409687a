package hedge

import (
	"math"
	"time"
)

// income is the sum of what was added within the last second: the part of the
// calendar second before that is still within reach, plus the running one.
type income struct {
	second    int64
	cur, prev float64
}

func (c *income) add(now time.Duration, x float64) {
	switch s := int64(now / time.Second); s - c.second {
	case 0:
	case 1:
		c.second, c.cur, c.prev = s, 0, c.cur
	default:
		c.second, c.cur, c.prev = s, 0, 0
	}
	c.cur += x
}

func (c *income) perSecond(now time.Duration) float64 {
	gone := float64(now%time.Second) / float64(time.Second)
	switch int64(now/time.Second) - c.second {
	case 0:
		return c.cur + c.prev*(1-gone)
	case 1:
		return c.cur * (1 - gone)
	}
	return 0
}

// Tokens is the token bucket that bounds the extra load of one service on one
// loop, shared by hedges and paid retries. Each primary adds its route's budget;
// each hedge or paid retry takes 1. It holds one second's worth of what came in
// during the last second, so a stall can spend at once what a second has saved,
// and no more. It starts full.
type Tokens struct {
	tokens   float64
	minBurst float64
	in       income
}

// NewTokens returns a bucket that holds minBurst tokens even at a low rate. The
// documented 10 are over all loops, so a loop's part is 10 / loops. It is at
// least 1: a bucket that can't hold a token never opens.
func NewTokens(minBurst float64) Tokens {
	minBurst = max(1, minBurst)
	return Tokens{tokens: minBurst, minBurst: minBurst}
}

// Primary adds what one primary attempt earns: ratio, the budget of its route.
func (b *Tokens) Primary(now time.Duration, ratio float64) {
	b.in.add(now, ratio)
	b.tokens = min(b.tokens+ratio, b.burst(now))
}

// kept is the share of the burst that hedges leave for requests that are stuck, which
// fail without one; what is merely late may wait.
const kept = 0.25

// spare tells whether there is a token for a hedge, of a stuck request or another.
// A full bucket has one for anybody.
func (b *Tokens) spare(now time.Duration, stuck bool) bool {
	need := 1.0
	if !stuck {
		burst := b.burst(now)
		need = min(1+kept*burst, burst)
	}
	return b.Have(now) >= need
}

// Take takes one token, if there is one.
func (b *Tokens) Take(now time.Duration) bool {
	if b.Have(now) < 1 {
		return false
	}
	b.tokens = b.Have(now) - 1
	return true
}

// Refund gives one token back, for a hedge or retry that reached nobody. The
// bucket's bound still holds.
func (b *Tokens) Refund(now time.Duration) {
	b.tokens = min(b.tokens+1, b.burst(now))
}

// Have is the number of tokens. The bound shrinks with the rate, so tokens saved
// at a high rate are lost when it falls.
func (b *Tokens) Have(now time.Duration) float64 {
	return min(b.tokens, b.burst(now))
}

func (b *Tokens) burst(now time.Duration) float64 {
	return max(b.minBurst, b.in.perSecond(now))
}

// InFlight bounds the hedges that one service has out at one moment on one loop:
// latency × rate × budget by Little's law, the number that a spent budget would
// keep out if each hedge took as long as a slow answer takes. More means that
// the hedges are themselves stuck.
type InFlight struct {
	n        int
	minLimit float64
}

// NewInFlight returns a bound that is never below minLimit; the documented 10
// are over all loops. It is at least 1.
func NewInFlight(minLimit float64) InFlight {
	return InFlight{minLimit: max(1, minLimit)}
}

// Count is the number of hedges in flight.
func (f *InFlight) Count() int { return f.n }

// Limit is how many there may be when answers take latency and the budget earns
// perSecond tokens a second.
func (f *InFlight) Limit(latency time.Duration, perSecond float64) int {
	return int(math.Ceil(max(f.minLimit, latency.Seconds()*perSecond)))
}

// Add counts a hedge that was sent.
func (f *InFlight) Add() { f.n++ }

// Done counts one as over.
func (f *InFlight) Done() {
	if f.n == 0 {
		panic("hedge: Done without a hedge in flight")
	}
	f.n--
}
