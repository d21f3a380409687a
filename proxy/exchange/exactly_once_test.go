package exchange_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestGoAwayIncludesOvertaking: a long request may be complete after a later short one.
// GOAWAY must include the short one, which the application has received.
func TestGoAwayIncludesOvertaking(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, Bandwidth: 20 << 20})
	executed := m.Apps.CountExecutions()
	m.Apps.Slow(300 * time.Millisecond)
	m.Consumer.Update("compute", m.Endpoint(0))
	m.W.Run(time.Millisecond)
	long, short := m.Post(1<<20), m.Post(10)
	m.Do(long)
	m.W.Run(70 * time.Millisecond) // its first frame is at the provider
	m.Do(short)
	m.W.Run(150 * time.Millisecond) // both are at the application
	m.Consumer.Update("compute", m.Endpoint(0), m.Endpoint(1))
	m.Nodes[1].Proc.Drain()
	m.OK(long, short)
	m.CheckExecutedOnce(executed, long, short)
	if len(executed) != 2 {
		t.Errorf("the applications received %d requests", len(executed))
	}
	m.Settled()
}

// TestDrainRefusesIncompleteRequest: a request of which a draining provider has only a
// part is refused when it is complete, and is retried elsewhere with any method.
func TestDrainRefusesIncompleteRequest(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, Bandwidth: 10 << 20})
	executed := m.Apps.CountExecutions()
	m.Consumer.Update("compute", m.Endpoint(0))
	m.W.Run(time.Millisecond)
	long, short := m.Post(3<<20), m.Post(10)
	m.Do(long)
	m.W.Run(400 * time.Millisecond) // all is at the consumer, some at the provider
	m.Complete(short)
	if long.Done || executed[long.Nonce] > 0 {
		t.Fatal("the long request was complete too early")
	}
	m.Consumer.Update("compute", m.Endpoint(0), m.Endpoint(1))
	m.Nodes[1].Proc.Drain()
	m.Finish(long)
	m.OK(long, short)
	m.CheckExecutedOnce(executed, long, short)
	m.Settled()
}

// TestBadResponseNotIdempotent: a bad response to a request that is not idempotent is
// passed on and not retried, since the application has processed the request.
func TestBadResponseNotIdempotent(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Service: "retry: {attempts: 2, on: [5xx]}"}, func(t *testing.T, m *proxytest.Mesh) {
		executed := m.Apps.CountExecutions()
		for _, a := range m.Apps {
			a.Status = 500
		}
		c := m.Complete(m.Post(10))
		if c.Status != 500 {
			t.Errorf("status %d %s", c.Status, c.Code)
		}
		m.CheckExecutedOnce(executed, c)
		m.Settled()
	})
}
