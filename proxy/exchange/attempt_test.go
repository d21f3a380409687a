package exchange_test

import (
	"slices"
	"testing"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestAttemptNumberLimit: the number of an attempt stops at 249. If it wrapped, the next
// hop would take the request for a first attempt, which it may hedge.
func TestAttemptNumberLimit(t *testing.T) {
	for received, want := range map[string][]string{
		"0":   {"", "1"},
		"1":   {"1", "2"},
		"247": {"247", "248"},
		"248": {"248", "249"},
		"249": {"249", "249"},
		"255": {"249", "249"},
	} {
		proxytest.EachTopology(t, proxytest.MeshOptions{Service: "retry: {on: [5xx]}, hedge: {budget: 1}"}, func(t *testing.T, m *proxytest.Mesh) {
			var got []string
			for _, a := range m.Apps {
				a.Status = 503
				a.OnRequest = func(req *protocol.Request) {
					got = append(got, string(protocol.Find(req.Headers, "x-remora-attempt")))
				}
			}
			c := m.Get("/", "x-remora-attempt: "+received)
			m.Do(c)
			m.Finish(c)
			if !slices.Equal(got, want) {
				t.Errorf("after %s the applications received attempts %q, want %q", received, got, want)
			}
			m.Settled()
		})
	}
}
