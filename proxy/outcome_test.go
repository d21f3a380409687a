package proxy_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/registry"
)

// A retryable bad answer is retried although the hedge that was out with it was
// refused afterwards.
func TestBadAnswerIsRetriedWhenTheHedgeFails(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 3, provider: ", max_concurrency: 1",
		service: `, idempotent: true, hedge: {mode: on, delay: 5ms, budget: 1}, retry: {attempts: 2, on: [5xx]}`})
	for _, a := range m.apps {
		a.delay = func() time.Duration { return 20 * time.Millisecond }
	}
	m.apps[0].status = 503
	calls := m.burst(3, 10)
	m.finish(calls...)
	m.ok(calls...)
	m.settled()
}

// Who refuses a request after the application has had it must not promise that
// it has not: what is not idempotent would be executed twice.
func TestRefusalTellsWhetherTheApplicationHadIt(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 2, service: ", retry: {attempts: 2, on: [connect, refused, reset]}"})
	// The provider asks a dead endpoint after the application has reset the
	// connection: its last failure is a refused connection.
	provider := m.nodes[1]
	provider.update("local",
		registry.Endpoint{Addr: m.apps[0].addr, Weight: 1},
		registry.Endpoint{Addr: "10.0.1.1:9", Weight: 1})
	m.w.Run(time.Millisecond)
	m.apps[0].resetAll = true
	seen := 0
	for range 20 {
		c := m.post(10)
		m.do(c)
		m.finish(c)
		if c.status == 200 {
			seen++
		} else if c.code != "upstream-reset" {
			t.Errorf("status %d %s, want upstream-reset", c.status, c.code)
		}
	}
	if seen == 0 || seen == 20 {
		t.Errorf("%d of 20 answered: the case did not arise", seen)
	}
	m.settled()
}

// An endpoint that goes on under its address with another protocol is spoken to
// in the new one.
func TestProtocolOfAnEndpointChanges(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1})
	first := m.post(10)
	m.do(first)
	m.finish(first)
	m.w.Crash(m.nodes[1].loop)
	m.w.Listen(m.apps[0].host+":15006", m.apps[0].loop, func() proxy.Stream { return &appConn{a: m.apps[0]} })
	m.consumer.update("compute", registry.Endpoint{Addr: m.apps[0].host + ":15006", Weight: 1, Protocol: "http"})
	m.w.Run(time.Millisecond)
	second := m.post(10)
	m.do(second)
	m.finish(second)
	m.ok(first, second)
}

// Some clients end a body with an empty line more. It is no request.
func TestEmptyLineAfterABody(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1})
	c := m.post(10)
	c.raw = append(c.raw, "\r\n"...)
	cl := m.do(c)
	m.finish(c)
	m.ok(c)
	m.w.Run(time.Minute)
	if cl.ended || len(cl.in) > 0 {
		t.Errorf("ended %v, got %q a minute later", cl.ended, cl.in)
	}
	m.settled()
}
