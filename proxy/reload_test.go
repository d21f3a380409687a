package proxy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestReloadUnderLoad changes routes, policies, limits and services while clients
// send. Every request gets a response.
func TestReloadUnderLoad(t *testing.T) {
	configurations := [][2]string{
		{`{service: compute}`, `compute: {%s, timeout: 20s, hedge: {mode: on, delay: 2ms}}`},
		{`{service: [{name: compute, weight: 1}, {name: second, weight: 2}]}`, `compute: {%[1]s}, second: {%[1]s, max_pending: 900}`},
		{`{match: {path: /none}, service: compute}, {service: second}`, `compute: {%[1]s}, second: {%[1]s, lb: {policy: random}}`},
		{`{service: second}`, `second: {%s, max_concurrency: 4}`},
		{`{service: second, timeout: 30s}`, `second: {%s, max_concurrency: 9, rate_limit: {rate: 900000}, breaker: {consecutive: 9}}`},
		{`{service: compute}`, `compute: {%s, max_concurrency: auto}`},
	}
	proxytest.EachTopology(t, proxytest.MeshOptions{Loops: 2}, func(t *testing.T, m *proxytest.Mesh) {
		calls := m.Crowd(20, 100, 200)
		for i := range 30 {
			m.W.Run(3 * time.Millisecond)
			c := configurations[i%len(configurations)]
			m.Consumer.Reload(proxytest.ReloadYAML(m, c[0], c[1]))
		}
		if calls[len(calls)-1].Done {
			t.Error("the load has ended before the reloads")
		}
		m.OK(calls...)
		m.Settled()
		if n := m.Consumer.Proc.Generation().Number(); n != 31 {
			t.Errorf("generation %d", n)
		}
	})
}

// TestReloadKeepsRoutesInFlight: requests in flight keep the timeout and the service with which
// they began; later requests have the new ones.
func TestReloadKeepsRoutesInFlight(t *testing.T) {
	for name, services := range map[string]string{
		"the policy changes":       `compute: {%s, timeout: 100ms}`,
		"the service is replaced":  `compute: {%s, timeout: 100ms, max_concurrency: 50}`,
		"there is another service": `other: {%s, timeout: 100ms}`,
	} {
		t.Run(name, func(t *testing.T) {
			proxytest.EachTopology(t, proxytest.MeshOptions{Loops: 2}, func(t *testing.T, m *proxytest.Mesh) {
				m.Apps.Slow(500 * time.Millisecond)
				before := m.Burst(10, 100)
				m.W.Run(50 * time.Millisecond)
				m.Consumer.Reload(proxytest.ReloadYAML(m, `{service: `+strings.Split(services, ":")[0]+`}`, services))
				after := m.Post(10)
				m.Do(after)
				m.Finish(append(before, after)...)
				m.OK(before...)
				if after.Status != 504 {
					t.Errorf("status %d after the reload, want 504 of the new timeout", after.Status)
				}
				m.Settled()
			})
		})
	}
}

// TestReloadKeepsWhatIsUnchanged: a service that is not changed keeps its links and the
// latencies of its endpoints, and a route its counts. A removed service leaves no link.
func TestReloadKeepsWhatIsUnchanged(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	m.Consumer.Reload(proxytest.ReloadYAML(m, `{match: {path: /other}, service: other}, {service: compute}`, `compute: {%[1]s}, other: {%[1]s}`))
	calls := []*proxytest.Call{m.Post(10), m.Get("/other")}
	m.Do(calls...)
	m.OK(calls...)
	if n := m.Nodes[1].Connections(); n != 2 {
		t.Fatalf("%d links, want one of each service", n)
	}
	m.Consumer.Reload(proxytest.ReloadYAML(m, `{service: compute, timeout: 9s}`, `compute: {%s, connect_timeout: 1s, max_queue: 7}`))
	m.W.Run(time.Second)
	if n := m.Nodes[1].Connections(); n != 1 {
		t.Errorf("%d links, want only that of the service which remains", n)
	}
	var report stats.WorkerReport
	m.Consumer.Loop.Do(func() { report = m.Consumer.Proc.Workers()[0].Report(stats.Forecasts) })
	if len(report.Services) != 1 || report.Services[0].Endpoints[0].Latency == 0 || report.Services[0].Endpoints[0].Connections != 1 {
		t.Errorf("%+v", report.Services)
	}
	next := m.Post(10)
	m.Do(next)
	m.OK(next)
	s := m.Consumer.Stats("compute")
	if s.Requests != 2 || s.Primaries != 2 {
		t.Errorf("%d requests and %d primaries are counted, want 2 of each", s.Requests, s.Primaries)
	}
}

