package exchange_test

import (
	"slices"
	"testing"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// What led to a request counts on: no number of attempts makes the next hop take it
// for a first one, which it may hedge.
func TestAttemptNumbersDoNotWrap(t *testing.T) {
	for came, want := range map[string][]string{
		"0":   {"", "1"},
		"1":   {"1", "2"},
		"247": {"247", "248"},
		"248": {"248", "249"},
		"249": {"249", "249"},
		"255": {"249", "249"},
	} {
		proxytest.EachTopology(t, proxytest.MeshOptions{Service: ", retry: {on: [5xx]}, hedge: {budget: 1}"}, func(t *testing.T, m *proxytest.Mesh) {
			var got []string
			for _, a := range m.Apps {
				a.Status = 503
				a.OnRequest = func(req *protocol.Request) {
					got = append(got, string(protocol.Find(req.Headers, "x-remora-attempt")))
				}
			}
			c := m.Get("/", "x-remora-attempt: "+came)
			m.Do(c)
			m.Finish(c)
			if !slices.Equal(got, want) {
				t.Errorf("from %s on the applications saw the attempts %q, want %q", came, got, want)
			}
			m.Settled()
		})
	}
}
