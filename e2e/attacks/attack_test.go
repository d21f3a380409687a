package attacks

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/racetest"
	openloop "github.com/remora-proxy/remora/lab/load"
	"github.com/remora-proxy/remora/lab/replica"
)

// The limits of the attacked sidecars.
const (
	attackMessage     = 1 << 20  // limits.message
	attackBuffered    = 32 << 20 // limits.buffered
	attackConnections = 1000     // limits.connections
	attackHeader      = 64 << 10 // limits.header
)

// attackLimits are the limits of the sidecars that holders attack, see docs/settings.md.
type attackLimits struct{ message, buffered, connections int }

// usualLimits are those of most attacked sidecars.
var usualLimits = attackLimits{message: attackMessage, buffered: attackBuffered, connections: attackConnections}

// memoryBound is the bound of resident memory that docs/operations.md states for limits.buffered.
func memoryBound(buffered int) int { return 11*(128<<20+5*buffered/2)/10 + 24<<20 }

// attackTime is how long each attack lasts at least. scripts/nightly.sh sets
// REMORA_ATTACK to a longer time.
func attackTime(t *testing.T) time.Duration {
	d, err := time.ParseDuration(cmp.Or(os.Getenv("REMORA_ATTACK"), "600ms"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// attack is one way to misuse a sidecar.
type attack struct {
	name  string
	run   func(ctx context.Context, m *attackMesh) // returns when ctx ends
	meets string                                   // the series of the limit that stops it; "" means no particular one
	by    int                                      // how much the series rises at least, with load until then; 0 means 1

	mayRefuse bool // it takes the reserve of max_pending, too: then the load may get 503
}

// TestAttacks misuses two sidecars in every way that limits and timeouts are for.
// Clients attack the consumer's HTTP listener, peers attack the provider's link
// listener, and an endpoint attacks the consumer that dialled it. A well-behaved load
// runs through both sidecars meanwhile. None of its requests may fail, memory must
// stay below its bound, and nothing may be left after an attack.
func TestAttacks(t *testing.T) {
	m := newAttackMesh(t, usualLimits, nil)
	before := m.levels()
	for _, group := range []struct {
		target  *harness.Process
		attacks []attack
	}{
		{m.consumer, []attack{{name: "none", run: func(ctx context.Context, _ *attackMesh) { <-ctx.Done() }}}},
		{m.consumer, httpAttacks}, {m.consumer, streamAttacks}, {m.provider, linkAttacks},
		{m.provider, linkStreamAttacks}, {m.consumer, endpointAttacks},
	} {
		for _, a := range group.attacks {
			t.Run(a.name, func(t *testing.T) { m.attack(t, &a, group.target, before) })
		}
	}
}

// attackMesh is a consumer's sidecar and a provider's in front of a replica.
type attackMesh struct {
	http, link, calls  string           // the addresses of their listeners; no calls without a Dubbo listener
	endpoint           *net.TCPListener // of the endpoint that attacks
	consumer, provider *harness.Process
	memory             int      // bound of the resident bytes of each sidecar
	wanted             []string // the paths of the well-behaved load
}

// newAttackMesh starts the sidecars. more, if set, returns further routes and services of the consumer, and a
// listener of calls.
func newAttackMesh(t *testing.T, limits attackLimits, more func(t *testing.T, calls string) (routes, services, listener string)) *attackMesh {
	app, err := replica.Start(replica.Options{Mode: replica.Stall, Median: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = app.Close(context.Background()) })
	endpoint, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endpoint.Close() })
	m := &attackMesh{
		link: harness.FreeAddrs(t, 1)[0], endpoint: endpoint, memory: memoryBound(limits.buffered), wanted: []string{"/compute"},
	}
	common := fmt.Sprintf(`
loops: 2
limits: {message: %d, header: %d, buffered: %d, connections: %d, streams: %d}
timeouts: {header: 4s, body: 8s, write: 3s, idle: 15s}
`, limits.message, attackHeader, limits.buffered, limits.connections, attackStreams)
	m.provider = harness.Start(t, common+fmt.Sprintf(`
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services:
  local: {discover: static, endpoints: [%q], protocol: http, max_concurrency: 128, timeout: 50s, connect_timeout: 15s, idle_timeout: 200ms}`,
		m.link, app.Addr()))
	m.provider.Ready() // before the next address is chosen
	consumer := harness.FreeAddrs(t, 2)
	m.http, m.calls = consumer[0], consumer[1]
	var routes, services, listener string
	if more != nil {
		routes, services, listener = more(t, m.calls)
	}
	m.consumer = harness.Start(t, common+fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http}, %s]
routes:
  - {match: {path: /evil}, service: evil}%s
  - {service: compute}
services:%s
  compute: {discover: static, endpoints: [%q], protocol: link, timeout: 50s, connect_timeout: 15s}
  evil: {discover: static, endpoints: [%q], protocol: link, timeout: 1s}`, m.http, listener, routes, services, m.link, endpoint.Addr()))
	m.consumer.Ready()
	m.load(t, 100*time.Millisecond, false) // fills free lists and pools
	m.provider.AwaitUnpooled()
	return m
}

func (m *attackMesh) sidecars() []*harness.Process { return []*harness.Process{m.consumer, m.provider} }

func (m *attackMesh) levels() (all []harness.Level) {
	for _, p := range m.sidecars() {
		all = append(all, p.Level())
	}
	return all
}

// load runs the well-behaved load, of which no request may fail. If mayRefuse, some may get 503.
func (m *attackMesh) load(t *testing.T, d time.Duration, mayRefuse bool) {
	var targets []string
	for _, path := range m.wanted {
		targets = append(targets, "http://"+m.http+path)
	}
	r, err := openloop.Run(t.Context(), openloop.Options{
		Targets: targets, Rate: 200, Duration: d, Timeout: harness.Patience,
		Connections: attackLoad, MaxConnections: attackLoad,
		NoNonce: len(m.wanted) > 1, // responses of caches have another request's
	})
	if err != nil {
		t.Error(err)
		return
	}
	c := r.Counts
	served := c.Statuses[200]
	if mayRefuse {
		served += c.Statuses[503]
	}
	if served != c.Requests || c.Statuses[200] == 0 {
		t.Errorf("well-behaved requests failed: %+v", c)
		for _, s := range m.sidecars() {
			_, metrics := s.Get("/metrics")
			t.Log(refusals.FindAllString(metrics, -1))
		}
	}
	t.Logf("%d well-behaved requests, P50 %v, P99 %v, max %v", c.Requests, r.Quantile(0.5), r.Quantile(0.99), r.Max())
}

var refusals = regexp.MustCompile(`(?m)^remora_(?:errors|shed_connections|shed_idle_connections|write_timeouts|reactor_refused|service_errors)_total.*`)

// attackLoad is how many connections the load has.
const attackLoad = 32

// attack runs one attack on sidecar p. It lasts until its limit has stopped it and the
// load has ended.
func (m *attackMesh) attack(t *testing.T, a *attack, p *harness.Process, before []harness.Level) {
	for _, s := range m.sidecars() {
		forgetPeak(t, s)
	}
	met := p.Metric(a.meets)
	enough, stopLoad := context.WithCancel(t.Context())
	loaded := make(chan struct{})
	defer func() { stopLoad(); <-loaded }()
	go func() {
		defer close(loaded)
		for again := true; again; again = a.by > 0 && enough.Err() == nil {
			m.load(t, attackTime(t), a.mayRefuse)
		}
	}()
	// The attack must not take the connections of the load.
	m.consumer.AwaitMetric(`remora_reactor_connections{direction="in"}`, attackLoad)

	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); a.run(ctx, m) }()
	defer func() { stop(); <-over }()
	if a.by == 0 {
		<-loaded
	}
	if a.meets != "" {
		// In tenths, each of which may take harness.Patience: on a busy machine a crowd takes long.
		for tenth := 1; tenth <= 10; tenth++ {
			p.AwaitMetric(a.meets, met+max(1, a.by*tenth/10))
		}
	}
	stopLoad()
	<-loaded
	stop()
	<-over

	for i, s := range m.sidecars() {
		eventually.Nil(t, "the level before the attack", func() error { return s.Level().Above(before[i]) })
		if peak := s.Memory(t, "VmHWM"); peak > m.memory && !racetest.Enabled { // -race takes many times as much
			t.Errorf("%d MiB of memory, over the bound of %d MiB", peak>>20, m.memory>>20)
		}
	}
	t.Logf("MiB of memory: peak %d, then %d", p.Memory(t, "VmHWM")>>20, p.Memory(t, "VmRSS")>>20)
}

// forgetPeak makes VmHWM of p start again at the present value.
func forgetPeak(t *testing.T, p *harness.Process) {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.Cmd.Process.Pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}
