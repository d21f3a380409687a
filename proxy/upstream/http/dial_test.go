package http_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/sim"
)

// TestDialQueue checks that many requests at once wait for a connection: for one that another
// request has used, or for a dial.
func TestDialQueue(t *testing.T) {
	const requests, dials = 1000, 128
	t.Run("connections are shared", func(t *testing.T) {
		m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true})
		calls := m.Burst(requests, 10)
		m.Finish(calls...)
		m.OK(calls...)
		m.Settled()
		if d.MostDialling != dials || d.Dials >= requests {
			t.Errorf("%d dials, %d at a time; want less than %d, %d at a time", d.Dials, d.MostDialling, requests, dials)
		}
	})
	t.Run("as many connections as it takes", func(t *testing.T) {
		m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true})
		m.Apps[0].Delay = func() time.Duration { return time.Second }
		calls := m.Burst(requests, 10)
		m.Finish(calls...)
		m.OK(calls...)
		m.Settled()
		if d.MostDialling != dials || d.Dials != requests {
			t.Errorf("%d dials, %d at a time; want %d and %d", d.Dials, d.MostDialling, requests, dials)
		}
	})
	t.Run("connections that serve one request", func(t *testing.T) {
		m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true})
		m.Apps[0].Close = true
		calls := m.Burst(requests, 10)
		m.Finish(calls...)
		m.OK(calls...)
		m.Settled()
		if d.Dials != requests {
			t.Errorf("%d dials for %d requests", d.Dials, requests)
		}
	})
	t.Run("the endpoint refuses", func(t *testing.T) {
		m, _ := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true})
		m.Apps[0].Stop()
		calls := m.Burst(requests, 10)
		m.Finish(calls...)
		if n := proxytest.CountCodes(calls); n["upstream-connect"] != requests {
			t.Errorf("responses %v", n)
		}
		m.Settled()
	})
	t.Run("the endpoint is silent", func(t *testing.T) {
		m, _ := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "retry: {on: []}"})
		m.W.Faults.Blackhole(m.Apps[0].Addr, true)
		calls := m.Burst(requests, 10)
		m.Finish(calls...)
		if n := proxytest.CountCodes(calls); n["upstream-connect"] != requests {
			t.Errorf("responses %v", n)
		}
		for _, c := range calls {
			if c.Took > 2*250*time.Millisecond+10*time.Millisecond {
				t.Fatalf("failed after %v, with a connect_timeout of 250 ms", c.Took)
			}
		}
		m.Settled()
	})
	t.Run("the endpoint takes no more connections", func(t *testing.T) {
		m, _ := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "retry: {on: []}"})
		m.Apps[0].Delay = func() time.Duration { return 10 * time.Millisecond }
		first := m.Burst(10, 10)
		m.Finish(first...)
		m.OK(first...)
		m.W.Faults.Blackhole(m.Apps[0].Addr, true)
		calls := m.Burst(700, 10) // ten connections serve a thousand in a second
		m.Finish(calls...)
		if n := proxytest.CountCodes(calls); n[""]+n["upstream-connect"] != len(calls) || n["upstream-connect"] > 2*dials {
			t.Errorf("responses %v: more have failed than were dialled for", n)
		}
		m.Settled()
	})
	t.Run("a late request to a silent endpoint", func(t *testing.T) {
		m, _ := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "retry: {on: []}"})
		m.W.Faults.Blackhole(m.Apps[0].Addr, true)
		calls, late := m.Burst(dials, 10), m.Post(10)
		m.W.RunUntil(func() bool { return false }, 200*time.Millisecond)
		m.Do(late)
		m.Finish(append(calls, late)...)
		if late.Took < 250*time.Millisecond {
			t.Errorf("failed after %v, with a connect_timeout of 250 ms", late.Took)
		}
		m.Settled()
	})
	t.Run("the deadline passes while it connects", func(t *testing.T) {
		m, _ := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "timeout: 50ms, connect_timeout: 1s"})
		m.W.Net.SetPaths(func(from, to string) sim.Path {
			p := sim.DefaultPaths(from, to)
			p.Latency = 40 * time.Millisecond // a connect takes longer than the timeout of the request
			return p
		})
		first := m.Complete(m.Post(10))
		m.W.Run(time.Second)
		if first.Code != "deadline" || m.Apps[0].Served != 0 || connections(m) != 1 {
			t.Errorf("%s, %d requests are served over %d connections", first.Code, m.Apps[0].Served, connections(m))
		}
		m.Settled()
	})
	t.Run("connections become free meanwhile", func(t *testing.T) {
		m, _ := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "retry: {on: []}"})
		m.Apps[0].Delay = func() time.Duration { return 200 * time.Millisecond }
		first := m.Burst(10, 10)
		m.Finish(first...)
		m.W.Faults.Blackhole(m.Apps[0].Addr, true)
		calls := m.Burst(6*dials, 10)
		m.Finish(calls...)
		var last time.Duration
		for _, c := range calls {
			last = max(last, c.Took)
		}
		if last < time.Second { // of 128 dials after another
			t.Errorf("no request has waited for more than %v", last)
		}
		m.Settled()
	})
	t.Run("the callers disconnect", func(t *testing.T) {
		m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true})
		m.Apps[0].Delay = func() time.Duration { return time.Second }
		var clients []*proxytest.Client
		for range requests {
			clients = append(clients, m.Do(m.Post(10)))
		}
		if !m.W.RunUntil(func() bool { return d.MostDialling == dials && m.Consumer.Proc.Pending() > 2*dials }, time.Second) {
			t.Fatal("no request waits")
		}
		for _, c := range clients {
			c.Leave()
		}
		m.Settled()
	})
	t.Run("the deadline passes", func(t *testing.T) {
		m, _ := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "timeout: 100ms"})
		m.W.Faults.Blackhole(m.Apps[0].Addr, true)
		calls := m.Burst(requests, 10)
		m.Finish(calls...)
		if n := proxytest.CountCodes(calls); n["deadline"] != requests {
			t.Errorf("responses %v", n)
		}
		m.Settled()
	})
	t.Run("the endpoint is removed", func(t *testing.T) {
		m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true})
		calls := m.Burst(requests, 10)
		if !m.W.RunUntil(func() bool { return d.MostDialling == dials && m.Consumer.Proc.Pending() > 2*dials }, time.Second) {
			t.Fatal("no request waits")
		}
		taken := m.Consumer.Proc.Pending()
		m.Consumer.Update("compute")
		m.Finish(calls...)
		if n := proxytest.CountCodes(calls); n[""] < taken || n[""]+n["no-endpoint"] != requests {
			t.Errorf("responses %v, with %d pending when it was removed", n, taken)
		}
		m.Settled()
	})
}

