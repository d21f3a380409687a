// Package backoff pauses before something is tried again: longer each time, and not in step with other processes.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff has the pauses between tries. Its methods must not be called concurrently.
type Backoff struct {
	Min, Max time.Duration // the first pause, and the longest; each varies by half of it, up or down

	last time.Duration // 0 means that there was no pause since Reset
}

// Next returns the duration of the next pause, twice as long as the last.
func (b *Backoff) Next() time.Duration {
	b.last = min(max(2*b.last, b.Min), b.Max)
	return b.last/2 + rand.N(b.last)
}

// Wait pauses, and reports whether ctx goes on.
func (b *Backoff) Wait(ctx context.Context) bool {
	pause := time.NewTimer(b.Next())
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-pause.C:
		return true
	}
}

// Reset makes the next pause the first one.
func (b *Backoff) Reset() { b.last = 0 }
