package proxy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/registry"
)

// spread runs calls of clients, n each, and returns how many requests each
// application got.
func (m *mesh) spread(clients, n int) []int {
	m.t.Helper()
	before := make([]int, len(m.apps))
	for i, a := range m.apps {
		before[i] = a.served
	}
	m.finish(m.crowd(clients, n, 10)...)
	for i, a := range m.apps {
		before[i] = a.served - before[i]
	}
	return before
}

// outlierConfig leaves time to fail in: what is not under test is generous.
const outlierConfig = ", connect_timeout: 15s, retry: {on: []}, outlier: {base: %s, max_ejected: %v}"

// A replica that fails at once has nothing pending, ever. It is ejected after a
// few failures; and where it can't be, it gets no more than its share.
func TestFastFailuresDoNotAttract(t *testing.T) {
	eachTopology(t, meshOptions{service: fmt.Sprintf(outlierConfig, "1h", 0.5)}, func(t *testing.T, m *mesh) {
		m.apps[0].status, m.apps[0].delay = 500, func() time.Duration { return 0 }
		got := m.spread(20, 100)
		if got[0] < 5 || got[0] > 5+20 { // 20 may be out when the fifth fails
			t.Errorf("requests by application: %v, want 5 to 25 at the first", got)
		}
		if n := m.consumer.stats("compute").Ejections; n != [lb.Reasons]uint64{lb.ByConsecutive: 1} {
			t.Errorf("ejections %v", n)
		}
		m.settled()
	})
	eachTopology(t, meshOptions{service: fmt.Sprintf(outlierConfig, "1h", 0)}, func(t *testing.T, m *mesh) {
		m.apps[0].status, m.apps[0].delay = 500, func() time.Duration { return 0 }
		if got := m.spread(20, 100); got[0] > 2000/3 {
			t.Errorf("requests by application: %v, want a third at most at the first", got)
		}
		if got := m.spread(1, 200); got[0] > 200/3 {
			t.Errorf("one after another, requests by application: %v, want a third at most at the first", got)
		}
		m.settled()
	})
}

// What is an endpoint's fault, and what is not.
func TestWhatEjects(t *testing.T) {
	for _, c := range []struct {
		name    string
		service string // of the consumer, beyond outlierConfig
		limits  string // of the provider's service
		do      func(m *mesh, a *app)
		ejects  bool
	}{
		{"answers of 5xx", "", "", func(_ *mesh, a *app) { a.status = 503 }, true},
		{"answers of 4xx", "", "", func(_ *mesh, a *app) { a.status = 429 }, false},
		{"resets", "", "", func(_ *mesh, a *app) { a.resetAll = true }, true},
		{"nobody listens", "", "", func(_ *mesh, a *app) { a.stop() }, true},
		{"silence until the deadline", ", timeout: 2s", "", func(_ *mesh, a *app) { a.frozen = time.Hour }, true},
		{"a stall and a short deadline", ", timeout: 300ms", "", func(m *mesh, a *app) { a.frozen = m.w.Now() + 700*time.Millisecond }, false},
		{"slow, but it answers", ", timeout: 1500ms", "", func(_ *mesh, a *app) {
			n := 0
			a.delay = func() time.Duration {
				n++
				return time.Duration(500+1500*(n%2)) * time.Millisecond
			}
		}, false},
		{"no room", "", ", max_concurrency: 1, max_queue: 0", func(_ *mesh, a *app) {
			a.delay = func() time.Duration { return 50 * time.Millisecond }
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachTopology(t, meshOptions{service: fmt.Sprintf(outlierConfig, "1s", 0.5) + c.service, provider: c.limits}, func(t *testing.T, m *mesh) {
				c.do(m, m.apps[0])
				m.spread(12, 20)
				n := m.consumer.stats("compute").Ejections[lb.ByConsecutive]
				if ejected := n > 0; ejected != c.ejects {
					t.Errorf("ejections: %d", n)
				}
				m.settled()
			})
		})
	}
}

// An ejected endpoint that is well again gets one request after its time, then a
// small part of the load, and its share in the end.
func TestEjectedEndpointComesBack(t *testing.T) {
	const slowly = ", lb: {policy: weighted_round_robin, slow_start: 10s}"
	eachTopology(t, meshOptions{service: fmt.Sprintf(outlierConfig, "10s", 0.5) + slowly}, func(t *testing.T, m *mesh) {
		sick := m.apps[0]
		sick.status = 500
		m.spread(12, 20)
		if got := m.spread(12, 20); got[0] != 0 {
			t.Errorf("requests by application: %v, want none at the first while it is ejected", got)
		}
		m.w.Run(10 * time.Second)
		if got := m.spread(12, 20); got[0] != 1 {
			t.Errorf("requests by application: %v, want one at the first as its probe", got)
		}
		m.w.Run(20 * time.Second)
		sick.status = 200
		if got := m.spread(12, 60); got[0] < 10 || got[0] > 60 {
			t.Errorf("requests by application: %v, want a twentieth at the first, which is back", got)
		}
		m.w.Run(10 * time.Second)
		if got := m.spread(12, 60); got[0] < 720/4 {
			t.Errorf("requests by application: %v, want about a third at the first, which is well again", got)
		}
		if n := m.consumer.stats("compute").Ejections[lb.ByConsecutive]; n != 2 {
			t.Errorf("%d ejections, want one, and one for the failed probe", n)
		}
		m.settled()
	})
}

