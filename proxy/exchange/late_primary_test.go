package exchange_test

import (
	"cmp"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/sim"
)

// TestPrimaryAfterHedge: a primary that waits for its connection, and is sent after a hedge, has no marks of the hedge.
// The next hedge has them.
func TestPrimaryAfterHedge(t *testing.T) {
	const parent = "traceparent: " + proxytest.SampledParent
	for _, c := range []struct {
		says []string
		want map[string]string // by x-remora-attempt: grpc-previous-rpc-attempts and tracestate
	}{
		{[]string{parent, "tracestate: a=b,c=d"}, map[string]string{"": "- a=b,c=d", "1": "1 remora=h,a=b,c=d", "2": "2 remora=h,a=b,c=d"}},
		{[]string{parent, "grpc-previous-rpc-attempts: 2"}, map[string]string{"": "2 -", "1": "3 remora=h", "2": "4 remora=h"}},
		{nil, map[string]string{"": "- -", "1": "1 -", "2": "2 -"}},
	} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{OneHop: true, Service: "idempotent: true, timeout: 2s, hedge: {mode: on, delay: 15ms, max: 2, budget: 1}"})
		got := map[string]string{}
		for i, a := range m.Apps {
			m.Consumer.Update("compute", m.Endpoint(i))
			if i > 0 {
				m.OK(m.Complete(m.Post(10))) // it has an idle connection
			}
			a.Delay = func() time.Duration { return 100 * time.Millisecond }
			a.OnRequest = func(req *protocol.Request) {
				value := func(name string) string { return cmp.Or(string(protocol.Find(req.Headers, name)), "-") }
				got[string(protocol.Find(req.Headers, protocol.HeaderAttempt))] = value(protocol.HeaderGRPCPrevious) + " " + value("tracestate")
			}
		}
		m.W.Net.SetPaths(func(from, to string) sim.Path {
			p := sim.DefaultPaths(from, to)
			if far := m.Apps[0].Host; strings.HasPrefix(from, far) || strings.HasPrefix(to, far) {
				p.Latency = 10 * time.Millisecond
			}
			return p
		})
		m.Consumer.Update("compute", m.Endpoint(0))
		call := m.CallGRPC(c.says...)
		m.Do(call)
		m.W.Run(time.Millisecond)
		m.Consumer.Update("compute", m.Endpoint(0), m.Endpoint(1), m.Endpoint(2))
		m.OK(call)
		m.Settled()
		if !maps.Equal(got, c.want) {
			t.Errorf("%q: the applications got %q, want %q", c.says, got, c.want)
		}
	}
}
