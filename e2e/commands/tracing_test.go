package commands

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

// TestTracing: a reload switches tracing on and off. Spans that are queued at the end of
// the process are still exported.
func TestTracing(t *testing.T) {
	var exports atomic.Int32
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/traces" && r.Header.Get("X-Tenant") == "a" {
			exports.Add(1)
		}
	}))
	t.Cleanup(receiver.Close)
	a := harness.NewApp(t)
	egress := harness.FreeAddrs(t, 1)[0]
	off := harness.OneApp(egress, a.Addr, "")
	on := off + fmt.Sprintf("\ntracing: {endpoint: %q, sample: 1, headers: {x-tenant: a}}", receiver.URL)
	p := harness.Start(t, off)
	p.Ready()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	call := func() {
		t.Helper()
		if err := harness.Post(client, egress, "x"); err != nil {
			t.Fatal(err)
		}
	}
	call()
	p.Reload(on, "applied")
	call()
	p.AwaitMetric("remora_tracing_spans_exported_total", 2) // the exchange and its attempt
	p.Reload(off, "applied")
	call()
	p.Reload(on, "applied")
	call()
	p.AwaitMetric("remora_tracing_spans_exported_total", 4)
	p.Counts(`remora_tracing_spans_dropped_total{reason="queue"}`, 0) // tracing was off
	before := exports.Load()
	call()
	p.Signal(syscall.SIGTERM)
	p.Ends()
	if got := exports.Load(); got != before+1 {
		t.Errorf("%d exports at the end of the process, want 1", got-before)
	}
}
