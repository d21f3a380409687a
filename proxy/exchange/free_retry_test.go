package exchange_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/registry"
)

// TestFullLinkFreeRetry: a request that was not sent because its link is full is retried
// at another endpoint without a token of the retry budget, with any method. If all links
// are full, it is refused with a code of its own.
func TestFullLinkFreeRetry(t *testing.T) {
	const service = "timeout: 1h, lb: {policy: weighted_round_robin, slow_start: 0s}, hedge: {budget: 0.01}"
	for full := 1; full <= 2; full++ {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, Service: service})
		for i := range full {
			stallLink(m, i)
		}
		fillLinks(m, full)
		calls := m.Burst(100, 10) // five times as many as the budget allows
		m.Finish(calls...)
		if full == 1 {
			m.OK(calls...)
		} else if n := proxytest.CountCodes(calls); n["connection-full"] != len(calls) {
			t.Errorf("with all links full: %v", n)
		}
		s := m.Consumer.Stats("compute")
		if s.Retries == 0 || s.RetriesPaid+s.RetriesOverBudget > 0 {
			t.Errorf("%d full: %d retries, %d paid, %d over budget; want none but free ones", full, s.Retries, s.RetriesPaid, s.RetriesOverBudget)
		}
		for _, e := range m.Consumer.Report().Services[0].Endpoints {
			if e.Ejected {
				t.Errorf("%d full: %s is ejected", full, e.Addr)
			}
		}
	}
}

// TestFullQueueNotRetried: a request that is refused because the queue for the
// application is full is not retried, since the retry would be refused too.
func TestFullQueueNotRetried(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, OneHop: true, Service: "max_concurrency: 2, max_queue: 2"})
	calls := m.Burst(10, 10)
	m.Finish(calls...)
	if n := proxytest.CountCodes(calls); n["overloaded"] != 6 || n[""] != 4 {
		t.Errorf("responses %v, want 6 overloaded of 10", n)
	}
	if s := m.Consumer.Stats("compute"); s.Retries+s.RetriesPaid+s.RetriesOverBudget > 0 {
		t.Errorf("%d retries, %d paid, %d over budget; want none", s.Retries, s.RetriesPaid, s.RetriesOverBudget)
	}
	m.Settled()
}

// TestFreeRetryAfterBadHedge: a request that could not be sent is retried free, also if its hedge has had a
// bad response meanwhile.
func TestFreeRetryAfterBadHedge(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 3, Service: proxytest.Fields(proxytest.HedgeOn, "connect_timeout: 50ms")})
	var all []registry.Endpoint
	for i, a := range m.Apps {
		all = append(all, registry.Endpoint{Addr: m.Nodes[i+1].Host + ":15006", Weight: 1})
		a.OnRequest = func(*protocol.Request) {
			if m.Apps[0].Served+m.Apps[1].Served+m.Apps[2].Served == 0 {
				a.Status, a.Delay = 503, func() time.Duration { return 100 * time.Millisecond }
			}
		}
	}
	m.W.Faults.Blackhole(all[0].Addr, true)
	m.Consumer.Update("compute", all[0])
	c := m.Post(10)
	m.Do(c)
	m.W.Run(time.Millisecond)
	m.Consumer.Update("compute", all...)
	m.OK(c)
	if s := m.Consumer.Stats("compute"); s.Hedges != 1 {
		t.Errorf("%d hedges, want 1", s.Hedges)
	}
	m.Settled()
}

// TestFailedHedgeBesideBadResponse: the failure of a hedge pays for no retry of the bad response of the primary, whichever
// comes first. The application has served the request, and retry.on does not name the status.
func TestFailedHedgeBesideBadResponse(t *testing.T) {
	const ms = time.Millisecond
	unreachable := func(m *proxytest.Mesh) { m.W.Faults.Blackhole(m.Endpoint(1).Addr, true) }
	for name, c := range map[string]struct {
		provider string
		before   func(m *proxytest.Mesh)
		during   func(m *proxytest.Mesh) // when the hedge is in flight
		takes    time.Duration           // the bad response
	}{
		"not connected":        {"", unreachable, nil, 60 * ms},
		"not connected, later": {"", unreachable, nil, 15 * ms},
		"refused": {"rate_limit: {rate: 1, burst: 1}", func(m *proxytest.Mesh) {
			m.Consumer.Update("compute", m.Endpoint(1))
			m.OK(m.Complete(m.Post(10)))
		}, nil, 30 * ms},
		"lost": {"", nil, func(m *proxytest.Mesh) { m.W.Faults.ResetAll(m.Consumer.Host, m.Nodes[2].Host) }, 30 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, Provider: c.provider, Service: "idempotent: true, timeout: 2s, " +
				"connect_timeout: 20ms, retry: {attempts: 3, on: [connect, refused, reset]}, hedge: {mode: on, delay: 5ms, budget: 1}"})
			bad, slow := m.Apps[0], m.Apps[1]
			if c.before != nil {
				c.before(m)
			}
			bad.Status, bad.Delay = 503, func() time.Duration { return c.takes }
			slow.Delay = func() time.Duration { return 100 * ms }
			m.Consumer.Update("compute", m.Endpoint(0))
			call := m.Post(10)
			m.Do(call)
			m.W.Run(ms)
			m.Consumer.Update("compute", m.Endpoint(0), m.Endpoint(1))
			m.W.Run(8 * ms)
			if c.during != nil {
				c.during(m)
			}
			m.Finish(call)
			if s := m.Consumer.Stats("compute"); call.Status != 503 || s.Hedges == 0 || s.Retries != 0 {
				t.Errorf("status %d %s, %d hedges, %d retries; want 503, some and none", call.Status, call.Code, s.Hedges, s.Retries)
			}
			m.Settled()
		})
	}
}

// stallLink replaces provider i by one that takes one request at a time and never
// responds.
func stallLink(m *proxytest.Mesh, i int) {
	w := link.NewWriter()
	w.Preface(link.Acceptor, link.Settings{MaxStreams: 1})
	w.Open(1, link.Settings{})
	says := w.Append(nil, 1<<20)
	host := m.Apps[i].Host
	m.Nodes[1+i].Stop[0]()
	m.W.Net.Listen(host+":15006", m.W.Loop(host+"-raw"), func() loop.Receiver { return &proxytest.Peer{Says: says} })
}

// fillLinks sends requests until so many stalled links have a request each.
func fillLinks(m *proxytest.Mesh, links int) {
	m.T.Helper()
	stuck := func() (n int) {
		for _, e := range m.Consumer.Report().Services[0].Endpoints {
			n += e.Pending
		}
		return n
	}
	for range 100 {
		if stuck() == links {
			return
		}
		m.Do(m.Post(10))
		m.W.Run(100 * time.Millisecond)
	}
	m.T.Fatalf("%d links carry a request, want %d", stuck(), links)
}
