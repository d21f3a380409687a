package proxy_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/registry"
)

// parse returns a valid configuration.
func parse(t *testing.T, yaml string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("test.yaml", []byte(yaml), nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestGenerations: a configuration is in use from the switch on. Its new services are known once all loops have their
// endpoints, and the services that it lacks are drained once their requests have ended.
func TestGenerations(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{OneHop: true, Loops: 2, Apps: 1})
	p := m.Consumer.Proc
	first := p.Generation()
	if first.Number() != 1 || first.Config() != m.Consumer.Cfg || p.Config() != first.Config() || len(p.Workers()) != 2 {
		t.Errorf("generation %d", first.Number())
	}
	m.Apps.Slow(time.Second)
	call := m.Post(10)
	m.Do(call)
	m.W.Run(100 * time.Millisecond)

	cfg := parse(t, proxytest.ReloadYAML(m, "{service: b}", "b: {%[1]s}, a: {%[1]s}"))
	done := 0
	g := p.Prepare(cfg, func() { done++ })
	m.RunUntil("the loops to be ready", func() bool { return done == 1 })
	if added := g.Added(); !slices.Equal(added, []string{"a", "b"}) || g.Known() || p.Generation() != first {
		t.Errorf("the services %v are new, known: %t", added, g.Known())
	}
	for i, name := range g.Added() {
		g.Update(registry.NewSnapshot(name, registry.SourceLive, time.Time{}, []registry.Endpoint{m.Endpoint(0)}))
		m.W.Run(10 * time.Millisecond)
		if g.Known() != (i == 1) {
			t.Errorf("after the endpoints of %s all are known: %t", name, g.Known())
		}
	}
	g.Update(registry.NewSnapshot("none", registry.SourceLive, time.Time{}, nil)) // of a service that it does not have
	for _, w := range p.Workers() {
		if w.Applied("a") || !w.Applied("compute") || w.Applied("none") {
			t.Error("a loop has applied the endpoints of a service that it does not use yet")
		}
	}
	p.Switch(g, func() { done++ })
	m.RunUntil("the loops to switch", func() bool { return done == 2 })
	if p.Generation() != g || p.Config() != cfg || g.Number() != 2 || g.Drained() || p.Pending() != 1 || p.ServicePending("compute") != 0 {
		t.Errorf("generation %d, drained %t, %d pending", g.Number(), g.Drained(), p.Pending())
	}
	for i, w := range p.Workers() {
		m.Consumer.Loops[i].Do(func() {
			if r := w.Report(stats.Totals); r.Generation != 2 || len(r.Services) != 2 || r.Services[0].Name != "a" || !w.Applied("a") || w.Applied("compute") {
				t.Errorf("loop %d: generation %d, %d services", i, r.Generation, len(r.Services))
			}
		})
	}
	done = 0
	again := p.Prepare(cfg, func() { done++ }) // the request of compute is still in flight
	if p.Switch(again, func() { done++ }); again.Drained() {
		t.Error("a service that an earlier generation has removed is forgotten")
	}
	m.OK(call)
	m.RunUntil("the loops", func() bool { return done == 2 })
	if !again.Drained() || p.Pending() != 0 {
		t.Errorf("drained %t, %d pending", again.Drained(), p.Pending())
	}
	if len(again.Added()) != 0 || !again.Known() {
		t.Errorf("the same configuration has the new services %v", again.Added())
	}
	keys := again.Keys()
	if len(keys) != 2 {
		t.Errorf("keys %v", keys)
	}
	for key, name := range keys {
		if again.ServiceOf(key) != name || key == "" {
			t.Errorf("the key %q is of %s and of %q", key, name, again.ServiceOf(key))
		}
	}
	if name := again.ServiceOf("none"); name != "" {
		t.Errorf("a key of no service is of %q", name)
	}
}

// TestRatesOfReload: a reload that does not change a rate limit keeps what it has counted.
func TestRatesOfReload(t *testing.T) {
	yaml := func(listener, route string) string {
		return `
listeners: [{name: egress, address: "127.0.0.1:15001", protocol: http, rate_limit: {` + listener + `}}]
routes: [{match: {path: /limited}, service: compute, rate_limit: {` + route + `}}, {service: compute}]
services: {compute: {discover: static, endpoints: ["10.0.9.9:1"], protocol: http}}`
	}
	m := proxytest.NewMesh(t, proxytest.MeshOptions{OneHop: true, Apps: 1})
	client := m.Dial(proxytest.Egress)
	get := func(path string, want int) {
		t.Helper()
		c := m.Get(path)
		client.Calls = append(client.Calls, c)
		m.Clients.Do(client.Send)
		if m.Finish(c); c.Status != want {
			t.Errorf("%s: status %d %s, want %d", path, c.Status, c.Code, want)
		}
	}
	const few, other, none = "rate: 1, burst: 1", "rate: 2, burst: 1", ""
	m.Consumer.Reload(yaml(none, few))
	m.RunUntil("the connection", func() bool { return client.Conn != nil })
	get("/limited", 200)
	get("/limited", 429)
	m.Consumer.Reload(yaml("rate: 100", few))
	get("/limited", 429)
	get("/other", 200)
	m.Consumer.Reload(yaml("rate: 100", other))
	get("/limited", 200)
	get("/limited", 429)
	m.Consumer.Reload(yaml("rate: 100", none))
	get("/limited", 200)
	m.Consumer.Reload(yaml(few, none))
	get("/other", 200)
	get("/other", 429)
	m.Consumer.Reload(yaml(few, few))
	get("/other", 429)
	m.Consumer.Reload(yaml(other, few))
	get("/other", 200)
	get("/other", 429)
	m.Settled()
}

// TestRulesOfGeneration: requests and streams have the rules of their listener, route and service. A generation guards
// requests if a route of HTTP has rules that are enforced.
func TestRulesOfGeneration(t *testing.T) {
	const rules = "allow: {rules: [{method: [GET]}]}"
	of := func(listener, route, service string) *proxy.Generation {
		return proxy.NewProcess(parse(t, `
listeners: [{name: a, address: "127.0.0.1:15001", protocol: http, `+listener+`}]
routes: [{match: {path: /a}, service: s, `+route+`}, {service: u}]
services: {s: {discover: static, endpoints: ["10.0.9.9:1"], protocol: http, `+service+`}, u: {discover: static, endpoints: ["10.0.9.9:1"], protocol: http}}`), 1).Generation()
	}
	for _, c := range []struct {
		listener, route, service string
		guarded                  bool
		stream                   string // which rules a stream has: of the listener, the service, the route
	}{
		{"", "", "", false, "false false false"},
		{rules, "", "", false, "true false false"},
		{"", rules, "", true, "false false false"},
		{"", "", rules, true, "false true false"},
		{"", strings.Replace(rules, "{rules", "{enforce: false, rules", 1), "", false, "false false false"},
		{rules, rules, rules, true, "true true false"},
	} {
		g := of(c.listener, c.route, c.service)
		r := g.RulesOfStream("a", "s")
		if stream := fmt.Sprint(r.Listener != nil, " ", r.Service != nil, " ", r.Route != nil); g.Guarded() != c.guarded || stream != c.stream {
			t.Errorf("%q %q %q: guarded %t, a stream has the rules %s", c.listener, c.route, c.service, g.Guarded(), stream)
		}
		if r := g.RulesOfStream("b", "u"); r.Listener != nil || r.Service != nil {
			t.Errorf("a stream from another listener to another service has rules: %+v", r)
		}
	}
}

// TestListeners: which clients may use a listener, and when it closes.
func TestListeners(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	egress, ingress := m.Consumer.Proc.Generation().Listener("egress"), m.Nodes[1].Proc.Generation().Listener("ingress")
	if egress.DrainLast() || !ingress.DrainLast() {
		t.Error("a listener of links closes last, since other sidecars fetch responses there")
	}
	if got := string(egress.PlaintextResponse()); !strings.HasPrefix(got, "HTTP/1.1 400 ") || ingress.PlaintextResponse() != nil {
		t.Errorf("a client that does not use TLS gets %q", got)
	}
	for protocol, want := range map[string]bool{"http": true, "link": false, "dubbo": false, "tcp": false, "none": false} {
		if proxy.TakesHTTP(protocol) != want {
			t.Errorf("a client of HTTP/1.1 can use %s: %t", protocol, !want)
		}
	}
	call := m.Post(10)
	m.Do(call)
	m.OK(call)
	if n := ingress.Links(); n != 1 || m.Nodes[1].Proc.Links() != 1 || egress.Links() != 0 || m.Consumer.Proc.Links() != 0 {
		t.Errorf("%d links are accepted by the provider, %d by the consumer", n, egress.Links())
	}
}

// TestReportOfWorker: a report has the counts at its time, and shares no memory with the loop.
func TestReportOfWorker(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
	w := m.Consumer.Proc.Workers()[0]
	client := shard.Client{Listener: "egress", Addr: "10.9.9.9:1"}
	report := func() (r stats.WorkerReport) {
		m.W.Run(time.Millisecond)
		m.Consumer.Loop.Do(func() { r = w.Report(stats.Counters) })
		return r
	}
	w.Refused(client, fault.NoRoute, "connection refused: a test", "error", "of the test")
	before := report()
	for range 3 {
		w.Refused(client, fault.NoRoute, "connection refused: a test", "error", "of the test")
	}
	w.RefusedProxy("egress", "10.9.9.9:1", errors.New("no header"))
	w.Passed(client, nil)
	w.Passed(client, fault.NoEndpoint)
	w.Failed(fault.StreamLimit)
	w.From(client).Failed(fault.DialLimit)
	after := report()
	key := func(listener string, f *fault.Failure) stats.ErrorKey {
		return stats.ErrorKey{Listener: listener, Code: f.Code}
	}
	if b := before.Stats; b.Errors[key("egress", fault.NoRoute)] != 1 || len(b.Errors) != 1 || b.Unrouted["egress"] != 1 || b.Handoffs[stats.HandoffPass] != 0 {
		t.Errorf("before: %+v, %v", b.Errors, b.Unrouted)
	}
	a := after.Stats
	for k, n := range map[stats.ErrorKey]uint64{
		key("egress", fault.NoRoute): 4, key("egress", fault.BadProxyHeader): 1, key("egress", fault.NoEndpoint): 1, key("", fault.StreamLimit): 1,
		key("egress", fault.DialLimit): 1,
	} {
		if a.Errors[k] != n {
			t.Errorf("%d errors of %+v, want %d", a.Errors[k], k, n)
		}
	}
	if a.Handoffs[stats.HandoffPass] != 1 || len(a.Errors) != 5 {
		t.Errorf("%d connections were passed on; %v", a.Handoffs[stats.HandoffPass], a.Errors)
	}
	log := m.Consumer.LogText.String()
	if strings.Count(log, "connection refused: a test") != 1 || !strings.Contains(log, `listener=egress code=no-route peer=10.9.9.9:1 error="of the test"`) ||
		!strings.Contains(log, "no header of the PROXY protocol") {
		t.Errorf("the log says\n%s", log)
	}
	if s := m.Consumer.Proc.Snapshot("none"); s != nil || m.Consumer.Proc.SlotLimit("none") != 0 || m.Consumer.Proc.ServicePending("none") != 0 {
		t.Error("there is a service that nobody has configured")
	}
	if s := m.Consumer.Proc.Snapshot("compute"); s == nil || len(s.Endpoints) != 1 {
		t.Errorf("the snapshot of a service: %+v", s)
	}
}

// TestMillisecondsOfService: a service has milliseconds of its own, and a name of none has empty ones.
func TestMillisecondsOfService(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
	w := m.Consumer.Proc.Workers()[0]
	arrivals := func(service string) (n int) {
		m.W.Run(2 * time.Millisecond)
		m.Consumer.Loop.Do(func() {
			of, ok := w.Milliseconds(service, 0)
			if !ok || len(of.List) == 0 {
				t.Errorf("the milliseconds of %q: %d, %t", service, len(of.List), ok)
			}
			for _, ms := range of.List {
				n += int(ms.Arrivals)
			}
		})
		return n
	}
	first := m.Post(10)
	m.Do(first)
	m.OK(first)
	if n := arrivals("compute"); n != 0 {
		t.Errorf("%d requests before somebody asked", n)
	}
	second := m.Post(10)
	m.Do(second)
	m.OK(second)
	if own, all, none := arrivals("compute"), arrivals(""), arrivals("none"); own != 1 || all != 2 || none != 0 {
		t.Errorf("%d requests of the service, %d of all, %d of none", own, all, none)
	}
}

// TestStreamsOfRemovedService: a stream that has left its loop just before a reload opens at the service that the reload has
// removed. After another one there is no such service.
func TestStreamsOfRemovedService(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
	client := shard.Client{Listener: "egress", Addr: "10.9.9.9:1"}
	other := proxytest.ReloadYAML(m, "{service: other}", "other: {%s}")
	for i, want := range []*fault.Failure{nil, nil, fault.NoEndpoint} {
		got := m.Consumer.OpenFor(client)
		if got.Failure != want || (got.Target.Addr == m.Endpoint(0).Addr) != (want == nil) {
			t.Errorf("after %d reloads: %v at %q, want %v", i, got.Failure, got.Target.Addr, want)
		}
		if got.Stream != nil {
			got.Stream.Close(false, 0, 0)
		}
		m.Consumer.Reload(other)
	}
	done := false
	m.Consumer.Proc.Workers()[0].Open("none", func(s *race.Stream, _ race.Target, f *fault.Failure) {
		done = s == nil && f == fault.NoEndpoint
	})
	m.RunUntil("the failure", func() bool { return done })
	if errs := m.Consumer.Report().Stats.Errors; errs[stats.ErrorKey{Listener: "egress", Code: "no-endpoint"}] != 1 || errs[stats.ErrorKey{Code: "no-endpoint"}] != 1 {
		t.Errorf("errors %v", errs)
	}
}

// TestStreamRecords: streams of bytes have a record if there is an access log.
func TestStreamRecords(t *testing.T) {
	for limits, want := range map[string]bool{"": false, proxytest.LogAll: true} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: limits})
		if r := m.Consumer.Proc.Workers()[0].StreamRecord("egress", "10.9.9.9:1", "compute"); (r != nil) != want {
			t.Errorf("%q: a record %t", limits, r != nil)
		}
	}
}

