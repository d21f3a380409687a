package proxy_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
)

// executions counts per nonce how often applications got a request.
func (m *mesh) executions() map[string]int {
	n := make(map[string]int)
	for _, a := range m.apps {
		a.seen = func(req *protocol.Request) { n[string(protocol.Find(req.Headers, "x-nonce"))]++ }
	}
	return n
}

// once checks that no request of calls was executed twice.
func (m *mesh) once(executed map[string]int, calls ...*call) {
	m.t.Helper()
	for _, c := range calls {
		if n := executed[c.nonce]; n > 1 {
			m.t.Errorf("call %s, which is not idempotent, was executed %d times", c.nonce, n)
		}
	}
}

// A long request may be complete after a short one that overtook it. A GOAWAY
// then still names the short one: it is at the application.
func TestGoAwayCoversWhatOvertook(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 2, bandwidth: 20 << 20})
	executed := m.executions()
	for _, a := range m.apps {
		a.delay = func() time.Duration { return 300 * time.Millisecond }
	}
	m.consumer.update("compute", m.endpoint(0))
	m.w.Run(time.Millisecond)
	long, short := m.post(1<<20), m.post(10)
	m.do(long)
	m.w.Run(70 * time.Millisecond) // its first frame is at the provider
	m.do(short)
	m.w.Run(150 * time.Millisecond) // both are at the application
	m.consumer.update("compute", m.endpoint(0), m.endpoint(1))
	m.nodes[1].proc.Drain()
	m.finish(long, short)
	m.ok(long, short)
	m.once(executed, long, short)
	if len(executed) != 2 {
		t.Errorf("the applications saw %d requests", len(executed))
	}
	m.settled()
}

// A request that a draining provider has only in part is refused once it is
// complete, and goes elsewhere, whatever its method.
func TestDrainRefusesWhatIsInReassembly(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 2, bandwidth: 10 << 20})
	executed := m.executions()
	m.consumer.update("compute", m.endpoint(0))
	m.w.Run(time.Millisecond)
	long, short := m.post(3<<20), m.post(10)
	m.do(long)
	m.w.Run(400 * time.Millisecond) // all is at the consumer, some at the provider
	m.do(short)
	m.finish(short)
	if long.done || executed[long.nonce] > 0 {
		t.Fatal("the long request was through too early")
	}
	m.consumer.update("compute", m.endpoint(0), m.endpoint(1))
	m.nodes[1].proc.Drain()
	m.finish(long)
	m.ok(long, short)
	m.once(executed, long, short)
	m.settled()
}

// A bad answer to a request that is not idempotent is the caller's: the
// application has acted on it.
func TestBadAnswersAreNotRetriedUnlessIdempotent(t *testing.T) {
	eachTopology(t, meshOptions{service: ", retry: {attempts: 2, on: [5xx]}"}, func(t *testing.T, m *mesh) {
		executed := m.executions()
		for _, a := range m.apps {
			a.status = 500
		}
		c := m.post(10)
		m.do(c)
		m.finish(c)
		if c.status != 500 {
			t.Errorf("status %d %s", c.status, c.code)
		}
		m.once(executed, c)
		m.settled()
	})
}
