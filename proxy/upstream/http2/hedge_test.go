package http2_test

import (
	"math"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// respondAfter has the applications of a mesh respond to first attempts after primary, and to hedges after hedge. Both are called
// with the number of the attempt among those of its kind.
func respondAfter(m *proxytest.Mesh, primary, hedge func(n int) time.Duration) {
	primaries, hedges := 0, 0
	for _, a := range startApps(m) {
		a.onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
			if protocol.Find(c.Request.Headers, protocol.HeaderAttempt) == nil {
				primaries++
				a.later(primary(primaries))(c, st)
				return
			}
			hedges++
			a.later(hedge(hedges))(c, st)
		}
	}
}

// TestGateUseless checks that the gate useless stays open while hedges win. The primaries that they overtake are reset,
// so nobody knows what was saved: the others must not be judged alone. The applications have seen what was reset.
func TestGateUseless(t *testing.T) {
	const ms = time.Millisecond
	const service = "idempotent: true, timeout: 2s, hedge: {mode: on, delay: 5ms, budget: 1}"
	proxytest.EachTopology(t, proxytest.MeshOptions{Speaks: "http2", Service: service}, func(t *testing.T, m *proxytest.Mesh) {
		respondAfter(m,
			func(n int) time.Duration {
				if n%10 == 0 {
					return 100 * ms
				}
				return 8 * ms
			},
			func(int) time.Duration { return 8 * ms })
		m.WarmUp(300)
		m.Settled()
		report := m.Consumer.Report()
		r := report.Services[0].Routes[0]
		if r.Counts.HedgesWon < 25 || r.Effect.OneIn != 1 {
			t.Errorf("%d hedges, %d won: one in %d decisions may hedge, want each", r.Counts.Hedges, r.Counts.HedgesWon, r.Effect.OneIn)
		}
		if s := &report.Stats; s.Cancels < r.Counts.Hedges || s.CancelsSaved > 0 {
			t.Errorf("%d cancels, of which %d reached no application; want one for each of %d hedges, and none", s.Cancels, s.CancelsSaved, r.Counts.Hedges)
		}
	})
}

// TestLostHedges checks that hedges which lose count, too: else hedges would seem to be quick.
func TestLostHedges(t *testing.T) {
	const ms = time.Millisecond
	const service = "idempotent: true, timeout: 2s, hedge: {mode: on, budget: 1}"
	proxytest.EachTopology(t, proxytest.MeshOptions{Speaks: "http2", Service: service}, func(t *testing.T, m *proxytest.Mesh) {
		respondAfter(m,
			func(n int) time.Duration {
				if n%20 == 0 {
					return 40 * ms
				}
				return ms
			},
			func(n int) time.Duration {
				if n%2 == 0 {
					return 200 * ms
				}
				return ms
			})
		calls := m.SendAtRate(1, 500, 15*time.Second)
		m.FinishAfter(16*time.Second, calls)
		m.OK(calls...)
		m.Settled()
		r := m.Consumer.Report().Services[0].Routes[0]
		if r.Counts.HedgesWon < 100 || r.Counts.Hedges < 3*r.Counts.HedgesWon/2 {
			t.Fatalf("%d hedges, %d won: too few to test anything", r.Counts.Hedges, r.Counts.HedgesWon)
		}
		if r.Choice.Second < 20*ms {
			t.Errorf("nine of ten hedges respond within %v, want more than 20 ms: every other one takes 200 ms", r.Choice.Second)
		}
	})
}

// TestForecastOfUseless checks that the gate useless stays open if hedges save little, as nobody learns that where primaries
// are reset, and that shadow mode forecasts it.
func TestForecastOfUseless(t *testing.T) {
	load := func(mode string) (forecast, sent float64) {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{
			OneHop: true, Speaks: "http2", Service: "idempotent: true, timeout: 2s, hedge: {delay: 5ms, budget: 0.2, " + mode + "}",
		})
		takes := func(n int) time.Duration {
			if n%10 == 0 {
				return 6 * time.Millisecond
			}
			return time.Millisecond
		}
		respondAfter(m, takes, takes)
		calls := m.SendAtRate(1, 500, 15*time.Second)
		m.FinishAfter(16*time.Second, calls)
		m.OK(calls...)
		m.Settled()
		r := m.Consumer.Report().Services[0].Routes[0]
		for _, f := range r.Forecasts[:min(1, len(r.Forecasts))] {
			forecast = float64(f.Hedges) / float64(f.Requests)
		}
		return forecast, float64(r.Counts.Hedges) / float64(r.Counts.Primaries)
	}
	forecast, _ := load("mode: shadow, sample: 1")
	_, sent := load("mode: on")
	t.Logf("extra load %.2f%%, forecast %.2f%%", 100*sent, 100*forecast)
	if sent < .05 || math.Abs(forecast-sent) > .01 {
		t.Errorf("extra load of %.3f was forecast, %.3f sent", forecast, sent)
	}
}