// TestOverloadRefusesBatch: while the process runs out of a resource, batch requests are refused, and others are not.
func TestOverloadRefusesBatch(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
	overloaded := true
	m.Consumer.Proc.SetOverload(func() bool { return overloaded })
	for _, c := range []struct {
		header     string
		overloaded bool
		want       int
	}{{"x-remora-priority: batch", true, 503}, {"x-remora-priority: online", true, 200}, {"x-remora-priority: batch", false, 200}} {
		overloaded = c.overloaded
		if got := m.Complete(m.Post(10, c.header)); got.Status != c.want {
			t.Errorf("%s, overloaded %t: status %d %s", c.header, c.overloaded, got.Status, got.Code)
		}
	}
}

// TestBudgetOfStreams: what streams hold counts for limits.buffered, which no new stream may exceed.
func TestBudgetOfStreams(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: "limits: {message: 1MiB, buffered: 1MiB}"})
	p := m.Consumer.Proc
	before := p.Buffered()
	for _, c := range []struct {
		more int
		full bool
	}{{1000, false}, {1 << 20, true}, {-1000, true}, {-1, false}, {1, true}, {-1 << 20, false}} {
		if p.Charge(c.more); p.Full() != c.full {
			t.Errorf("%d bytes: full %t", p.Buffered(), p.Full())
		}
	}
	if n := p.Buffered(); n != before {
		t.Errorf("%d bytes are left", n-before)
	}
}