// TestDialLimit checks what happens to a request whose dial the driver refuses. It goes to another
// endpoint for free, or waits for an open connection. Otherwise it fails with a code of its own,
// and the endpoint is not blamed.
func TestDialLimit(t *testing.T) {
	const outlier = "outlier: {consecutive: 1}"
	blameless := func(t *testing.T, m *proxytest.Mesh) {
		t.Helper()
		for _, e := range m.Consumer.Report().Services[0].Endpoints {
			if e.Ejected {
				t.Errorf("%s is ejected", e.Addr)
			}
		}
		if s := m.Consumer.Stats("compute"); s.RetriesPaid+s.RetriesOverBudget > 0 {
			t.Errorf("%d retries paid, %d over budget", s.RetriesPaid, s.RetriesOverBudget)
		}
	}
	for name, direct := range map[string]bool{"http": true, "link": false} {
		t.Run("no connection, "+name, func(t *testing.T) {
			m, d := proxytest.DiallingMesh(t, 1, proxytest.MeshOptions{Apps: 1, OneHop: direct, Service: outlier})
			d.Dialling = 1 // for another endpoint
			calls := m.Burst(10, 10)
			m.Finish(calls...)
			if n := proxytest.CountCodes(calls); n["too-many-dials"] != len(calls) {
				t.Errorf("responses %v", n)
			}
			blameless(t, m)
			m.Settled()
			d.Dialling = 0
			c := m.Post(10)
			m.Do(c)
			m.Finish(c)
			m.OK(c)
		})
	}
	t.Run("an idle connection", func(t *testing.T) {
		m, d := proxytest.DiallingMesh(t, 1, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: outlier})
		first := m.Post(10)
		m.Do(first)
		m.Finish(first)
		d.Dialling = 1
		calls := m.Burst(10, 10)
		m.Finish(calls...)
		m.OK(calls...)
		if d.Dials != 1 || d.Refused == 0 || d.Refused > 20 {
			t.Errorf("%d connections, %d dials refused", d.Dials, d.Refused)
		}
		blameless(t, m)
		m.Settled()
	})
	t.Run("a connection became free meanwhile", func(t *testing.T) {
		m, d := proxytest.DiallingMesh(t, 1, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: outlier})
		m.Apps[0].Delay = func() time.Duration { return 50 * time.Millisecond }
		first, second := m.Post(10), m.Post(10)
		m.Do(first)
		m.RunUntil("a connection", func() bool { return d.Dials == 1 && d.Dialling == 0 })
		d.Dialling, d.RefuseAfter = 1, 100*time.Millisecond
		m.Do(second)
		m.Finish(first, second)
		m.OK(first, second)
		if second.Took > time.Second {
			t.Errorf("the second request took %v", second.Took)
		}
		blameless(t, m)
		m.Settled()
	})
	t.Run("the open connection closes", func(t *testing.T) {
		m, d := proxytest.DiallingMesh(t, 1, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: outlier})
		m.Apps[0].Close = true
		m.Apps[0].Delay = func() time.Duration { return 50 * time.Millisecond }
		first, second := m.Post(10), m.Post(10)
		m.Do(first)
		m.RunUntil("a connection", func() bool { return d.Dials == 1 && d.Dialling == 0 })
		d.Dialling = 1
		m.Do(second)
		m.RunUntil("the other to wait", func() bool { return d.Refused == 1 })
		d.Dialling = 0
		m.Finish(first, second)
		m.OK(first, second)
		blameless(t, m)
		m.Settled()
	})
	t.Run("another endpoint", func(t *testing.T) {
		m, d := proxytest.DiallingMesh(t, 1, proxytest.MeshOptions{Apps: 2, OneHop: true, Service: proxytest.Fields(outlier, "lb: {policy: weighted_round_robin, slow_start: 0s}")})
		m.Consumer.Update("compute", m.Endpoint(1))
		first := m.Post(10)
		m.Do(first)
		m.Finish(first)
		m.Consumer.Update("compute", m.Endpoint(0), m.Endpoint(1))
		d.Dialling = 1
		for range 10 {
			c := m.Post(10)
			m.Do(c)
			m.Finish(c)
			m.OK(c)
		}
		if d.Refused == 0 {
			t.Error("no dial was refused")
		}
		blameless(t, m)
		m.Settled()
	})
}
