package proxy_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/hedge"
)

// away starts n requests, and has the consumer's loop come to nothing for d while
// their answers arrive, as when others have the CPU.
func (m *mesh) away(n int, d time.Duration) {
	m.t.Helper()
	m.w.Options.Cut = 0
	seen := 0
	for _, a := range m.apps {
		a.seen = func(*protocol.Request) { seen++ }
	}
	calls := m.burst(n, 10)
	if !m.w.RunUntil(func() bool { return seen == n }, time.Second) {
		m.t.Fatalf("%d of %d requests have reached an application", seen, n)
	}
	m.w.Pause(m.consumer.loop, d)
	m.finish(calls...)
	m.ok(calls...)
}

// A loop that was away finds timers and answers at once. The answers are looked at
// first: endpoints that have answered are not late, and not silent.
func TestHedgesComeAfterTheAnswersThatWait(t *testing.T) {
	for seed := range uint64(10) {
		m := newMesh(t, meshOptions{seed: seed, service: hedgeOn})
		m.warm(20)
		before := *m.consumer.stats("compute")
		m.away(30, 20*time.Millisecond)
		m.settled()
		s := m.consumer.stats("compute")
		for g, n := range s.Gates {
			if n -= before.Gates[g]; n > 0 {
				t.Errorf("seed %d: gate %v counted %d, though all answers were there", seed, hedge.Gate(g), n)
			}
		}
	}
}

// What is still out when the answers have been looked at is hedged as ever.
func TestHedgesAfterTheLoopWasAway(t *testing.T) {
	m := newMesh(t, meshOptions{service: hedgeOn})
	m.warm(20)
	m.apps[0].frozen = m.w.Now() + 60*time.Millisecond
	m.away(3, 20*time.Millisecond)
	m.settled()
	if s := m.consumer.stats("compute"); s.HedgesWon == 0 {
		t.Errorf("%d hedges sent, none won, gates %v; want the frozen application's request rescued", s.Hedges, s.Gates)
	}
}

// What only its own loop held up, hedging does not help, and shadow mode does not
// say that it would.
func TestShadowDoesNotBlameApplicationsForItsOwnLoop(t *testing.T) {
	m := newMesh(t, meshOptions{service: ", idempotent: true, timeout: 2s, hedge: {mode: shadow}"})
	m.warm(150)
	m.away(30, 70*time.Millisecond)
	m.settled()
	var forecasts []hedge.Forecast
	m.consumer.loop.Do(func() {
		forecasts = m.consumer.proc.Workers()[0].Report().Services[0].Routes[0].Forecasts
	})
	if slowest, _ := forecasts[0].Latency.Quantile(1); slowest < 60*time.Millisecond || forecasts[0].Hedges != 0 {
		t.Errorf("the slowest request is forecast to take %v, with %d hedges; want its 70 ms and none", slowest, forecasts[0].Hedges)
	}
}
