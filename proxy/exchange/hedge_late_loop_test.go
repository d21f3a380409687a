package exchange_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/hedge/forecast"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestLateLoopResponsesFirst: a loop that was not scheduled for a while finds timers and
// responses at once. It handles the responses first, so that their endpoints count neither
// as late nor as silent.
func TestLateLoopResponsesFirst(t *testing.T) {
	for seed := range uint64(10) {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Seed: seed, Service: proxytest.HedgeOn})
		m.WarmUp(20)
		before := *m.Consumer.Stats("compute")
		m.BurstWhilePaused(30, 20*time.Millisecond)
		m.Settled()
		s := m.Consumer.Stats("compute")
		for g, n := range s.Gates {
			if n -= before.Gates[g]; n > 0 {
				t.Errorf("seed %d: gate %v counted %d, although all responses had arrived", seed, hedge.Gate(g), n)
			}
		}
	}
}

// TestLateLoopHedges: requests that are still in flight after the responses were handled
// are hedged as usual.
func TestLateLoopHedges(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Service: proxytest.HedgeOn})
	m.WarmUp(20)
	m.Apps[0].FrozenUntil = m.W.Now() + 60*time.Millisecond
	m.BurstWhilePaused(3, 20*time.Millisecond)
	m.Settled()
	if s := m.Consumer.Stats("compute"); s.HedgesWon == 0 {
		t.Errorf("%d hedges sent, none won, gates %v; want the request at the frozen application hedged", s.Hedges, s.Gates)
	}
}

// TestLateLoopShadow: hedging does not help requests that only their own loop delayed, and
// shadow mode forecasts no gain for them.
func TestLateLoopShadow(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Service: "idempotent: true, timeout: 2s, hedge: {mode: shadow, sample: 1}"})
	m.WarmUp(150)
	m.BurstWhilePaused(30, 70*time.Millisecond)
	m.Settled()
	var forecasts []forecast.Forecast
	m.Consumer.Loop.Do(func() {
		forecasts = m.Consumer.Proc.Workers()[0].Report(stats.Forecasts).Services[0].Routes[0].Forecasts
	})
	if slowest, _ := forecasts[0].Latency.Quantile(1); slowest < 60*time.Millisecond || forecasts[0].Hedges != 0 {
		t.Errorf("the slowest request is forecast to take %v, with %d hedges; want its 70 ms and none", slowest, forecasts[0].Hedges)
	}
}
