package limits

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

// TestPriorities: through two sidecars, requests of both priorities wait for one slot. Online
// requests that came later reach the application first, but for one slot in 16.
func TestPriorities(t *testing.T) {
	const each = 20
	var mu sync.Mutex
	var order []string
	busy, release := make(chan struct{}, 1), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		order = append(order, r.Header.Get("x-remora-priority"))
		mu.Unlock()
		select {
		case busy <- struct{}{}:
		default:
		}
		<-release
	}))
	defer srv.Close()
	answer := sync.OnceFunc(func() { close(release) })
	defer answer() // Close waits for it
	addrs := harness.FreeAddrs(t, 2)
	p := harness.Start(t, fmt.Sprintf(`
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m, max_concurrency: 1}}
`, addrs[0], srv.Listener.Addr()))
	p.Ready()
	harness.Start(t, fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: app}]
services: {app: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m}}
`, addrs[1], addrs[0])).Ready()

	var all sync.WaitGroup
	send := func(n int, priority string) {
		for range n {
			all.Go(func() {
				req, err := http.NewRequest("GET", "http://"+addrs[1], nil)
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("x-remora-priority", priority)
				resp, err := (&http.Client{Timeout: harness.Patience}).Do(req)
				if err != nil || resp.StatusCode != 200 {
					t.Error(resp, err)
					return
				}
				resp.Body.Close()
			})
		}
	}
	const queued = `remora_requests_queued{service="local"}`
	send(1, "online")
	harness.Receive(t, "the first request", busy)
	send(each, "batch")
	p.AwaitMetric(queued, each)
	send(each, "online")
	p.AwaitMetric(queued, 2*each)
	answer()
	all.Wait()
	p.AwaitMetric(`remora_requests_batch_total{outcome="2xx",service="local"}`, each)

	online, early := 0, 0 // batch requests before the last online one
	for _, priority := range order {
		switch {
		case priority == "":
			online++
		case online <= each:
			early++
		}
	}
	if online != each+1 || len(order) != 2*each+1 || early < 1 || early > 2 {
		t.Errorf("%d of %d batch requests before the last online one, want 1 or 2: %q", early, each, order)
	}
}
