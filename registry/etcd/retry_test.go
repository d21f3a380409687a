package etcd

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestRetry: pauses double up to the longest one, each by up to half shorter, until a reset.
func TestRetry(t *testing.T) {
	var b retry
	for range 2 {
		want := minRetry
		for range 10 {
			if d := b.duration(); d < want/2 || d > want {
				t.Errorf("a pause of %v, want %v or up to half less", d, want)
			}
			want = min(2*want, maxRetry)
		}
		b.reset()
	}
	shortest, longest := time.Hour, time.Duration(0)
	for range 1000 {
		d := jitter(time.Second)
		shortest, longest = min(shortest, d), max(longest, d)
	}
	if shortest < time.Second/2 || shortest > time.Second*55/100 || longest > time.Second || longest < time.Second*95/100 {
		t.Errorf("the pauses of a second are from %v to %v", shortest, longest)
	}
	for d := range time.Duration(5) {
		if got := jitter(d); got < 0 || got > d+1 {
			t.Errorf("%v has become %v", d, got)
		}
	}
}

// TestSleep: a pause ends with its time, or early with the context.
func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begin := time.Now()
		if !sleep(ctx, 2*time.Second) || time.Since(begin) != 2*time.Second {
			t.Errorf("ended early, after %v", time.Since(begin))
		}
		if sleep(ctx, 2*time.Second) || time.Since(begin) != 3*time.Second {
			t.Errorf("ended in time, after %v", time.Since(begin))
		}
	})
}
