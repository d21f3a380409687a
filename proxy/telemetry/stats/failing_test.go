package stats_test

import (
	"testing"

	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestFailing: an endpoint is failing from the first failure on if it has never served, otherwise
// after three in a row, and not while another loop has good attempts.
func TestFailing(t *testing.T) {
	for _, c := range []struct {
		name              string
		inRow, recentGood int
		served            uint64
		want              bool
	}{
		{"no attempt", 0, 0, 0, false},
		{"the first attempt failed", 1, 0, 0, true},
		{"one of many failed", 1, 0, 100, false},
		{"two of many failed", 2, 0, 100, false},
		{"three of many failed", 3, 0, 100, true},
		{"another loop is served", 30, 1, 100, false},
	} {
		e := stats.EndpointReport{FailedInRow: c.inRow, RecentGood: c.recentGood}
		e.Stats.Outcomes[stats.AttemptServed] = c.served
		if got := e.Failing(); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
		e.Stats.Outcomes[stats.AttemptServed], e.Stats.Outcomes[stats.AttemptUnseen] = 0, c.served
		if got := e.Failing(); got != c.want {
			t.Errorf("%s, and nobody waited for what it has served: %t, want %t", c.name, got, c.want)
		}
		e.Stats.Outcomes[stats.AttemptServed] = c.served
		if got := e.Failing(); got != c.want {
			t.Errorf("%s, and nobody waited for half of what it has served: %t, want %t", c.name, got, c.want)
		}
	}
}
