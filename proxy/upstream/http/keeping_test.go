package http

import (
	"testing"
	"time"
)

func TestKeeping(t *testing.T) {
	const timeout = 4 * time.Second
	k := keeping{firstKept}
	for _, step := range []struct {
		closed time.Duration // 0: a connection has outlived the timeout
		want   time.Duration
	}{
		{2 * time.Second, firstKept},
		{0, timeout},
		{2 * time.Second, 1500 * time.Millisecond},
		{3 * time.Second, 1500 * time.Millisecond},
		{leastClosed - 1, 1500 * time.Millisecond},
		{leastClosed, leastClosed * 3 / 4},
		{0, timeout},
	} {
		if step.closed == 0 {
			k.outlived(timeout)
		} else {
			k.closed(step.closed)
		}
		if k.kept != step.want {
			t.Fatalf("after %v: kept %v, want %v", step.closed, k.kept, step.want)
		}
	}
}
