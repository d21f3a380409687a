package load

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/testcerts"
	"github.com/remora-proxy/remora/lab/child"
	openloop "github.com/remora-proxy/remora/lab/load"
	"github.com/remora-proxy/remora/lab/replica"
)

// scripts/soak.sh --kill sets this.
var killRequests = flag.Int64("kill-requests", 0, "requests under kills, at least; 0 skips the test")

const (
	// lease is the lease_ttl in seconds: a killed provider leaves etcd after it.
	lease = 5 * time.Second

	// killTime is the least length of the load, so that all kills are within it.
	killTime = 40 * time.Second

	// rest is the longest time in which pooled connections close and memory goes back: the
	// runtime collects garbage every two minutes at least.
	rest = 3 * time.Minute
)

// labProgram is a process of remora-lab that listens on addr.
type labProgram struct {
	t    *testing.T
	args []string
	addr string
	cmd  *exec.Cmd
}

func (p *labProgram) start() *labProgram {
	p.t.Helper()
	p.cmd = exec.Command(p.args[0], p.args[1:]...)
	p.cmd.Stderr = os.Stderr
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	eventually.Nil(p.t, p.args[1]+" to listen", func() error {
		c, err := net.Dial("tcp", p.addr)
		if err == nil {
			c.Close()
		}
		return err
	})
	return p
}

func (p *labProgram) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// killMesh is a consumer's sidecar and three providers' before three replicas. They find
// each other in etcd, and their links have TLS.
type killMesh struct {
	etcd      *labProgram
	etcdDir   string
	replicas  [3]*labProgram
	providers [3]*harness.Process
	consumer  *harness.Process
	egress    string
}

func newKillMesh(t *testing.T) *killMesh {
	lab := filepath.Join(t.TempDir(), "remora-lab")
	if out, err := exec.Command("go", "build", "-o", lab, "../../cmd/remora-lab").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	addrs := harness.FreeAddrs(t, 8)
	program := func(addr string, args ...string) *labProgram {
		p := &labProgram{t: t, args: append([]string{lab, args[0], "--listen", addr}, args[1:]...), addr: addr}
		t.Cleanup(func() { p.kill() })
		return p.start()
	}
	m := &killMesh{etcdDir: filepath.Join(t.TempDir(), "etcd"), egress: addrs[7]}
	m.etcd = program(addrs[0], "etcd", "--dir", m.etcdDir)
	ca := testcerts.New(t)
	provides, consumes := harness.CertFiles(t, ca, harness.ProviderName), harness.CertFiles(t, ca, harness.ConsumerName)
	common := fmt.Sprintf(`
loops: 2
registry: {etcd: {endpoints: [%q], lease_ttl: %v}}
limits: {message: 1MiB}
timeouts: {drain: 3s}`, m.etcd.addr, lease)
	for i := range m.replicas {
		m.replicas[i] = program(addrs[1+i], "replica", "--stall-mean", "0", "--seed", fmt.Sprint(i))
		link := addrs[4+i]
		m.providers[i] = harness.Start(t, fmt.Sprintf(`%s
node: {id: provider-%d}
listeners: [{name: link, address: %q, protocol: link, service: local, tls: %s}]
services:
  local: {discover: static, endpoints: [%q], protocol: http, max_concurrency: 128, connect_timeout: 10s, idle_timeout: 5s}
register: [{service: compute, listener: link, advertise: %q}]`,
			common, i, link, harness.Block(provides, harness.ConsumerName), m.replicas[i].addr, link))
		m.providers[i].Ready()
	}
	// A call may be sent twice, so that a kill costs no response. The budget is for retries: a slow
	// machine sends few requests to earn them, and loses as many at a kill.
	m.consumer = harness.Start(t, fmt.Sprintf(`%s
node: {id: consumer}
listeners: [{name: egress, address: %q, protocol: http, service: compute}]
services:
  compute: {discover: etcd, protocol: link, connect_timeout: 10s, timeout: 30s, idempotent: true,
    retry: {attempts: 2, on: [connect, refused, reset]}, hedge: {mode: off, budget: 1}, tls: %s}`,
		common, m.egress, harness.Block(consumes, harness.ProviderName)))
	m.consumer.Ready()
	m.consumer.AwaitMetric(`remora_endpoints{service="compute"}`, len(m.providers))
	return m
}

// load runs a closed loop of 256 connections. Each request has a nonce that the replica sends
// back.
func (m *killMesh) load(ctx context.Context, d time.Duration, requests int64) (*openloop.Result, error) {
	return openloop.Run(ctx, openloop.Options{
		Targets: []string{"http://" + m.egress + "/compute"}, Closed: true, Connections: 256,
		Duration: d, Requests: requests, Timeout: harness.Patience,
	})
}

