package proxy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry"
)

// reload makes the node ready for a configuration; services that are new get the
// mesh's endpoints.
func (n *node) reload(yaml string) {
	n.m.t.Helper()
	cfg, err := config.Parse("new.yaml", []byte(yaml), func(string) (string, bool) { return "", false })
	if err != nil {
		n.m.t.Fatal(err)
	}
	done := false
	finished := func() { done = true }
	g := n.proc.Prepare(cfg, finished)
	n.m.until("the loops to be ready", func() bool { return done })
	var all []registry.Endpoint
	for i := range n.m.apps {
		all = append(all, n.m.endpoint(i))
	}
	for _, name := range g.Fresh() {
		g.Update(registry.NewSnapshot(name, registry.SourceLive, time.Time{}, all))
	}
	n.m.until("the loops to know the endpoints", g.Known)
	done = false
	n.proc.Switch(g, finished)
	n.m.until("the loops to switch", func() bool { return done })
	n.cfg = cfg
}

// reloaded is the configuration of a consumer whose listener leads by routes to
// services of that kind.
func reloaded(m *mesh, routes, services string) string {
	protocol := "link"
	if m.direct {
		protocol = "http"
	}
	return fmt.Sprintf(`
listeners: [{name: egress, address: "127.0.0.1:15001", protocol: http}]
routes: [%s]
services: {%s}`, routes, fmt.Sprintf(services, `discover: static, endpoints: ["10.0.9.9:1"], protocol: `+protocol))
}

// connections is how many connections the node has accepted that are open.
func (n *node) connections() (sum int) {
	for i, w := range n.proc.Workers() {
		n.all[i].Do(func() { sum += w.Report().Stats.Connections })
	}
	return sum
}

// TestReloadUnderLoad changes routes, policies, limits and services while clients
// send. Every request is answered.
func TestReloadUnderLoad(t *testing.T) {
	configurations := [][2]string{
		{`{service: compute}`, `compute: {%s, timeout: 20s, hedge: {mode: on, delay: 2ms}}`},
		{`{service: [{name: compute, weight: 1}, {name: second, weight: 2}]}`, `compute: {%[1]s}, second: {%[1]s, max_pending: 900}`},
		{`{match: {path: /none}, service: compute}, {service: second}`, `compute: {%[1]s}, second: {%[1]s, lb: {policy: random}}`},
		{`{service: second}`, `second: {%s, max_concurrency: 4}`},
		{`{service: second, timeout: 30s}`, `second: {%s, max_concurrency: 9, rate_limit: {rate: 900000}, breaker: {consecutive: 9}}`},
		{`{service: compute}`, `compute: {%s, max_concurrency: auto}`},
	}
	eachTopology(t, meshOptions{loops: 2}, func(t *testing.T, m *mesh) {
		calls := m.crowd(20, 100, 200)
		for i := range 30 {
			m.w.Run(3 * time.Millisecond)
			c := configurations[i%len(configurations)]
			m.consumer.reload(reloaded(m, c[0], c[1]))
		}
		if calls[len(calls)-1].done {
			t.Error("the load has ended before the reloads")
		}
		m.finish(calls...)
		m.ok(calls...)
		m.settled()
		if n := m.consumer.proc.Generation().Number(); n != 31 {
			t.Errorf("generation %d", n)
		}
	})
}

// TestReloadFinishesWithTheOldRoute: what is in flight keeps the timeout and the
// service that it began with; what comes next has the new ones.
func TestReloadFinishesWithTheOldRoute(t *testing.T) {
	for name, services := range map[string]string{
		"the policy changes":       `compute: {%s, timeout: 100ms}`,
		"the service is replaced":  `compute: {%s, timeout: 100ms, max_concurrency: 50}`,
		"there is another service": `other: {%s, timeout: 100ms}`,
	} {
		t.Run(name, func(t *testing.T) {
			eachTopology(t, meshOptions{loops: 2}, func(t *testing.T, m *mesh) {
				for _, a := range m.apps {
					a.delay = func() time.Duration { return 500 * time.Millisecond }
				}
				before := m.burst(10, 100)
				m.w.Run(50 * time.Millisecond)
				m.consumer.reload(reloaded(m, `{service: `+strings.Split(services, ":")[0]+`}`, services))
				after := m.post(10)
				m.do(after)
				m.finish(append(before, after)...)
				m.ok(before...)
				if after.status != 504 {
					t.Errorf("status %d after the reload, want 504 of the new timeout", after.status)
				}
				m.settled()
			})
		})
	}
}

// TestReloadKeepsWhatIsUnchanged: a service that stays keeps its links and the
// latencies of its endpoints, a route its counts; one that goes leaves no link.
func TestReloadKeepsWhatIsUnchanged(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1})
	m.consumer.reload(reloaded(m, `{match: {path: /other}, service: other}, {service: compute}`, `compute: {%[1]s}, other: {%[1]s}`))
	calls := []*call{m.post(10), m.get("/other")}
	m.do(calls...)
	m.finish(calls...)
	m.ok(calls...)
	if n := m.nodes[1].connections(); n != 2 {
		t.Fatalf("%d links, want one of each service", n)
	}
	m.consumer.reload(reloaded(m, `{service: compute, timeout: 9s}`, `compute: {%s, connect_timeout: 1s, max_queue: 7}`))
	m.w.Run(time.Second)
	if n := m.nodes[1].connections(); n != 1 {
		t.Errorf("%d links, want that of the service which is left", n)
	}
	var report proxy.WorkerReport
	m.consumer.loop.Do(func() { report = m.consumer.proc.Workers()[0].Report() })
	if len(report.Services) != 1 || report.Services[0].Endpoints[0].Latency == 0 || report.Services[0].Endpoints[0].Connections != 1 {
		t.Errorf("%+v", report.Services)
	}
	next := m.post(10)
	m.do(next)
	m.finish(next)
	m.ok(next)
	s := m.consumer.stats("compute")
	if s.Requests != 2 || s.Primaries != 2 {
		t.Errorf("%d requests and %d primaries are counted, want 2 of each", s.Requests, s.Primaries)
	}
}

