package proxy_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy"
)

// fillLink has endpoint i take one request at a time, and never answer it.
func (m *mesh) fillLink(i int) {
	w := link.NewWriter()
	w.Preface(link.Acceptor, link.Settings{MaxStreams: 1})
	w.Open(1, link.Settings{})
	says := w.Append(nil, 1<<20)
	host := m.apps[i].host
	m.nodes[1+i].stop[0]()
	m.w.Listen(host+":15006", m.w.Loop(host+"-raw"), func() proxy.Stream { return &peer{says: says} })
}

// fill sends requests until each of the links filled takes no more.
func (m *mesh) fill(links int) {
	m.t.Helper()
	stuck := func() (n int) {
		for _, e := range m.consumer.report().Services[0].Endpoints {
			n += e.Pending
		}
		return n
	}
	for range 100 {
		if stuck() == links {
			return
		}
		m.do(m.post(10))
		m.w.Run(100 * time.Millisecond)
	}
	m.t.Fatalf("%d links carry a request, want %d", stuck(), links)
}

// TestFullLinkCostsNothing: a request that finds no room on its link, to which
// nothing was sent, goes to another endpoint without a token of the retry budget,
// whatever its method; where all are full it is refused with a code of its own.
func TestFullLinkCostsNothing(t *testing.T) {
	const service = ", timeout: 1h, lb: {policy: weighted_round_robin, slow_start: 0s}, hedge: {budget: 0.01}"
	for full := 1; full <= 2; full++ {
		m := newMesh(t, meshOptions{apps: 2, service: service})
		for i := range full {
			m.fillLink(i)
		}
		m.fill(full)
		calls := m.burst(100, 10) // five times what the budget pays for
		m.finish(calls...)
		if full == 1 {
			m.ok(calls...)
		} else if n := codes(calls); n["connection-full"] != len(calls) {
			t.Errorf("with all links full: %v", n)
		}
		s := m.consumer.stats("compute")
		if s.Retries == 0 || s.RetriesPaid+s.RetriesOverBudget > 0 {
			t.Errorf("%d full: %d retries, %d paid, %d over budget; want none but free ones", full, s.Retries, s.RetriesPaid, s.RetriesOverBudget)
		}
		for _, e := range m.consumer.report().Services[0].Endpoints {
			if e.Ejected {
				t.Errorf("%d full: %s is ejected", full, e.Addr)
			}
		}
	}
}

// TestFullQueueCostsNothing: what is refused since the queue for the application is
// full would be in the same moment again.
func TestFullQueueCostsNothing(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 2, direct: true, service: ", max_concurrency: 2, max_queue: 2"})
	calls := m.burst(10, 10)
	m.finish(calls...)
	if n := codes(calls); n["overloaded"] != 6 || n[""] != 4 {
		t.Errorf("answers %v, want 6 overloaded of 10", n)
	}
	if s := m.consumer.stats("compute"); s.Retries+s.RetriesPaid+s.RetriesOverBudget > 0 {
		t.Errorf("%d retries, %d paid, %d over budget; want none", s.Retries, s.RetriesPaid, s.RetriesOverBudget)
	}
	m.settled()
}