// kills kills one process after another. Each is back before the next one dies. The times are
// how long it is away, and how long traffic flows before the next kill.
func (m *killMesh) kills(t *testing.T) {
	t.Helper()
	replica := func(i int, away time.Duration) {
		m.replicas[i].kill()
		time.Sleep(away)
		m.replicas[i].start()
		time.Sleep(2 * time.Second)
	}
	provider := func(i int, away time.Duration) {
		m.providers[i].Signal(syscall.SIGKILL)
		<-m.providers[i].Exited
		time.Sleep(away)
		m.providers[i] = m.providers[i].Again()
		m.providers[i].Ready()
		time.Sleep(2 * time.Second)
	}
	time.Sleep(2 * time.Second)
	provider(0, 2*time.Second) // back before its lease has ended
	replica(1, 2*time.Second)
	m.etcd.kill() // with its data
	time.Sleep(3 * time.Second)
	m.etcd.start()
	time.Sleep(2 * time.Second)
	m.etcd.kill() // and without
	if err := os.RemoveAll(m.etcdDir); err != nil {
		t.Error(err)
	}
	time.Sleep(lease + 2*time.Second)
	m.etcd.start()
	time.Sleep(4 * time.Second)
	provider(1, lease+3*time.Second) // away for longer than its lease
	replica(2, 0)
}

// usage is a level with the memory, of which 256 connections leave some, and with the
// descriptors that are no connections, which hardly ever change.
type usage struct {
	harness.Level
	rss    int // bytes
	others int // descriptors
}

func (m *killMesh) usage(t *testing.T) (all []usage) {
	for _, p := range append(m.providers[:], m.consumer) {
		connections := p.Metric(`remora_reactor_connections{direction="in"}`) + p.Metric(`remora_reactor_connections{direction="out"}`)
		l := p.Level()
		all = append(all, usage{l, p.Memory(t, "VmRSS"), l.Descriptors - connections})
	}
	return all
}

func (u usage) above(before usage) error {
	if u.rss > before.rss*13/10+8<<20 {
		return fmt.Errorf("%d MiB resident, before %d", u.rss>>20, before.rss>>20)
	}
	if u.others > before.others+3 {
		return fmt.Errorf("%d descriptors beside connections, before %d", u.others, before.others)
	}
	return u.Level.Above(before.Level)
}

// awaitRest waits until no sidecar uses more than before. One that was killed is compared with
// the one before it.
func (m *killMesh) awaitRest(t *testing.T, before []usage) {
	t.Helper()
	eventually.Within(t, rest, "each sidecar to use what it used before", func() error {
		for i, now := range m.usage(t) {
			if err := now.above(before[i]); err != nil {
				return fmt.Errorf("sidecar %d: %w", i, err)
			}
		}
		return nil
	})
}

// served returns the number of requests of each replica.
func (m *killMesh) served(t *testing.T) (all [3]int64) {
	t.Helper()
	for i, r := range m.replicas {
		body, err := child.Call(t.Context(), http.MethodGet, "http://"+r.addr+"/stats")
		var stats replica.Stats
		if err == nil {
			err = json.Unmarshal(body, &stats)
		}
		if err != nil {
			t.Fatal(err)
		}
		all[i] = stats.Served
	}
	return all
}

// TestKillsUnderLoad kills sidecars, replicas and etcd under load, etcd once without its data.
// Not one request may fail, and nothing may be left behind.
func TestKillsUnderLoad(t *testing.T) {
	if *killRequests == 0 {
		t.Skip("only on demand: scripts/soak.sh --kill")
	}
	m := newKillMesh(t)
	if _, err := m.load(t.Context(), 4*time.Second, 0); err != nil { // free lists and pools grow to their size
		t.Fatal(err)
	}
	for _, p := range m.providers {
		p.AwaitUnpooled()
	}
	before := m.usage(t)

	var r *openloop.Result
	done := make(chan error, 1)
	go func() {
		var err error
		r, err = m.load(t.Context(), killTime, *killRequests)
		done <- err
	}()
	m.kills(t)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d requests, P50 %v, P99 %v, max %v", r.Counts.Requests, r.Quantile(0.5), r.Quantile(0.99), r.Max())
	if c := r.Counts; c.Requests < *killRequests || c.Failed() > 0 || c.Statuses[200] != c.Requests {
		t.Errorf("%d requests, want at least %d, each with a response of 200: %+v", c.Requests, *killRequests, c)
		for _, p := range append(m.providers[:], m.consumer) {
			_, metrics := p.Get("/metrics")
			t.Logf("%s: %q", p.File, regexp.MustCompile(`(?m)^remora_errors_total\{.*`).FindAllString(metrics, -1))
		}
	}
	m.awaitRest(t, before)
	eventually.Nil(t, "a short load to reach all replicas", func() error {
		was := m.served(t)
		if _, err := m.load(t.Context(), 500*time.Millisecond, 0); err != nil {
			return err
		}
		for i, n := range m.served(t) {
			if n == was[i] {
				return fmt.Errorf("replica %d gets none", i)
			}
		}
		return nil
	})
}