// TestReloadTakesBackEjected: what a configuration says of ejections counts for the
// endpoints that are out already.
func TestReloadTakesBackEjected(t *testing.T) {
	const outlier = `compute: {%%s, outlier: {base: 1h, max_ejected: %v}, lb: {panic: %v}}`
	for name, next := range map[string]string{
		"fewer may be ejected": fmt.Sprintf(outlier, 0, 0.9),
		"half is a panic":      fmt.Sprintf(outlier, 0.5, 0.4),
	} {
		t.Run(name, func(t *testing.T) {
			m := newMesh(t, meshOptions{apps: 2})
			m.consumer.reload(reloaded(m, `{service: compute}`, fmt.Sprintf(outlier, 0.5, 0.9)))
			m.apps[0].status = 500
			m.spread(4, 20)
			m.apps[0].status = 200
			if got := m.spread(4, 20); got[0] != 0 {
				t.Fatalf("requests by application: %v, want none at the first, which is ejected", got)
			}
			m.consumer.reload(reloaded(m, `{service: compute}`, next))
			if got := m.spread(4, 50); got[0] < 20 {
				t.Errorf("requests by application: %v, want many at the first after the reload", got)
			}
			m.settled()
		})
	}
}

// TestReloadGivesFreeSlots: those who wait get the slots that a raised limit adds.
func TestReloadGivesFreeSlots(t *testing.T) {
	m := newMesh(t, meshOptions{direct: true, loops: 2, service: ", max_concurrency: 1"})
	for _, a := range m.apps {
		a.delay = func() time.Duration { return time.Second }
	}
	calls := m.burst(9, 10)
	m.w.Run(100 * time.Millisecond)
	m.consumer.reload(reloaded(m, `{service: compute}`, `compute: {%s, max_concurrency: 9}`))
	m.w.Run(100 * time.Millisecond)
	if used, queued := m.consumer.proc.Slots("compute"); used != 9 || queued != 0 {
		t.Errorf("%d slots in use, %d requests wait", used, queued)
	}
	m.finish(calls...)
	m.ok(calls...)
	m.settled()
}

// TestReloadRemovesListener: connections of a listener that is gone are answered
// once more, with a word to close; those of one that stays are left alone.
func TestReloadRemovesListener(t *testing.T) {
	for _, moved := range []bool{true, false} {
		m := newMesh(t, meshOptions{})
		first, second, third := m.post(10), m.post(10), m.post(10)
		c := m.do(first)
		m.finish(first)
		port := 15001
		if moved {
			port = 15002
		}
		m.consumer.reload(fmt.Sprintf(`
listeners: [{name: egress, address: "127.0.0.1:%d", protocol: http}]
routes: [{service: compute}]
services: {compute: {discover: static, endpoints: ["10.0.9.9:1"]}}`, port))
		m.w.Run(2 * time.Second)
		if c.ended {
			t.Fatalf("moved %t: the idle connection was closed", moved)
		}
		m.clients.Do(func() {
			c.calls = append(c.calls, second, third)
			c.send()
		})
		m.finish(second)
		m.ok(first, second)
		if second.last != moved {
			t.Errorf("moved %t: the answer says close: %t", moved, second.last)
		}
	}
}

// TestRetire: idle connections are answered once more, with a word to close, and links
// are told to go.
func TestRetire(t *testing.T) {
	m := newMesh(t, meshOptions{})
	first, second := m.post(10), m.post(10)
	c := m.do(first)
	m.finish(first)
	m.consumer.proc.Retire()
	m.w.Run(2 * time.Second)
	if c.ended {
		t.Fatal("the idle connection was closed")
	}
	m.clients.Do(func() {
		c.calls = append(c.calls, second)
		c.send()
	})
	m.finish(second)
	m.ok(first, second)
	if !second.last {
		t.Error("the answer does not say close")
	}
	for _, provider := range m.nodes[1:] {
		provider.proc.Retire()
		m.until("the links to go", func() bool { return provider.proc.Links() == 0 })
	}
	m.settled()
}

// TestAcceptedAsItsListenerGoes: a connection that was accepted before a reload, and
// comes to its loop when the listener is gone, is answered once, with a word to close;
// also by a service that is gone too.
func TestAcceptedAsItsListenerGoes(t *testing.T) {
	for name, listener := range map[string]string{"routes": "", "its own service": ", service: compute"} {
		t.Run(name, func(t *testing.T) {
			m := newMesh(t, meshOptions{listener: listener})
			entrance := m.consumer.proc.Generation().Entrance("egress")
			m.consumer.reload(`
listeners: [{name: other, address: "127.0.0.1:15002", protocol: http}]
routes: [{service: next}]
services: {next: {discover: static, endpoints: ["10.0.9.9:1"]}}`)
			const late = "10.0.0.1:16000"
			m.w.Listen(late, m.consumer.loop, func() proxy.Stream { return entrance.Accept(m.consumer.proc.Workers()[0]) })
			one := m.post(10)
			c := m.dial(late)
			c.calls = []*call{one}
			m.until("the end of the connection", func() bool { return c.ended })
			m.ok(one)
			if !one.last {
				t.Error("the answer does not say close")
			}
			m.settled()
		})
	}
}
