package etcd

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	minRetry = 100 * time.Millisecond
	maxRetry = 3 * time.Second
)

// retry is a jittered, limited back-off. The zero value starts at minRetry.
type retry struct{ next time.Duration }

// wait pauses, longer each time, and reports whether ctx is still alive.
func (b *retry) wait(ctx context.Context) bool { return sleep(ctx, b.duration()) }

// duration returns the next pause, longer each time.
func (b *retry) duration() time.Duration {
	b.next = min(max(2*b.next, minRetry), maxRetry)
	return jitter(b.next)
}

func (b *retry) reset() { b.next = 0 }

// jitter returns a time between half of d and d, so that many sidecars that lost the same etcd
// do not come back at the same moment.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