// The registry's weights reach each policy.
func TestPoliciesGoByTheRegistrysWeights(t *testing.T) {
	for _, policy := range []string{"least_pending", "weighted_round_robin", "peak_ewma", "random"} {
		t.Run(policy, func(t *testing.T) {
			m := newMesh(t, meshOptions{service: ", lb: {policy: " + policy + "}"})
			eps := []registry.Endpoint{m.endpoint(0), m.endpoint(1), m.endpoint(2)}
			eps[0].Weight, eps[1].Weight, eps[2].Weight = 1, 2, 5
			m.consumer.update("compute", eps...)
			m.w.Run(time.Millisecond)
			got := m.spread(16, 100)
			for i, want := range []int{200, 400, 1000} {
				if got[i] < want*3/4 || got[i] > want*5/4 {
					t.Errorf("requests by application: %v, want about [200 400 1000]", got)
					break
				}
			}
			m.settled()
		})
	}
}

func TestSubsetIsUsed(t *testing.T) {
	used := map[int]bool{}
	for i := range 8 {
		m := newMesh(t, meshOptions{apps: 6, service: ", lb: {subset: 2}", limits: fmt.Sprintf("node: {id: api-%d}", i)})
		some := 0
		for app, n := range m.spread(4, 20) {
			if n > 0 {
				some++
				used[app] = true
			}
		}
		if some != 2 {
			t.Errorf("api-%d uses %d applications, want 2", i, some)
		}
		m.settled()
	}
	if len(used) < 4 {
		t.Errorf("eight sidecars use the applications %v", used)
	}
}

func TestZoneIsPreferred(t *testing.T) {
	m := newMesh(t, meshOptions{limits: "node: {zone: here}"})
	eps := []registry.Endpoint{m.endpoint(0), m.endpoint(1), m.endpoint(2)}
	eps[0].Zone, eps[1].Zone, eps[2].Zone = "here", "there", "there"
	m.consumer.update("compute", eps...)
	m.w.Run(time.Millisecond)
	if got := m.spread(3, 50); got[0] != 150 {
		t.Errorf("requests by application: %v, want all in the own zone", got)
	}
	if got := m.spread(30, 50); got[0] < 500 || got[1] < 200 || got[2] < 200 {
		t.Errorf("requests by application: %v, want half in the own zone when there are many at once, and the rest spread", got)
	}
	m.settled()
}

// A new endpoint starts with a small part of the load.
func TestNewEndpointStartsSlowly(t *testing.T) {
	m := newMesh(t, meshOptions{service: ", lb: {policy: weighted_round_robin, slow_start: 10s}"})
	m.consumer.update("compute", m.endpoint(0), m.endpoint(1))
	m.w.Run(time.Millisecond)
	m.consumer.update("compute", m.endpoint(0), m.endpoint(1), m.endpoint(2))
	m.w.Run(time.Millisecond)
	if got := m.spread(4, 100); got[2] > 40 {
		t.Errorf("requests by application: %v, want a twentieth at the new one", got)
	}
	m.w.Run(10 * time.Second)
	m.spread(1, 30)
	if got := m.spread(4, 100); got[2] < 120 || got[2] > 145 {
		t.Errorf("requests by application: %v, want a third at the one that was new", got)
	}
	m.settled()
}

// Replicas of 2, 4 and 6 workers whose sidecars report their queues serve nearly
// as many as when the consumer knows the weights, with as many requests out as
// there are workers.
func TestUnequalReplicasByTheirQueues(t *testing.T) {
	workers := []int{2, 4, 6}
	serve := func(weights ...int) (took time.Duration) {
		m := newMesh(t, meshOptions{service: ", timeout: 15s"})
		var eps []registry.Endpoint
		for i, a := range m.apps {
			a.pool(workers[i], 5*time.Millisecond)
			p := m.nodes[i+1]
			p.crash()
			p.cfg.Services["local"].MaxConcurrency = workers[i]
			p.restart(a)
			eps = append(eps, m.endpoint(i))
			eps[i].Weight = weights[i]
		}
		m.consumer.update("compute", eps...)
		m.w.Run(time.Millisecond)
		m.spread(12, 20)
		began := m.w.Now()
		m.spread(12, 150)
		took = m.w.Now() - began
		m.settled()
		return took
	}
	blind, perfect := serve(1, 1, 1), serve(1, 2, 3)
	t.Logf("as many requests took %v, with perfect weights %v", blind, perfect)
	if float64(perfect) < 0.95*float64(blind) {
		t.Errorf("as many requests took %v, with perfect weights %v", blind, perfect)
	}
}
