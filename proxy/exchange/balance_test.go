package exchange_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb/outlier"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/registry"
)

// outlierConfig configures ejection. Its other limits are too high to matter.
const outlierConfig = "connect_timeout: 15s, retry: {on: []}, outlier: {base: %s, max_ejected: %v}"

// TestFastFailures: a replica that fails at once never has pending requests. It is
// ejected after a few failures; if it can't be ejected, it receives at most its share.
func TestFastFailures(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Service: fmt.Sprintf(outlierConfig, "1h", 0.5)}, func(t *testing.T, m *proxytest.Mesh) {
		m.Apps[0].Status, m.Apps[0].Delay = 500, func() time.Duration { return 0 }
		got := m.CountServed(20, 100)
		if got[0] < 5 || got[0] > 5+20 { // 20 may be in flight when the fifth fails
			t.Errorf("requests by application: %v, want 5 to 25 at the first", got)
		}
		if n := m.Consumer.Stats("compute").Ejections; n != [outlier.Reasons]uint64{outlier.ByConsecutive: 1} {
			t.Errorf("ejections %v", n)
		}
		m.Settled()
	})
	proxytest.EachTopology(t, proxytest.MeshOptions{Service: fmt.Sprintf(outlierConfig, "1h", 0)}, func(t *testing.T, m *proxytest.Mesh) {
		m.Apps[0].Status, m.Apps[0].Delay = 500, func() time.Duration { return 0 }
		if got := m.CountServed(20, 100); got[0] > 2000/3 {
			t.Errorf("requests by application: %v, want a third at most at the first", got)
		}
		if got := m.CountServed(1, 200); got[0] > 200/3 {
			t.Errorf("one after another, requests by application: %v, want a third at most at the first", got)
		}
		m.Settled()
	})
}

// TestEjectionCauses: failures that eject an endpoint, and results that do not.
func TestEjectionCauses(t *testing.T) {
	for _, c := range []struct {
		name    string
		service string // of the consumer, beyond outlierConfig
		limits  string // of the provider's service
		do      func(m *proxytest.Mesh, a *proxytest.App)
		ejects  bool
	}{
		{"responses of 5xx", "", "", func(_ *proxytest.Mesh, a *proxytest.App) { a.Status = 503 }, true},
		{"responses of 4xx", "", "", func(_ *proxytest.Mesh, a *proxytest.App) { a.Status = 429 }, false},
		{"resets", "", "", func(_ *proxytest.Mesh, a *proxytest.App) { a.ResetAll = true }, true},
		{"no listener", "", "", func(_ *proxytest.Mesh, a *proxytest.App) { a.Stop() }, true},
		{"silence until the deadline", "timeout: 2s", "", func(_ *proxytest.Mesh, a *proxytest.App) { a.FrozenUntil = time.Hour }, true},
		{"a stall and a short deadline", "timeout: 300ms", "", func(m *proxytest.Mesh, a *proxytest.App) { a.FrozenUntil = m.W.Now() + 700*time.Millisecond }, false},
		{"slow responses", "timeout: 1500ms", "", func(_ *proxytest.Mesh, a *proxytest.App) {
			n := 0
			a.Delay = func() time.Duration {
				n++
				return time.Duration(500+1500*(n%2)) * time.Millisecond
			}
		}, false},
		{"no slot", "", "max_concurrency: 1, max_queue: 0", func(_ *proxytest.Mesh, a *proxytest.App) {
			a.Delay = func() time.Duration { return 50 * time.Millisecond }
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			proxytest.EachTopology(t, proxytest.MeshOptions{Service: proxytest.Fields(fmt.Sprintf(outlierConfig, "1s", 0.5), c.service), Provider: c.limits}, func(t *testing.T, m *proxytest.Mesh) {
				c.do(m, m.Apps[0])
				m.CountServed(12, 20)
				n := m.Consumer.Stats("compute").Ejections[outlier.ByConsecutive]
				if ejected := n > 0; ejected != c.ejects {
					t.Errorf("ejections: %d", n)
				}
				m.Settled()
			})
		})
	}
}

// TestEjectedEndpointReturns: after its time an ejected endpoint receives one request as a
// probe, then a small part of the load, and finally its share.
func TestEjectedEndpointReturns(t *testing.T) {
	const slowly = "lb: {policy: weighted_round_robin, slow_start: 10s}"
	proxytest.EachTopology(t, proxytest.MeshOptions{Service: proxytest.Fields(fmt.Sprintf(outlierConfig, "10s", 0.5), slowly)}, func(t *testing.T, m *proxytest.Mesh) {
		sick := m.Apps[0]
		sick.Status = 500
		m.CountServed(12, 20)
		if got := m.CountServed(12, 20); got[0] != 0 {
			t.Errorf("requests by application: %v, want none at the first while it is ejected", got)
		}
		m.W.Run(10 * time.Second)
		if got := m.CountServed(12, 20); got[0] != 1 {
			t.Errorf("requests by application: %v, want one at the first as its probe", got)
		}
		m.W.Run(20 * time.Second)
		sick.Status = 200
		if got := m.CountServed(12, 60); got[0] < 10 || got[0] > 60 {
			t.Errorf("requests by application: %v, want a twentieth at the first, which is back", got)
		}
		m.W.Run(10 * time.Second)
		if got := m.CountServed(12, 60); got[0] < 720/4 {
			t.Errorf("requests by application: %v, want about a third at the first, which is healthy again", got)
		}
		if n := m.Consumer.Stats("compute").Ejections[outlier.ByConsecutive]; n != 2 {
			t.Errorf("%d ejections, want one, and one for the failed probe", n)
		}
		m.Settled()
	})
}

