package kernel

import (
	"testing"
	"time"
)

// TestPollerWait: Wait and Rest end after their limit and not before, or by Wake, even if that came first.
func TestPollerWait(t *testing.T) {
	for _, coarse := range []bool{false, true} {
		p, err := NewPoller()
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		p.coarse = coarse
		for name, wait := range map[string]func(time.Duration) int{"Wait": p.Wait, "Rest": p.Rest} {
			for _, limit := range []time.Duration{1, 300 * time.Microsecond, 3 * time.Millisecond} {
				begin := time.Now()
				n := wait(limit)
				if took := time.Since(begin); n > 0 || took < limit {
					t.Errorf("coarse %v: %s: %d events after %v, want none after %v", coarse, name, n, took, limit)
				}
			}
			p.Wake()
			wait(-1)
			ended := make(chan struct{})
			go func() { wait(-1); close(ended) }()
			p.Wake()
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Fatalf("Wake does not end %s", name)
			}
		}
	}
}

// TestRestAlloc: a Rest allocates nothing.
func TestRestAlloc(t *testing.T) {
	p, err := NewPoller()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if n := testing.AllocsPerRun(100, func() { p.Rest(time.Microsecond) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
