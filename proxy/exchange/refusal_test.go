package exchange_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb/outlier"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestFastRefusals: one of three applications answers at once what is no failure of its own. It
// gets at most 1.5 times its share of the requests, at least 0.4 times, and is not ejected.
func TestFastRefusals(t *testing.T) {
	for _, c := range []struct {
		policy  string
		status  int
		headers string
		rates   []float64
	}{
		{"least_pending", 429, "", []float64{100, 400, 1200}},
		{"least_pending", 429, "Retry-After: 1\r\n", []float64{400}},
		{"least_pending", 404, "", []float64{400}},
		{"least_pending", 401, "", []float64{400}},
		{"peak_ewma", 429, "", []float64{100, 1200}},
		{"random", 429, "", []float64{400}},
		{"weighted_round_robin", 404, "", []float64{400}},
	} {
		for _, rate := range c.rates {
			t.Run(fmt.Sprint(c.policy, c.status, c.headers, rate), func(t *testing.T) {
				proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 3, Service: "lb: {policy: " + c.policy + "}"}, func(t *testing.T, m *proxytest.Mesh) {
					m.Apps.SetLognormalDelays(1)
					for _, a := range m.Apps {
						usual := a.Delay
						a.Delay = func() time.Duration { return 5 * usual() }
					}
					m.FinishAfter(2*time.Second, m.SendAtRate(6, rate, 2*time.Second))
					refuses := m.Apps[0]
					refuses.Status, refuses.ExtraHeaders, refuses.Delay = c.status, c.headers, func() time.Duration { return 0 }
					calls := m.SendAtRate(7, rate, 4*time.Second)
					m.FinishAfter(4*time.Second, calls)
					refused := 0
					for _, call := range calls {
						if call.Status == c.status {
							refused++
						}
					}
					if share := float64(refused) / float64(len(calls)); share > 0.5 || share < 0.4/3 {
						t.Errorf("%.2f of the calls got %d", share, c.status)
					}
					if n := m.Consumer.Stats("compute").Ejections; n != [outlier.Reasons]uint64{} {
						t.Errorf("ejections %v", n)
					}
				})
			})
		}
	}
}

// TestFastRefusedCalls: the same with gRPC calls that end at once with a code.
func TestFastRefusedCalls(t *testing.T) {
	for _, code := range []protocol.GRPCCode{protocol.GRPCResourceExhausted, protocol.GRPCUnauthenticated} {
		for form, say := range map[string]func(*proxytest.App, protocol.GRPCCode, string){"trailers": sayGRPC, "headers alone": sayGRPCAlone} {
			t.Run(fmt.Sprint(code, form), func(t *testing.T) {
				proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 3}, func(t *testing.T, m *proxytest.Mesh) {
					for _, a := range m.Apps {
						a.Delay = func() time.Duration { return 5 * time.Millisecond }
						sayGRPC(a, protocol.GRPCOK, "")
					}
					m.Apps[0].Delay = func() time.Duration { return 0 }
					say(m.Apps[0], code, "")
					var calls []*proxytest.Call
					for at := m.W.Now(); at < 5*time.Second; at += 2 * time.Millisecond {
						c := m.CallGRPC()
						calls = append(calls, c)
						m.W.At(at, func() { m.Do(c) })
					}
					m.FinishAfter(5*time.Second, calls)
					refused := 0
					for _, c := range calls {
						if c.GRPCStatus() == fmt.Sprint(uint8(code)) {
							refused++
						}
					}
					if share := float64(refused) / float64(len(calls)); share == 0 || share > 0.5 {
						t.Errorf("%.2f of the calls got %v", share, code)
					}
				})
			})
		}
	}
}

// TestRejectingProvider: one of three sidecars of providers refuses all requests at once, for another
// reason than room. It gets at most 1.5 times its share.
func TestRejectingProvider(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 3})
	m.Apps.SetLognormalDelays(1)
	m.Nodes[1].Crash()
	m.Nodes[1].Cfg.Services["local"].Allow = config.Allow{Enforce: true, Rules: []config.AllowRule{{Path: []string{"/nothing"}}}}
	m.Nodes[1].Restart(m.Apps[0])
	calls := m.SendAtRate(7, 2000, 5*time.Second)
	m.FinishAfter(5*time.Second, calls)
	if n := proxytest.CountCodes(calls); n["not-allowed"] == 0 || n["not-allowed"] > len(calls)/2 || n[""]+n["not-allowed"] != len(calls) {
		t.Errorf("responses %v of %d calls", n, len(calls))
	}
}

