package attacks

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/e2e/harness/h2"
	"github.com/remora-proxy/remora/internal/must"
)

// TestReserve: HTTP/2 connections that open all their streams to a slow service don't shut out clients with
// one request at a time. None of the connections alone has enough streams to reach the reserve.
func TestReserve(t *testing.T) {
	const greedy, places = 20, 1024
	release := make(chan struct{})
	app := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-release
		}
	}))
	t.Cleanup(app.Close)
	addr := harness.FreeAddrs(t, 1)[0]
	p := harness.Start(t, fmt.Sprintf(`
loops: 2
listeners: [{name: in, address: %q, protocol: http, service: out}]
services: {out: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m, max_pending: %d, retry: {on: []}}}`,
		addr, app.Listener.Addr(), places))
	p.Ready()

	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{}, greedy)
	slow := h2Holder("slow", h2Streams, func(id uint32) []byte { return h2.Get(id, "/slow") })
	for range greedy {
		go func() {
			defer func() { over <- struct{}{} }()
			slow.run(ctx, &attackMesh{http: addr}, 100*time.Millisecond)
		}()
	}
	defer func() {
		close(release)
		stop()
		for range greedy {
			<-over
		}
	}()
	p.AwaitMetric(`remora_requests_pending{service="out"}`, places-places/8)
	p.AwaitMetric(`remora_errors_total{code="overloaded"}`, greedy*100)

	for name, tr := range map[string]*http.Transport{"new HTTP/1.1 connections": {DisableKeepAlives: true}, "HTTP/2": {Protocols: new(http.Protocols)}} {
		if tr.Protocols != nil {
			tr.Protocols.SetUnencryptedHTTP2(true)
		}
		client := http.Client{Transport: tr, Timeout: harness.Patience}
		failed := map[string]int{}
		for range 100 {
			resp, _ := must.Get(t, &client, "http://"+addr+"/good")
			if resp.StatusCode != 200 {
				failed[resp.Header.Get("X-Remora-Error")]++
			}
		}
		tr.CloseIdleConnections()
		if len(failed) > 0 {
			t.Errorf("%s: of 100 requests failed %v", name, failed)
		}
	}
}