// TestPoliciesUseWeights: every policy uses the weights of the registry.
func TestPoliciesUseWeights(t *testing.T) {
	for _, policy := range []string{"least_pending", "weighted_round_robin", "peak_ewma", "random"} {
		t.Run(policy, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Service: "lb: {policy: " + policy + "}"})
			eps := []registry.Endpoint{m.Endpoint(0), m.Endpoint(1), m.Endpoint(2)}
			eps[0].Weight, eps[1].Weight, eps[2].Weight = 1, 2, 5
			m.Consumer.Update("compute", eps...)
			m.W.Run(time.Millisecond)
			got := m.CountServed(16, 100)
			for i, want := range []int{200, 400, 1000} {
				if got[i] < want*3/4 || got[i] > want*5/4 {
					t.Errorf("requests by application: %v, want about [200 400 1000]", got)
					break
				}
			}
			m.Settled()
		})
	}
}

// TestSubset: a sidecar uses as many endpoints as lb.subset says, and several sidecars
// together use more.
func TestSubset(t *testing.T) {
	used := map[int]bool{}
	for i := range 8 {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 6, Service: "lb: {subset: 2}", Limits: fmt.Sprintf("node: {id: api-%d}", i)})
		some := 0
		for app, n := range m.CountServed(4, 20) {
			if n > 0 {
				some++
				used[app] = true
			}
		}
		if some != 2 {
			t.Errorf("api-%d uses %d applications, want 2", i, some)
		}
		m.Settled()
	}
	if len(used) < 4 {
		t.Errorf("eight sidecars use the applications %v", used)
	}
}

// TestZonePreferred: requests stay in the sidecar's zone at low load, and spill to other
// zones at high load.
func TestZonePreferred(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Limits: "node: {zone: here}"})
	eps := []registry.Endpoint{m.Endpoint(0), m.Endpoint(1), m.Endpoint(2)}
	eps[0].Zone, eps[1].Zone, eps[2].Zone = "here", "there", "there"
	m.Consumer.Update("compute", eps...)
	m.W.Run(time.Millisecond)
	if got := m.CountServed(3, 50); got[0] != 150 {
		t.Errorf("requests by application: %v, want all in the own zone", got)
	}
	if got := m.CountServed(30, 50); got[0] < 500 || got[1] < 200 || got[2] < 200 {
		t.Errorf("requests by application: %v, want half in the own zone when there are many at once, and the rest spread", got)
	}
	m.Settled()
}

// TestSlowStart: a new endpoint starts with a small part of the load.
func TestSlowStart(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Service: "lb: {policy: weighted_round_robin, slow_start: 10s}"})
	m.Consumer.Update("compute", m.Endpoint(0), m.Endpoint(1))
	m.W.Run(time.Millisecond)
	m.Consumer.Update("compute", m.Endpoint(0), m.Endpoint(1), m.Endpoint(2))
	m.W.Run(time.Millisecond)
	if got := m.CountServed(4, 100); got[2] > 40 {
		t.Errorf("requests by application: %v, want a twentieth at the new one", got)
	}
	m.W.Run(10 * time.Second)
	m.CountServed(1, 30)
	if got := m.CountServed(4, 100); got[2] < 120 || got[2] > 145 {
		t.Errorf("requests by application: %v, want a third at the one that was new", got)
	}
	m.Settled()
}

// TestUnequalReplicas: replicas of 2, 4 and 6 workers whose sidecars report their load
// serve nearly as many requests as with the right weights, with as many requests in
// flight as there are workers.
func TestUnequalReplicas(t *testing.T) {
	workers := []int{2, 4, 6}
	serve := func(seed uint64, weights ...int) (took time.Duration) {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Seed: seed, Service: "timeout: 15s"})
		var eps []registry.Endpoint
		for i, a := range m.Apps {
			a.ServeByPool(workers[i], 5*time.Millisecond)
			p := m.Nodes[i+1]
			p.Crash()
			p.Cfg.Services["local"].MaxConcurrency = workers[i]
			p.Restart(a)
			eps = append(eps, m.Endpoint(i))
			eps[i].Weight = weights[i]
		}
		m.Consumer.Update("compute", eps...)
		m.W.Run(time.Millisecond)
		m.CountServed(12, 20)
		began := m.W.Now()
		m.CountServed(12, 150)
		took = m.W.Now() - began
		m.Settled()
		return took
	}
	var blind, perfect time.Duration
	for seed := range uint64(4) { // one differs by 2% from the next
		blind, perfect = blind+serve(seed, 1, 1, 1), perfect+serve(seed, 1, 2, 3)
	}
	t.Logf("the requests took %v, with the right weights %v", blind, perfect)
	if float64(perfect) < 0.93*float64(blind) {
		t.Errorf("the requests took %v, with the right weights %v", blind, perfect)
	}
}
