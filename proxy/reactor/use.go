package reactor

import (
	"math"
	"sync/atomic"
	"time"
)

const (
	// useWindow is over how much time a loop measures its use.
	useWindow = 100 * time.Millisecond

	// staleUse is for how long the use that a loop has measured counts.
	staleUse = 3 * useWindow
)

// useMeter measures the use of a loop: the share of the time that it spends in turns. Only the loop may call its methods,
// but for at.
type useMeter struct {
	since time.Duration // when the present window began
	busy  time.Duration // time in turns before since

	share       atomic.Uint64 // of the last window, as bits of a float64
	measured    atomic.Int64  // when the last window ended
	connections atomic.Int64  // of the loop, when the last window ended
}

// isDue reports whether the window is over.
func (u *useMeter) isDue(now time.Duration) bool { return now-u.since >= useWindow }

// measure ends the window of a loop that has spent so much time in turns in all.
func (u *useMeter) measure(now, busy time.Duration, connections int) {
	u.share.Store(math.Float64bits(float64(busy-u.busy) / float64(now-u.since)))
	u.measured.Store(int64(now))
	u.connections.Store(int64(connections))
	u.since, u.busy = now, busy
}

// at returns the use at a time. waits reports whether the loop waits for events. A loop that has measured nothing for
// long waits, or is in a long turn.
func (u *useMeter) at(now time.Duration, waits bool) loopUse {
	share := math.Float64frombits(u.share.Load())
	if now-time.Duration(u.measured.Load()) > staleUse {
		share = 1
		if waits {
			share = 0
		}
	}
	return loopUse{share, int(u.connections.Load())}
}
