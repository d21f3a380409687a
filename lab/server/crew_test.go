package server

import (
	"testing"

	"github.com/remora-proxy/remora/internal/eventually"
)

// TestCrew: goroutines are kept for later tasks, and end with the last connection.
func TestCrew(t *testing.T) {
	var c crew
	waiting := func(n int) func() bool {
		return func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.idle) == n
		}
	}
	c.join()
	c.join()
	done := make(chan struct{})
	for range 3 {
		c.run(func() { <-done })
	}
	for range 3 {
		done <- struct{}{}
	}
	eventually.True(t, "three goroutines wait", waiting(3))
	c.run(func() { <-done })
	if !waiting(2)() {
		t.Error("a new goroutine took a task while others waited")
	}
	c.leave()
	done <- struct{}{}
	eventually.True(t, "three goroutines wait again", waiting(3))
	c.run(func() { <-done })
	c.leave()
	if !waiting(0)() {
		t.Error("goroutines wait for tasks of no connection")
	}
	done <- struct{}{} // TestMain fails if the last goroutine does not end
}
