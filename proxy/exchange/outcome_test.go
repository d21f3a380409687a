package exchange_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/registry"
)

// TestBadResponseRetriedAfterHedge: a retryable bad response is retried although the hedge
// beside it was refused afterwards.
func TestBadResponseRetriedAfterHedge(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 3, Provider: "max_concurrency: 1",
		Service: `idempotent: true, hedge: {mode: on, delay: 5ms, budget: 1}, retry: {attempts: 2, on: [5xx]}`})
	m.Apps.Slow(20 * time.Millisecond)
	m.Apps[0].Status = 503
	calls := m.Burst(3, 10)
	m.OK(calls...)
	m.Settled()
}

// TestRefusalAfterProcessing: a provider that refuses a request which the application may
// have processed must not report it as unprocessed, or a request that is not idempotent
// would be executed twice.
func TestRefusalAfterProcessing(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, Service: "retry: {attempts: 2, on: [connect, refused, reset]}"})
	// After the application has reset the connection the provider tries a dead endpoint, so
	// its last failure is a refused connection.
	provider := m.Nodes[1]
	provider.Update("local",
		registry.Endpoint{Addr: m.Apps[0].Addr, Weight: 1},
		registry.Endpoint{Addr: "10.0.1.1:9", Weight: 1})
	m.W.Run(time.Millisecond)
	m.Apps[0].ResetAll = true
	seen := 0
	for range 20 {
		c := m.Complete(m.Post(10))
		if c.Status == 200 {
			seen++
		} else if c.Code != "upstream-reset" {
			t.Errorf("status %d %s, want upstream-reset", c.Status, c.Code)
		}
	}
	if seen == 0 || seen == 20 {
		t.Errorf("%d of 20 received a response: the case did not occur", seen)
	}
	m.Settled()
}

// TestEndpointChangesProtocol: an endpoint whose registration changes to another protocol
// receives requests in the new one.
func TestEndpointChangesProtocol(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	first := m.Complete(m.Post(10))
	m.W.Faults.Crash(m.Nodes[1].Loop)
	m.W.Net.Listen(m.Apps[0].Host+":15006", m.Apps[0].Loop, func() loop.Receiver { return &proxytest.AppConn{A: m.Apps[0]} })
	m.Consumer.Update("compute", registry.Endpoint{Addr: m.Apps[0].Host + ":15006", Weight: 1, Protocol: "http"})
	m.W.Run(time.Millisecond)
	second := m.Complete(m.Post(10))
	m.OK(first, second)
}
