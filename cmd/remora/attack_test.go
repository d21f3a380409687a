package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
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
}

// TestAttacks misuses two sidecars in every way that limits and timeouts are for.
// Clients attack the consumer's HTTP listener, peers attack the provider's link
// listener, and an endpoint attacks the consumer that dialled it. A well-behaved load
// runs through both sidecars meanwhile. None of its requests may fail, memory must
// stay below its bound, and nothing may be left after an attack.
func TestAttacks(t *testing.T) {
	m := newAttackMesh(t, attackBuffered, attackConnections, nil)
	before := m.levels()
	for _, group := range []struct {
		target  *process
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

var pooledConnection = regexp.MustCompile(`(?m)^remora_endpoint_connections\{.*service="local".*\} [1-9]`)

// awaitUnpooled waits until a provider has closed the pooled connections to its application.
func (p *process) awaitUnpooled() {
	p.t.Helper()
	eventually.Nil(p.t, "the pooled connections to close", func() error {
		if _, metrics := p.get("/metrics"); pooledConnection.MatchString(metrics) {
			return errors.New("open")
		}
		return nil
	})
}

// attackMesh is a consumer's sidecar and a provider's in front of a replica.
type attackMesh struct {
	http, link, calls  string           // the addresses of their listeners; no calls without a listener of Dubbo
	endpoint           *net.TCPListener // of the endpoint that attacks
	consumer, provider *process
	memory             int // bound of the resident bytes of each sidecar
}

// newAttackMesh starts the sidecars. more, if set, returns further routes and services of the consumer, and a
// listener of calls.
func newAttackMesh(t *testing.T, buffered, connections int, more func(t *testing.T, calls string) (routes, services, listener string)) *attackMesh {
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
	m := &attackMesh{link: freeAddrs(t, 1)[0], endpoint: endpoint, memory: memoryBound(buffered)}
	common := fmt.Sprintf(`
loops: 2
limits: {message: %d, header: %d, buffered: %d, connections: %d, streams: %d}
timeouts: {header: 4s, body: 2s, idle: 10s, write: 3s}
`, attackMessage, attackHeader, buffered, connections, attackStreams)
	m.provider = startRemora(t, common+fmt.Sprintf(`
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services:
  local: {discover: static, endpoints: [%q], protocol: http, max_concurrency: 128, timeout: 20s, connect_timeout: 15s, idle_timeout: 200ms}`,
		m.link, app.Addr()))
	m.provider.ready() // before the next address is chosen
	consumer := freeAddrs(t, 2)
	m.http, m.calls = consumer[0], consumer[1]
	var routes, services, listener string
	if more != nil {
		routes, services, listener = more(t, m.calls)
	}
	m.consumer = startRemora(t, common+fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http}, %s]
routes:
  - {match: {path: /evil}, service: evil}%s
  - {service: compute}
services:%s
  compute: {discover: static, endpoints: [%q], protocol: link, timeout: 20s, connect_timeout: 15s}
  evil: {discover: static, endpoints: [%q], protocol: link, timeout: 1s}`, m.http, listener, routes, services, m.link, endpoint.Addr()))
	m.consumer.ready()
	m.load(t, 100*time.Millisecond) // fills free lists and pools
	m.provider.awaitUnpooled()
	return m
}

func (m *attackMesh) sidecars() []*process { return []*process{m.consumer, m.provider} }

func (m *attackMesh) levels() (all []level) {
	for _, p := range m.sidecars() {
		all = append(all, p.level())
	}
	return all
}

// load runs the well-behaved load, of which no request may fail.
func (m *attackMesh) load(t *testing.T, d time.Duration) {
	r, err := openloop.Run(t.Context(), openloop.Options{
		Targets: []string{"http://" + m.http + "/compute"}, Rate: 200, Duration: d, Timeout: 20 * time.Second,
		Connections: attackLoad, MaxConnections: attackLoad,
	})
	if err != nil {
		t.Error(err)
		return
	}
	if c := r.Counts; c.Failed() > 0 || c.Statuses[200] != c.Requests || c.Requests == 0 {
		t.Errorf("well-behaved requests failed: %+v", c)
		for _, s := range m.sidecars() {
			_, metrics := s.get("/metrics")
			t.Log(refusals.FindAllString(metrics, -1))
		}
	}
	t.Logf("%d well-behaved requests, P50 %v, P99 %v, max %v", r.Counts.Requests, r.Quantile(0.5), r.Quantile(0.99), r.Max())
}

var refusals = regexp.MustCompile(`(?m)^remora_errors_total.*`)

// attackLoad is how many connections the load has.
const attackLoad = 32

// attack runs one attack on sidecar p. It lasts until its limit has stopped it and the
// load has ended.
func (m *attackMesh) attack(t *testing.T, a *attack, p *process, before []level) {
	for _, s := range m.sidecars() {
		s.forgetPeak(t)
	}
	met := p.metric(a.meets)
	enough, stopLoad := context.WithCancel(t.Context())
	loaded := make(chan struct{})
	defer func() { stopLoad(); <-loaded }()
	go func() {
		defer close(loaded)
		for again := true; again; again = a.by > 0 && enough.Err() == nil {
			m.load(t, attackTime(t))
		}
	}()
	// The attack must not take the connections of the load.
	m.consumer.awaitMetric(`remora_reactor_connections{direction="in"}`, attackLoad)

	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); a.run(ctx, m) }()
	defer func() { stop(); <-over }()
	if a.by == 0 {
		<-loaded
	}
	if a.meets != "" {
		p.awaitMetric(a.meets, met+max(1, a.by))
	}
	stopLoad()
	<-loaded
	stop()
	<-over

	for i, s := range m.sidecars() {
		eventually.Nil(t, "the level before the attack", func() error { return s.level().above(before[i]) })
		if peak := s.memory(t, "VmHWM"); peak > m.memory && len(buildFlags) == 0 { // -race takes many times as much
			t.Errorf("%d MiB of memory, over the bound of %d MiB", peak>>20, m.memory>>20)
		}
	}
	t.Logf("MiB of memory: peak %d, then %d", p.memory(t, "VmHWM")>>20, p.memory(t, "VmRSS")>>20)
}

// restBytes is more than a sidecar holds for its links and a well-behaved load.
const restBytes = 64 << 10

// level is what a sidecar uses.
type level struct{ descriptors, goroutines, pending, buffered int }

var (
	goroutineCount = regexp.MustCompile(`(?m)^(\d+) @`)
	pendingSeries  = regexp.MustCompile(`(?m)^remora_(?:requests_pending|requests_queued|slots_in_use|endpoint_pending)\{.*\} (\S+)$`)
)

func (p *process) level() (l level) {
	p.t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	l.descriptors = len(fds)
	_, stacks := p.get("/debug/pprof/goroutine?debug=1")
	for _, stack := range strings.Split(stacks, "\n\n") {
		// The engine's pooled workers end when they have been idle long enough.
		if n := goroutineCount.FindStringSubmatch(stack); n != nil && !strings.Contains(stack, "ants/v2.(*goWorker).run") {
			count, _ := strconv.Atoi(n[1])
			l.goroutines += count
		}
	}
	_, metrics := p.get("/metrics")
	for _, found := range pendingSeries.FindAllStringSubmatch(metrics, -1) {
		n, _ := strconv.ParseFloat(found[1], 64)
		l.pending += int(n)
	}
	l.buffered = p.metric("remora_buffered_bytes")
	return l
}

// above returns an error if l is higher than before by more than normal variation.
func (l level) above(before level) error {
	if l.descriptors > before.descriptors+4 || l.goroutines > before.goroutines+3 || l.pending > 0 || l.buffered > restBytes {
		return fmt.Errorf("%+v, before %+v", l, before)
	}
	return nil
}

// forgetPeak makes VmHWM of p start again at the present value.
func (p *process) forgetPeak(t *testing.T) {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.cmd.Process.Pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}

// memory is a field of /proc/PID/status in bytes.
func (p *process) memory(t *testing.T, field string) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	var n int
	_, after, _ := strings.Cut(string(status), field+":")
	if _, err := fmt.Sscan(after, &n); err != nil {
		t.Fatalf("%s: %v", field, err)
	}
	return n << 10
}