// TestFullFleet: where all providers refuse most requests, these do not multiply the load, and what the
// providers take is served.
func TestFullFleet(t *testing.T) {
	for name, limit := range map[string]config.RateLimit{"bursts": {Rate: 100, Burst: 100}, "no bursts": {Rate: 100, Burst: 1}} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 3})
			m.Apps.SetLognormalDelays(1)
			for i, a := range m.Apps {
				m.Nodes[i+1].Crash()
				m.Nodes[i+1].Cfg.Services["local"].RateLimit = limit
				m.Nodes[i+1].Restart(a)
			}
			calls := m.SendAtRate(7, 2000, 10*time.Second)
			m.FinishAfter(10*time.Second, calls)
			n, s := proxytest.CountCodes(calls), m.Consumer.Stats("compute")
			t.Logf("responses %v, %d retries, %d paid", n, s.Retries, s.RetriesPaid)
			if free := s.Retries - s.RetriesPaid; float64(free) > 0.1*float64(len(calls)) {
				t.Errorf("%d free retries of %d calls", free, len(calls))
			}
			if n[""] < 2500 {
				t.Errorf("%d calls were served, want about 3000", n[""])
			}
		})
	}
}

// TestRefusingProvider: one of three sidecars of providers refuses what exceeds a limit. The others
// have room, so no caller notices.
func TestRefusingProvider(t *testing.T) {
	for name, limit := range map[string]func(s *config.Service){
		"1/s":           func(s *config.Service) { s.RateLimit = config.RateLimit{Rate: 1, Burst: 1} },
		"50/s":          func(s *config.Service) { s.RateLimit = config.RateLimit{Rate: 50, Burst: 1} },
		"bursts of 50":  func(s *config.Service) { s.RateLimit = config.RateLimit{Rate: 50, Burst: 50} },
		"one pending":   func(s *config.Service) { s.MaxPending = 1 },
		"without queue": func(s *config.Service) { s.MaxConcurrency, s.MaxQueue = 1, 0 },
	} {
		for _, rate := range []float64{20, 400, 1200} {
			t.Run(fmt.Sprint(name, rate), func(t *testing.T) {
				m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 3})
				m.Apps.SetLognormalDelays(1)
				for _, a := range m.Apps {
					usual := a.Delay
					a.Delay = func() time.Duration { return 5 * usual() }
				}
				m.Nodes[1].Crash()
				limit(m.Nodes[1].Cfg.Services["local"])
				m.Nodes[1].Restart(m.Apps[0])
				calls := m.SendAtRate(7, rate, 10*time.Second)
				m.FinishAfter(10*time.Second, calls)
				s := m.Consumer.Stats("compute")
				t.Logf("%d retries of %d calls; requests by application: %d %d %d", s.Retries, len(calls), m.Apps[0].Served, m.Apps[1].Served, m.Apps[2].Served)
				m.OK(calls...)
			})
		}
	}
}

// TestFreeMovesAreBounded: of a burst of requests half, and 10, may go elsewhere free of charge.
func TestFreeMovesAreBounded(t *testing.T) {
	for _, c := range []struct {
		n    int
		most uint64 // free retries
	}{{60, 40}, {300, 160}} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 3, Service: "lb: {policy: weighted_round_robin}"})
		for i := range 2 {
			m.Nodes[i+1].Crash()
			m.Nodes[i+1].Cfg.Services["local"].MaxPending = 1
			m.Nodes[i+1].Restart(m.Apps[i])
		}
		m.Apps.Slow(100 * time.Millisecond)
		calls := m.Burst(c.n, 10)
		m.Finish(calls...)
		s, failed := m.Consumer.Stats("compute"), len(calls)-proxytest.CountCodes(calls)[""]
		if free := s.Retries - s.RetriesPaid; free > c.most || failed > 0 && free < c.most || failed == 0 && c.n == 300 {
			t.Errorf("%d requests: %d free retries, %d paid, %d failed; want at most %d free ones", c.n, free, s.RetriesPaid, failed, c.most)
		}
		if c.n == 60 {
			m.OK(calls...)
		}
		m.Settled()
	}
}
