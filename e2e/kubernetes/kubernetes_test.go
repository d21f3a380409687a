package kubernetes

import (
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
)

const port = 8080 // of all replicas

// replicas are HTTP servers with an address each, which come and go.
type replicas struct {
	t       *testing.T
	servers map[string]*http.Server
}

func (r *replicas) start(addr string) {
	ln, err := net.Listen("tcp", net.JoinHostPort(addr, strconv.Itoa(port)))
	if err != nil {
		r.t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, addr) })}
	go func() { _ = s.Serve(ln) }()
	r.servers[addr] = s
}

// stop ends a replica as a kill does.
func (r *replicas) stop(addr string) {
	_ = r.servers[addr].Close()
	delete(r.servers, addr)
}

func (r *replicas) addrs() (all []string) {
	for a := range r.servers {
		all = append(all, a)
	}
	slices.Sort(all)
	return all
}

func (r *replicas) stopAll() {
	for _, a := range r.addrs() {
		r.stop(a)
	}
}

// load sends requests until the end of the test, and counts those that fail.
type load struct {
	sent, failed atomic.Int64
	first        atomic.Value // the first failure, as text
	done         chan struct{}
	tasks        sync.WaitGroup
}

func startLoad(egress string) *load {
	l := &load{done: make(chan struct{})}
	for range 8 {
		l.tasks.Go(func() {
			for {
				select {
				case <-l.done:
					return
				case <-time.After(5 * time.Millisecond): // the pace of a caller
				}
				l.sent.Add(1)
				if status, code, _, err := harness.Get(egress); status != http.StatusOK || err != nil {
					l.failed.Add(1)
					l.first.CompareAndSwap(nil, fmt.Sprint(status, " ", code, " ", err))
				}
			}
		})
	}
	return l
}

func (l *load) end(t *testing.T, what string) {
	t.Helper()
	close(l.done)
	l.tasks.Wait()
	t.Logf("%s: %d requests, %d failed", what, l.sent.Load(), l.failed.Load())
	if l.failed.Load() > 0 || l.sent.Load() == 0 {
		t.Errorf("%s: the first failure is %v", what, l.first.Load())
	}
}

// TestRealCluster: no request fails while a hundred replicas come and go, while the API server dies and comes back, and after
// it has lost its data. The view of the sidecar is right afterwards.
func TestRealCluster(t *testing.T) {
	c := startCluster(t)
	r := &replicas{t: t, servers: map[string]*http.Server{}}
	defer r.stopAll()
	next := 0
	add := func() {
		next++
		r.start(fmt.Sprintf("10.222.%d.%d", next/200, 1+next%200))
	}
	for range 100 {
		add()
	}
	publish := func() error { return c.setEndpoints(port, r.addrs()...) }
	if err := publish(); err != nil {
		t.Fatal(err)
	}
	egress := harness.FreeAddrs(t, 1)[0]
	p := harness.Start(t, fmt.Sprintf(`
registry: {kubernetes: {kubeconfig: %q}}
listeners: [{name: egress, address: %q, protocol: http, service: compute}]
services: {compute: {discover: kubernetes, protocol: http, idempotent: true, retry: {attempts: 2}}}`, c.kubeconfig(), egress))
	p.Ready()
	current := func(what string) {
		t.Helper()
		begun := time.Now()
		eventually.True(t, "the endpoints to be right "+what, func() bool {
			_, body := p.Get("/endpoints")
			if strings.Count(body, `"address": "10.222.`) != len(r.servers) {
				return false
			}
			for _, a := range r.addrs() {
				if !strings.Contains(body, `"`+a+":") {
					return false
				}
			}
			return true
		})
		t.Logf("right %s after %v", what, time.Since(begun))
	}
	current("at the start")

	seconds, _ := strconv.Atoi(cmp.Or(os.Getenv("SECONDS_OF_CHURN"), "60"))
	l := startLoad(egress)
	for range 10 * seconds {
		all := r.addrs()
		add()
		r.stop(all[rand.IntN(len(all))])
		if err := publish(); err != nil {
			t.Fatal(err)
		}
		<-time.After(100 * time.Millisecond) // the pace of the changes
	}
	current("after the last change")
	l.end(t, "replicas come and go")

	l = startLoad(egress)
	c.kill()
	p.AwaitLog(`Kubernetes API does not answer`)
	c.start()
	add()
	eventually.Nil(t, "to publish", publish)
	current("after the API server came back")
	l.end(t, "the API server dies")

	l = startLoad(egress)
	c.wipe()
	eventually.True(t, "the API server to be back", func() bool { return p.Stats().Registry.Connected })
	add()
	eventually.Nil(t, "to publish", publish)
	current("after the API server has lost its data")
	l.end(t, "the API server loses its data")
}
