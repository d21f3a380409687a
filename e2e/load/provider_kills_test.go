package load

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	openloop "github.com/remora-proxy/remora/lab/load"
)

// scripts/restart.sh --kills sets this.
var providerKills = flag.Int("provider-kills", 3, "kills of a provider's sidecar under load")

// countingReplica takes 2 ms for a request, and counts each by its nonce.
type countingReplica struct {
	*httptest.Server
	served atomic.Int64

	mu   sync.Mutex
	seen map[string]int // requests other than GET
}

func newCountingReplica(t *testing.T) *countingReplica {
	r := &countingReplica{seen: map[string]int{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		nonce := req.Header.Get("x-nonce")
		if req.Method != http.MethodGet {
			r.mu.Lock()
			r.seen[nonce]++
			r.mu.Unlock()
		}
		time.Sleep(2 * time.Millisecond)
		w.Header().Set("x-nonce", nonce)
		r.served.Add(1)
	}))
	t.Cleanup(r.Close)
	return r
}

// closedLoad keeps connections busy with requests of one method until its end.
type closedLoad struct {
	stop atomic.Bool
	done chan struct{}
	sum  openloop.Result
	err  error
}

func startClosedLoad(t *testing.T, egress, method string, connections int) *closedLoad {
	l := &closedLoad{done: make(chan struct{})}
	go func() {
		defer close(l.done)
		for !l.stop.Load() && l.err == nil {
			var r *openloop.Result
			r, l.err = openloop.Run(context.Background(), openloop.Options{
				Targets: []string{"http://" + egress + "/"}, Method: method, Closed: true,
				Connections: connections, Duration: 500 * time.Millisecond, Timeout: harness.Patience,
			})
			if l.err == nil {
				l.sum.Add(r)
			}
		}
	}()
	t.Cleanup(func() { l.stop.Store(true); <-l.done })
	return l
}

func (l *closedLoad) end(t *testing.T) openloop.Counts {
	t.Helper()
	l.stop.Store(true)
	if <-l.done; l.err != nil {
		t.Fatal(l.err)
	}
	return l.sum.Counts
}

// TestProviderKills kills the sidecars of providers under load by 16 connections that send GET and
// 4 that send POST, with the default policy. No GET may fail. A POST may, with 502, but
// no application may get one that another has got.
func TestProviderKills(t *testing.T) {
	var replicas [3]*countingReplica
	var providers [3]*harness.Process
	addrs := harness.FreeAddrs(t, 4)
	for i := range providers {
		replicas[i] = newCountingReplica(t)
		providers[i] = harness.Start(t, fmt.Sprintf(`
loops: 2
listeners: [{name: link, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s}}`, addrs[i], replicas[i].Listener.Addr()))
		providers[i].Ready()
	}
	// The budget is for retries: a slow machine sends few requests to earn them, and loses as many at a kill.
	consumer := harness.Start(t, fmt.Sprintf(`
loops: 2
listeners: [{name: egress, address: %q, protocol: http, service: compute}]
services: {compute: {discover: static, endpoints: [%q, %q, %q], protocol: link, connect_timeout: 15s, hedge: {budget: 1}}}`, addrs[3], addrs[0], addrs[1], addrs[2]))
	consumer.Ready()
	gets, posts := startClosedLoad(t, addrs[3], "GET", 16), startClosedLoad(t, addrs[3], "POST", 4)
	for i := range *providerKills {
		victim := i % len(providers)
		was := replicas[victim].served.Load()
		eventually.Nil(t, "the provider to serve", func() error {
			if n := replicas[victim].served.Load() - was; n < 100 {
				return fmt.Errorf("%d requests after the start", n)
			}
			return nil
		})
		providers[victim].Signal(syscall.SIGKILL)
		<-providers[victim].Exited
		providers[victim] = providers[victim].Again()
		providers[victim].Ready()
	}
	get, post := gets.end(t), posts.end(t)
	s := consumer
	t.Logf("%d kills: GET %v, POST %v; %d retries, %d over budget", *providerKills, get.Statuses, post.Statuses,
		s.Metric(`remora_retries_total{service="compute"}`), s.Metric(`remora_retries_over_budget_total{service="compute"}`))
	if get.Failed() > 0 || get.Requests == 0 {
		t.Errorf("GET: %d of %d failed: %v %v", get.Failed(), get.Requests, get.Errors, get.Statuses)
	}
	if other := post.Requests - post.Statuses[200] - post.Statuses[502]; other > 0 || post.Statuses[200] == 0 {
		t.Errorf("POST: want 200, or 502: %v %v", post.Errors, post.Statuses)
	}
	if *providerKills >= 20 && post.Statuses[502] == 0 {
		t.Error("no POST was lost: the kills have hit none in flight")
	}
	checkOnce(t, replicas[:])
}

// checkOnce checks that no request was carried out twice, at one replica or at two.
func checkOnce(t *testing.T, replicas []*countingReplica) {
	t.Helper()
	all := map[string]int{}
	for _, r := range replicas {
		r.mu.Lock()
		for nonce, n := range r.seen {
			all[nonce] += n
		}
		r.mu.Unlock()
	}
	for _, nonce := range slices.Sorted(maps.Keys(all)) {
		if n := all[nonce]; n != 1 || strings.TrimSpace(nonce) == "" {
			t.Errorf("the request %q was carried out %d times", nonce, n)
		}
	}
	if len(all) == 0 {
		t.Error("no request was counted")
	}
}
