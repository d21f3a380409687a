package kernel

import (
	"testing"
	"time"
)

// TestPollerWait: Wait ends after its limit and not before, or by Wake, even if that came first.
func TestPollerWait(t *testing.T) {
	for _, coarse := range []bool{false, true} {
		p, err := NewPoller()
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		p.coarse = coarse
		for _, limit := range []time.Duration{1, 300 * time.Microsecond, 3 * time.Millisecond} {
			begin := time.Now()
			n := p.Wait(limit)
			if took := time.Since(begin); n > 0 || took < limit {
				t.Errorf("coarse %v: %d events after %v, want none after %v", coarse, n, took, limit)
			}
		}
		p.Wake()
		p.Wait(-1)
		ended := make(chan struct{})
		go func() { p.Wait(-1); close(ended) }()
		p.Wake()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("Wake does not end Wait")
		}
	}
}
