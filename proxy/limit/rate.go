package limit

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
)

// Rate is a token bucket that all loops share (rate_limit). It holds one number, the
// time at which the bucket will be full again (the generic cell rate algorithm). So a
// request costs one atomic exchange, as with max_pending, and the limit is exact over
// all loops: in any t seconds at most burst + rate × t requests pass. The time of a
// token is rounded to a nanosecond, an error of 0.1% at the highest rate.
type Rate struct {
	token time.Duration // the time in which one token is refilled
	depth time.Duration // the time in which an empty bucket is refilled
	full  atomic.Int64  // when the bucket is full, on the loops' clock
}

// NewRate returns a full bucket with the settings c, whose rate is not 0. A burst of 0
// means one second of the rate.
func NewRate(c *config.RateLimit) *Rate {
	token := time.Second / time.Duration(c.Rate)
	return &Rate{token: token, depth: token * time.Duration(cmp.Or(c.Burst, c.Rate))}
}

// Take takes a token for a request at now. It reports whether there was one.
func (l *Rate) Take(now time.Duration) bool { return l.take(&l.full, now) }

// Has reports whether a request at now would get a token.
func (l *Rate) Has(now time.Duration) bool {
	return max(time.Duration(l.full.Load()), now)+l.token-now <= l.depth
}

// take is Take for the bucket that is full at the time *full.
func (l *Rate) take(full *atomic.Int64, now time.Duration) bool {
	for {
		old := full.Load()
		next := max(time.Duration(old), now) + l.token
		if next-now > l.depth {
			return false
		}
		if full.CompareAndSwap(old, int64(next)) {
			return true
		}
	}
}
