package stats_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

func TestSizeHistogram(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 0, 2: 1, 3: 2, 4: 2, 5: 3, 128: 7, 129: 8, 1 << 20: 8} {
		var h, sum stats.SizeHistogram
		h.Observe(n)
		sum.Add(&h)
		sum.Add(&h)
		if sum.Counts[want] != 2 || sum.Sum != uint64(2*n) {
			t.Errorf("%d is counted as %v, sum %d", n, sum.Counts, sum.Sum)
		}
	}
}

// TestContinues: a service of which a count has fallen, be it one alone, is another service.
func TestContinues(t *testing.T) {
	before := stats.ServiceStats{Requests: 10}
	before.Outcomes = [stats.Outcomes]uint64{5, 1, 1, 1, 1, 1}
	before.Latency.Counts[0], before.Latency.Counts[20] = 3, 7
	before.Hedges, before.HedgesMissed, before.HedgesWon = 4, 1, 2
	for name, c := range map[string]struct {
		change func(*stats.ServiceStats)
		want   bool
	}{
		"the same":                {func(*stats.ServiceStats) {}, true},
		"more":                    {func(s *stats.ServiceStats) { s.Add(&before) }, true},
		"none":                    {func(s *stats.ServiceStats) { *s = stats.ServiceStats{} }, false},
		"fewer requests":          {func(s *stats.ServiceStats) { s.Requests-- }, false},
		"more, but fewer failed":  {func(s *stats.ServiceStats) { s.Add(&before); s.Outcomes[stats.OutcomeFailed] = 0 }, false},
		"more, but fewer fast":    {func(s *stats.ServiceStats) { s.Add(&before); s.Latency.Counts[0] = 2 }, false},
		"fewer hedges":            {func(s *stats.ServiceStats) { s.Hedges-- }, false},
		"more, but fewer missed":  {func(s *stats.ServiceStats) { s.Add(&before); s.HedgesMissed = 0 }, false},
		"more, but fewer are won": {func(s *stats.ServiceStats) { s.Add(&before); s.HedgesWon = 0 }, false},
	} {
		s := before
		if c.change(&s); s.Continues(&before) != c.want {
			t.Errorf("%s: %t", name, !c.want)
		}
	}
}

// Each attempt is counted at its endpoint, by its outcome.
func TestEndpointStats(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, Service: `idempotent: true, timeout: 2s, hedge: {mode: on, delay: 5ms, budget: 1}`})
	m.WarmUp(20)
	m.Apps[0].FrozenUntil = m.W.Now() + 50*time.Millisecond
	calls := m.Burst(6, 10)
	m.OK(calls...)
	m.Settled()

	var sum stats.EndpointStats
	var ejections uint64
	r := m.Consumer.Report().Services[0]
	for i := range r.Endpoints {
		e := &r.Endpoints[i]
		sum.Add(&e.Stats)
		ejections += e.Ejections
		if e.Stats.Latency.Count() == 0 || e.Stats.BytesIn == 0 || e.Stats.BytesOut == 0 {
			t.Errorf("%s: %+v", e.Addr, e.Stats)
		}
	}
	ended := uint64(0)
	for _, n := range sum.Outcomes {
		ended += n
	}
	const requests = 26
	if s := &r.Stats; ended != requests+s.Hedges || sum.Hedges != s.Hedges || s.Hedges == 0 || sum.Retries != s.Retries || ejections != 0 {
		t.Errorf("%d attempts ended for %d requests and %d hedges: %+v", ended, requests, s.Hedges, sum)
	}
	if sum.Latency.Count() > ended || sum.Latency.Count() < requests {
		t.Errorf("%d latencies of %d attempts", sum.Latency.Count(), ended)
	}
}

// Messages in one write to a link are counted as one batch.
func TestLinkBatches(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	m.WarmUp(5)
	for range 40 { // some of them are sent in one turn
		calls := m.Burst(20, 10)
		m.OK(calls...)
	}
	m.Settled()
	st, far := m.Consumer.Report().Stats, m.Nodes[1].Report().Stats
	batches := uint64(0)
	for _, n := range st.LinkBatches.Counts {
		batches += n
	}
	if st.LinkBatches.Sum != 805 || batches == 0 || batches >= 805 || batches > st.LinkFlushes {
		t.Errorf("805 requests left in %d writes and %+v", st.LinkFlushes, st.LinkBatches)
	}
	if st.LinkBytesOut == 0 || st.LinkBytesOut != far.LinkBytesIn || st.LinkBytesIn != far.LinkBytesOut {
		t.Errorf("%d bytes sent and %d received, %d and %d at the other end", st.LinkBytesOut, st.LinkBytesIn, far.LinkBytesIn, far.LinkBytesOut)
	}
}
