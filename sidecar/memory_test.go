package sidecar

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestReleaseAgain: pages are given back soon after the start, then every 10 s, until the system does not allow it.
func TestReleaseAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var times []float64
		releaseAgain(t.Context(), func() bool {
			times = append(times, time.Since(began).Seconds())
			return len(times) < 6
		})
		if want := []float64{1, 3, 7, 15, 25, 35}; !slices.Equal(times, want) {
			t.Errorf("released after %v s, expected %v", times, want)
		}
	})
}

func TestReleaseAgainEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*firstRelease)
		defer cancel()
		count := 0
		releaseAgain(ctx, func() bool { count++; return true })
		if count != 1 {
			t.Errorf("%d releases before the end, expected 1", count)
		}
	})
}
