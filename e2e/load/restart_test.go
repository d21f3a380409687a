package load

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/lab"
	openloop "github.com/remora-proxy/remora/lab/load"
)

// scripts/restart.sh sets these.
var (
	restartCount = flag.Int("restarts", 6, "hot restarts under load")
	cycleCount   = flag.Int("cycles", 3, "ends and starts of a provider under load")
	restartRate  = flag.Int("restart-rate", 300, "requests a second meanwhile")
)

// mesh is a consumer's sidecar, and those of two providers that it finds in etcd.
type mesh struct {
	egress    string
	consumer  *harness.Process
	providers [2]*harness.Process
}

func newMesh(t *testing.T) *mesh {
	e, err := lab.StartEtcd(lab.EtcdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("x-nonce", r.Header.Get("x-nonce"))
		_, _ = io.Copy(w, io.MultiReader(strings.NewReader(r.Method+" "), r.Body))
	}))
	t.Cleanup(app.Close)
	m := &mesh{}
	addrs := harness.FreeAddrs(t, 3)
	// The test is not about an etcd that is slow because the machine is busy.
	common := fmt.Sprintf("loops: 2\nregistry: {etcd: {endpoints: [%q], lease_ttl: 600s}, cache_dir: %q}\ntimeouts: {drain: 10s}\n",
		e.Addr(), t.TempDir())
	for i := range m.providers {
		m.providers[i] = harness.Start(t, common+fmt.Sprintf(`
node: {id: p%d}
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m, max_pending: 60000}}
register: [{service: compute, listener: ingress, advertise: %q, check: {http: /, timeout: 15s}}]`,
			i, addrs[i], app.Listener.Addr(), addrs[i]))
		awaitRegistered(t, m.providers[i])
	}
	m.egress = addrs[2]
	m.consumer = harness.Start(t, common+fmt.Sprintf(`
node: {id: c}
listeners: [{name: egress, address: %q, protocol: http, service: compute}]
services: {compute: {discover: etcd, protocol: link, connect_timeout: 15s, timeout: 2m, max_pending: 60000}}`, m.egress))
	m.consumer.Ready()
	return m
}

// awaitRegistered waits until p is ready and in the registry.
func awaitRegistered(t *testing.T, p *harness.Process) {
	t.Helper()
	p.Ready()
	eventually.Nil(t, "the registration", func() error {
		if _, body := p.Get("/endpoints"); !strings.Contains(body, `"state": "registered"`) {
			return fmt.Errorf("%s", body)
		}
		return nil
	})
}

// mixedLoad is an open loop of GET and POST requests by clients that never retry. A tenth
// are POST requests by net/http, which uses its connections in any order.
type mixedLoad struct {
	t     *testing.T
	rate  int
	plain *openLoad
	stop  atomic.Bool
	all   sync.WaitGroup

	mu  sync.Mutex
	sum openloop.Result
}

// slice is the duration of each part of the load, during which a client keeps its
// connections.
const slice = 5 * time.Second

func startMixedLoad(t *testing.T, egress string, rate int) *mixedLoad {
	l := &mixedLoad{t: t, rate: rate, plain: startLoad(egress, egress, max(1, rate/10))}
	for i, method := range []string{"GET", "POST"} {
		l.all.Go(func() {
			for seed := uint64(1); !l.stop.Load(); seed++ {
				l.run(openloop.Options{
					Targets: []string{"http://" + egress + "/"}, Method: method, Rate: float64(rate) * 0.45,
					Seed: 2*seed + uint64(i), Duration: slice, Timeout: harness.Patience, Connections: 16,
				})
			}
		})
	}
	t.Cleanup(l.halt)
	return l
}

// halt stops the load and waits for the requests in flight.
func (l *mixedLoad) halt() {
	l.stop.Store(true)
	l.all.Wait()
	l.plain.end()
}

func (l *mixedLoad) run(o openloop.Options) {
	r, err := openloop.Run(context.Background(), o)
	if err != nil {
		l.t.Error(err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sum.Add(r)
}

// end stops the load, and reports failures.
func (l *mixedLoad) end(what string) {
	l.t.Helper()
	l.halt()
	sent, failed := l.sum.Counts.Requests+l.plain.sent.Load(), l.sum.Counts.Failed()+l.plain.failed.Load()
	l.t.Logf("%s at %d requests/s: %d sent, %d failed", what, l.rate, sent, failed)
	for _, f := range l.plain.failures {
		l.t.Error(f)
	}
	if failed > 0 || sent == 0 {
		l.t.Errorf("requests have failed: %v %v", l.sum.Counts.Errors, l.sum.Counts.Statuses)
	}
}

// more waits for further responses.
func (l *mixedLoad) more() {
	l.t.Helper()
	answered := l.plain.answered.Load()
	eventually.Nil(l.t, "load", func() error {
		if n := l.plain.answered.Load() - answered; n < 10 {
			return fmt.Errorf("%d responses", n)
		}
		return nil
	})
}

// maxDraining bounds the processes that drain at the same time.
const maxDraining = 4

// TestRestartUnderOpenLoad replaces the sidecars of the consumer and the providers in
// turn, each time by one with another engine.
func TestRestartUnderOpenLoad(t *testing.T) {
	m := newMesh(t)
	load := startMixedLoad(t, m.egress, *restartRate)
	load.more()
	turns := []**harness.Process{&m.consumer, &m.providers[0], &m.consumer, &m.providers[1]}
	var draining []*harness.Process
	ended := func() {
		if code := draining[0].ExitCode(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		draining = draining[1:]
	}
	for i := range *restartCount {
		p := turns[i%len(turns)]
		draining = append(draining, *p)
		*p = (*p).Replace("--engine", harness.AnotherEngine((*p).Engine()))
		if len(draining) > maxDraining {
			ended()
		}
		load.more()
	}
	load.end(fmt.Sprintf("%d hot restarts", *restartCount))
	for len(draining) > 0 {
		ended()
	}
}

// TestCyclesUnderOpenLoad stops and starts the two providers in turn.
func TestCyclesUnderOpenLoad(t *testing.T) {
	m := newMesh(t)
	load := startMixedLoad(t, m.egress, *restartRate)
	load.more()
	for i := range *cycleCount {
		p := m.providers[i%2]
		p.Signal(syscall.SIGTERM)
		p.Ends()
		load.more()
		p = p.Again()
		awaitRegistered(t, p)
		m.providers[i%2] = p
		load.more()
	}
	load.end(fmt.Sprintf("%d times the end and start of a provider", *cycleCount))
}
