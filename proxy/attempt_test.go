package proxy_test

import (
	"slices"
	"testing"

	"github.com/remora-proxy/remora/protocol"
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
		eachTopology(t, meshOptions{service: ", retry: {on: [5xx]}, hedge: {budget: 1}"}, func(t *testing.T, m *mesh) {
			var got []string
			for _, a := range m.apps {
				a.status = 503
				a.seen = func(req *protocol.Request) {
					got = append(got, string(protocol.Find(req.Headers, "x-remora-attempt")))
				}
			}
			c := m.get("/", "x-remora-attempt: "+came)
			m.do(c)
			m.finish(c)
			if !slices.Equal(got, want) {
				t.Errorf("from %s on the applications saw the attempts %q, want %q", came, got, want)
			}
			m.settled()
		})
	}
}
