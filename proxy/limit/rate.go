package limit

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
)

// Rate is a token bucket that all loops share (rate_limit). It holds one
// number, the time at which the bucket will be full again (the generic cell rate
// algorithm), so a request costs one atomic exchange, as max_pending does, and
// the limit is exact over all loops: in any span of t seconds at most burst +
// rate × t requests pass. The time of a token is rounded to a nanosecond, which
// is 0.1% at the highest rate.
type Rate struct {
	Config *config.RateLimit
	token  time.Duration // what one request takes
	depth  time.Duration // what a full bucket holds
	full   atomic.Int64
}

func NewRate(c *config.RateLimit) *Rate {
	token := time.Second / time.Duration(c.Rate)
	return &Rate{Config: c, token: token, depth: token * time.Duration(cmp.Or(c.Burst, c.Rate))}
}

// Take tells whether a request may pass at now, and if so takes its token.
func (l *Rate) Take(now time.Duration) bool {
	for {
		old := l.full.Load()
		next := max(time.Duration(old), now) + l.token
		if next-now > l.depth {
			return false
		}
		if l.full.CompareAndSwap(old, int64(next)) {
			return true
		}
	}
}
