package exchange_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestQueuedRetryNotStarved: while more primaries wait than the application can serve, a
// queued retry is served long before its deadline.
func TestQueuedRetryNotStarved(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Provider: "max_concurrency: 1", Service: "timeout: 2s"})
	var primaries []*proxytest.Call
	for range 20 {
		var calls []*proxytest.Call
		for range 100 {
			calls = append(calls, m.Post(10))
		}
		m.Do(calls...)
		primaries = append(primaries, calls...)
	}
	m.W.Run(50 * time.Millisecond) // the queue is full, and stays full for two seconds
	retry := m.Complete(m.Post(10, "x-remora-attempt: 1"))
	m.OK(retry)
	if retry.Took > 500*time.Millisecond {
		t.Errorf("the retry took %v, want about the time of 20 primaries", retry.Took)
	}
	m.OK(primaries...)
	m.Settled()
}

// TestMarkedTraceQueues: a request that an application makes for a hedge or retry is the only one that
// its caller waits for, so it may wait for a slot. It makes no difference how it says what it is for.
func TestMarkedTraceQueues(t *testing.T) {
	for _, headers := range [][]string{
		{"x-remora-attempt: 1"},
		{"traceparent: " + proxytest.SampledParent, "tracestate: remora=h"},
	} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Provider: "max_concurrency: 1"})
		first, second := m.Post(10), m.Post(10, headers...)
		m.Do(first)
		m.Do(second)
		m.OK(first, second)
		m.Settled()
	}
}