// TestReloadEjectedEndpoints: new settings of ejections apply to endpoints that are ejected
// already.
func TestReloadEjectedEndpoints(t *testing.T) {
	const outlier = `compute: {%%s, outlier: {base: 1h, max_ejected: %v}, lb: {panic: %v}}`
	for name, next := range map[string]string{
		"fewer may be ejected": fmt.Sprintf(outlier, 0, 0.9),
		"half is a panic":      fmt.Sprintf(outlier, 0.5, 0.4),
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2})
			m.Consumer.Reload(proxytest.ReloadYAML(m, `{service: compute}`, fmt.Sprintf(outlier, 0.5, 0.9)))
			m.Apps[0].Status = 500
			m.CountServed(4, 20)
			m.Apps[0].Status = 200
			if got := m.CountServed(4, 20); got[0] != 0 {
				t.Fatalf("requests by application: %v, want none at the first, which is ejected", got)
			}
			m.Consumer.Reload(proxytest.ReloadYAML(m, `{service: compute}`, next))
			if got := m.CountServed(4, 50); got[0] < 20 {
				t.Errorf("requests by application: %v, want many at the first after the reload", got)
			}
			m.Settled()
		})
	}
}

// TestReloadRaisesSlotLimit: queued requests get the slots that a raised limit adds.
func TestReloadRaisesSlotLimit(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{OneHop: true, Loops: 2, Service: "max_concurrency: 1"})
	m.Apps.Slow(time.Second)
	calls := m.Burst(9, 10)
	m.W.Run(100 * time.Millisecond)
	m.Consumer.Reload(proxytest.ReloadYAML(m, `{service: compute}`, `compute: {%s, max_concurrency: 9}`))
	m.W.Run(100 * time.Millisecond)
	if used, queued := m.Consumer.Proc.Slots("compute"); used != 9 || queued != 0 {
		t.Errorf("%d slots in use, %d requests wait", used, queued)
	}
	m.OK(calls...)
	m.Settled()
}

// TestReloadRemovesListener: connections of a removed listener get one more response, with
// "Connection: close". Those of other listeners stay open.
func TestReloadRemovesListener(t *testing.T) {
	for _, moved := range []bool{true, false} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{})
		first, second, third := m.Post(10), m.Post(10), m.Post(10)
		c := m.Do(first)
		m.Finish(first)
		port := 15001
		if moved {
			port = 15002
		}
		m.Consumer.Reload(fmt.Sprintf(`
listeners: [{name: egress, address: "127.0.0.1:%d", protocol: http}]
routes: [{service: compute}]
services: {compute: {discover: static, endpoints: ["10.0.9.9:1"], protocol: link}}`, port))
		m.W.Run(2 * time.Second)
		if c.Ended {
			t.Fatalf("moved %t: the idle connection was closed", moved)
		}
		m.Clients.Do(func() {
			c.Calls = append(c.Calls, second, third)
			c.Send()
		})
		m.Finish(second)
		m.OK(first, second)
		if second.Last != moved {
			t.Errorf("moved %t: the response has Connection: close: %t", moved, second.Last)
		}
	}
}

// TestRetire: idle connections get one more response, with "Connection: close", and links get
// a GOAWAY.
func TestRetire(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{})
	first, second := m.Post(10), m.Post(10)
	c := m.Do(first)
	m.Finish(first)
	m.Consumer.Proc.Retire()
	m.W.Run(2 * time.Second)
	if c.Ended {
		t.Fatal("the idle connection was closed")
	}
	m.Clients.Do(func() {
		c.Calls = append(c.Calls, second)
		c.Send()
	})
	m.Finish(second)
	m.OK(first, second)
	if !second.Last {
		t.Error("the response has no Connection: close")
	}
	for _, provider := range m.Nodes[1:] {
		provider.Proc.Retire()
		m.RunUntil("the links to go", func() bool { return provider.Proc.Links() == 0 })
	}
	m.Settled()
}

// TestReloadDuringAccept: a connection that was accepted before a reload reaches its loop
// after the listener is removed. It gets one response, with "Connection: close", even if
// the service is removed, too.
func TestReloadDuringAccept(t *testing.T) {
	for name, listener := range map[string]string{"routes": "", "its own service": "service: compute"} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Listener: listener})
			listener := m.Consumer.Proc.Generation().Listener("egress")
			m.Consumer.Reload(`
listeners: [{name: other, address: "127.0.0.1:15002", protocol: http}]
routes: [{service: next}]
services: {next: {discover: static, endpoints: ["10.0.9.9:1"], protocol: link}}`)
			const late = "10.0.0.1:16000"
			m.W.Net.Listen(late, m.Consumer.Loop, func() loop.Receiver { return listener.Accept(m.Consumer.Proc.Workers()[0]) })
			one := m.Post(10)
			c := m.Dial(late)
			c.Calls = []*proxytest.Call{one}
			m.RunUntil("the end of the connection", func() bool { return c.Ended })
			m.OK(one)
			if !one.Last {
				t.Error("the response has no Connection: close")
			}
			m.Settled()
		})
	}
}