// TestOldGenerationsAreReleased: a configuration that is out of use for long takes no memory.
func TestOldGenerationsAreReleased(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
	first := weak.Make(m.Consumer.Proc.Generation())
	for i := range 3 {
		m.Consumer.Reload(proxytest.ReloadYAML(m, "{service: compute}", fmt.Sprintf("compute: {%%s, max_queue: %d}", i+1)))
	}
	runtime.GC()
	if first.Value() != nil {
		t.Error("the first generation is in memory after three more")
	}
	call := m.Post(10)
	m.Do(call)
	m.OK(call)
}

// TestFlushAccessLog: lines that the loops still have at the end of the process are passed on.
func TestFlushAccessLog(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: proxytest.LogAll})
	call := m.Post(10)
	m.Do(call)
	m.OK(call)
	if lines := m.Consumer.AccessLines(); len(lines) != 1 || lines[0].Status != 200 {
		t.Errorf("the log has %+v", lines)
	}
}

// TestKeptBuffers: loops keep buffers of long messages, and the process says how many bytes these have.
func TestKeptBuffers(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
	if n := m.Consumer.Proc.Kept(); n != 0 {
		t.Errorf("%d bytes before any message", n)
	}
	call := m.Post(proxytest.MaxMessage)
	m.Do(call)
	m.OK(call)
	if n := m.Consumer.Proc.Kept(); n < proxytest.MaxMessage {
		t.Errorf("%d bytes are kept after a message of %d", n, proxytest.MaxMessage)
	}
}
