package limits

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
)

// oneWorker is an application that a provider's sidecar gives one request at a time. Each request waits until the test
// lets it go on.
type oneWorker struct {
	*harness.Process
	ingress, side string // the addresses of its listeners: a link, and HTTP for requests past the consumer
	arrived       chan string
	goOn          chan struct{}
	calls         atomic.Int32 // requests for /call
}

func startOneWorker(t *testing.T) *oneWorker {
	w := &oneWorker{arrived: make(chan string, 8), goOn: make(chan struct{})}
	end := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/warm" {
			return
		}
		if r.URL.Path == "/call" {
			w.calls.Add(1)
		}
		w.arrived <- r.URL.Path
		select {
		case <-w.goOn:
		case <-end:
		}
	}))
	t.Cleanup(func() { close(end); srv.Close() })
	addrs := harness.FreeAddrs(t, 2)
	w.ingress, w.side = addrs[0], addrs[1]
	w.Process = harness.Start(t, w.config(srv.Listener.Addr().String()))
	w.Ready()
	return w
}

func (w *oneWorker) config(app string) string {
	return fmt.Sprintf(`
loops: 1
listeners:
  - {name: ingress, address: %q, protocol: link, service: local}
  - {name: side, address: %q, protocol: http, service: local}
services: {local: {discover: static, endpoints: [%q], protocol: http, timeout: 2m, connect_timeout: 15s, max_concurrency: 1}}`, w.ingress, w.side, app)
}

// block takes the worker with a request that does not come from the consumer.
func (w *oneWorker) block(t *testing.T) {
	go get("http://"+w.side+"/other", nil)
	harness.Receive(t, "the other request to arrive", w.arrived)
}

func get(url string, status chan<- int) {
	got := 0
	if resp, err := http.Get(url); err == nil {
		resp.Body.Close()
		got = resp.StatusCode
	}
	if status != nil {
		status <- got
	}
}

// TestTiedHedges: two applications with one worker each are busy. A call and its hedge wait at their sidecars. When the
// worker takes the call, the hedge is withdrawn, also if the sidecar of that worker has a successor by then. When a worker
// takes the hedge first, it wins.
func TestTiedHedges(t *testing.T) {
	for _, c := range []struct {
		name                 string
		hedgeFirst, replaced bool
	}{
		{"the call starts first", false, false},
		{"the hedge starts first", true, false},
		{"a hot restart", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			workers := []*oneWorker{startOneWorker(t), startOneWorker(t)}
			egress := harness.FreeAddrs(t, 1)[0]
			consumer := harness.Start(t, fmt.Sprintf(`
loops: 1
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: compute}]
services:
  compute: {discover: static, endpoints: [%q, %q], protocol: link, idempotent: true, timeout: 2m, connect_timeout: 15s, hedge: {mode: on, delay: 50ms}}`,
				egress, workers[0].ingress, workers[1].ingress))
			consumer.Ready()
			for _, w := range workers { // a hedge is tied once the links are open
				eventually.True(t, "a link to each provider", func() bool {
					get("http://"+egress+"/warm", nil)
					return w.Metric(`remora_requests_total{outcome="2xx",service="local"}`) > 0
				})
			}
			const queued = `remora_hedges_tied_total{result="queued",service="local"}`
			var before [2]int // hedges of the requests above
			for i, w := range workers {
				w.block(t)
				before[i] = w.Metric(queued)
			}
			status := make(chan int, 1)
			go get("http://"+egress+"/call", status)
			var primary, hedge *oneWorker
			eventually.True(t, "a tied hedge in a queue", func() bool {
				for i, w := range workers {
					if w.Metric(queued) == before[i]+1 {
						primary, hedge = workers[1-i], w
					}
				}
				return hedge != nil
			})
			if c.replaced {
				primary.Process = primary.Replace()
			}
			first, other := primary, hedge
			if c.hedgeFirst {
				first, other = hedge, primary
			}
			first.goOn <- struct{}{} // the request that has blocked it
			if got := harness.Receive(t, "the call to arrive", first.arrived); got != "/call" {
				t.Errorf("%s arrived", got)
			}
			if !c.hedgeFirst {
				hedge.AwaitMetric(`remora_hedges_tied_total{result="withdrawn",service="local"}`, 1)
				consumer.AwaitMetric(`remora_hedges_total{result="missed",service="compute"}`, 1)
			}
			first.goOn <- struct{}{}
			if got := harness.Receive(t, "the response", status); got != http.StatusOK {
				t.Errorf("status %d", got)
			}
			if c.hedgeFirst {
				consumer.AwaitMetric(`remora_hedges_total{result="won",service="compute"}`, 1)
			}
			other.goOn <- struct{}{} // the request that has blocked it; nothing waits behind it any longer
			go get("http://"+other.side+"/last", status)
			if got := harness.Receive(t, "the last request to arrive", other.arrived); got != "/last" {
				t.Errorf("%s arrived", got)
			}
			other.goOn <- struct{}{}
			harness.Receive(t, "the last response", status)
			if n := first.calls.Load() + other.calls.Load(); n != 1 {
				t.Errorf("the applications got the call %d times, want once", n)
			}
		})
	}
}
