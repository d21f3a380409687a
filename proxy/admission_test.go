package proxy_test

import (
	"testing"
	"time"
)

// With more primaries than the application can serve at once, all the time, a
// retry still gets its turn long before its deadline.
func TestQueuedRetryDoesNotStarve(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, provider: ", max_concurrency: 1", service: ", timeout: 2s"})
	var primaries []*call
	for range 20 {
		var calls []*call
		for range 100 {
			calls = append(calls, m.post(10))
		}
		m.do(calls...)
		primaries = append(primaries, calls...)
	}
	m.w.Run(50 * time.Millisecond) // the queue is full by now, and stays so for two seconds
	retry := m.post(10, "x-remora-attempt: 1")
	m.do(retry)
	m.finish(retry)
	m.ok(retry)
	if retry.took > 500*time.Millisecond {
		t.Errorf("the retry took %v, want about what the 20 primaries before it took", retry.took)
	}
	m.finish(primaries...)
	m.ok(primaries...)
	m.settled()
}
