package backoff

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestBackoff: pauses grow up to a bound, and begin anew after Reset.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Backoff{Min: time.Second, Max: 5 * time.Second}
		for range 2 {
			for i, want := range []time.Duration{1, 2, 4, 5, 5} {
				want *= time.Second
				began := time.Now()
				if !b.Wait(t.Context()) {
					t.Error("the context has ended")
				}
				if d := time.Since(began); d < want/2 || d >= want*3/2 {
					t.Errorf("pause %d is %v, want %v", i, d, want)
				}
			}
			b.Reset()
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		if b.Wait(ctx) || time.Since(began) > 0 {
			t.Error("it waits although the context has ended")
		}
	})
}
