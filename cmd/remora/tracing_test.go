package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"
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
	a := newApp(t)
	egress := freeAddrs(t, 1)[0]
	off := oneApp(egress, a.addr, "")
	on := off + fmt.Sprintf("\ntracing: {endpoint: %q, sample: 1, headers: {x-tenant: a}}", receiver.URL)
	p := startRemora(t, off)
	p.ready()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	call := func() {
		t.Helper()
		if err := post(client, egress, "x"); err != nil {
			t.Fatal(err)
		}
	}
	call()
	p.reload(on, "applied")
	call()
	p.awaitMetric("remora_tracing_spans_exported_total", 2) // the exchange and its attempt
	p.reload(off, "applied")
	call()
	p.reload(on, "applied")
	call()
	p.awaitMetric("remora_tracing_spans_exported_total", 4)
	if n := p.metric(`remora_tracing_spans_dropped_total{reason="queue"}`); n != 0 {
		t.Errorf("%d spans of requests while tracing was off", n)
	}
	before := exports.Load()
	call()
	p.signal(syscall.SIGTERM)
	if code := p.exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if got := exports.Load(); got != before+1 {
		t.Errorf("%d exports at the end of the process, want 1", got-before)
	}
}
