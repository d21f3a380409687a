package exchange_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/registry"
)

// TestAttemptNumberLimit: the number of an attempt stops at 249. If it wrapped, the next
// hop would take the request for a first attempt, which it may hedge. Each request here is
// refused a connection first, and sent again for free.
func TestAttemptNumberLimit(t *testing.T) {
	for received, want := range map[string]string{"0": "1", "1": "2", "247": "248", "248": "249", "249": "249", "255": "249"} {
		proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1, Service: "lb: {policy: random}"}, func(t *testing.T, m *proxytest.Mesh) {
			closed := registry.Endpoint{Addr: "10.0.1.1:9", Weight: 1e6}
			m.Consumer.Update("compute", closed, m.Endpoint(0))
			m.W.Run(time.Millisecond)
			var got string
			m.Apps[0].OnRequest = func(req *protocol.Request) { got = string(protocol.Find(req.Headers, "x-remora-attempt")) }
			c := m.Complete(m.Get("/", "x-remora-attempt: "+received))
			m.OK(c)
			if got != want {
				t.Errorf("after %s the application received attempt %q, want %q", received, got, want)
			}
			m.Settled()
		})
	}
}
