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
func (b *retry) wait(ctx context.Context) bool {
	b.next = min(max(2*b.next, minRetry), maxRetry)
	return sleep(ctx, jitter(b.next))
}

func (b *retry) reset() { b.next = 0 }

// restarts runs a watch until ctx ends. A pause follows each run, longer each time unless the watch has worked for a
// while. say is called before a pause.
func restarts(ctx context.Context, watch func() error, say func(reason error)) {
	var pause retry
	for {
		began := time.Now()
		err := watch()
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > maxRetry+requestTimeout {
			pause.reset()
		}
		say(err)
		if !pause.wait(ctx) {
			return
		}
	}
}

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
