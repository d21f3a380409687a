package proxy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
)

// TestExhaustedPools: a provider without a free thread has not begun the call, so
// it goes elsewhere; the caller learns of it when there is nowhere else.
func TestExhaustedPools(t *testing.T) {
	eachWay(t, func(t *testing.T, direct bool) {
		m := newDubboMesh(t, dubboOptions{direct: direct, apps: 2, service: ", retry: {attempts: 3, on: [refused]}, hedge: {budget: 1}"})
		m.apps[0].pool, m.apps[1].pool = 1, 1000
		for _, a := range m.apps {
			a.delay = func() time.Duration { return 20 * time.Millisecond }
		}
		c := m.caller(egressDubbo)
		var ids []int64
		for range 100 {
			ids = append(ids, c.hessian("m", "x"))
		}
		for _, id := range ids {
			c.wants(id, dubbo.StatusOK, "")
		}
		if m.apps[0].refused == 0 {
			t.Error("no pool was exhausted")
		}
		m.apps[1].pool = 1
		ids = ids[:0]
		for range 100 {
			ids = append(ids, c.hessian("m", "x"))
		}
		served := 0
		for _, id := range ids {
			switch f := c.await(id); f.Status {
			case dubbo.StatusOK:
				served++
			case dubbo.StatusPoolExhausted:
			default:
				t.Errorf("status %d", f.Status)
			}
		}
		if served < 2 || served == 100 {
			t.Errorf("%d of 100 were served by two threads", served)
		}
		m.settled()
	})
}

// TestThePoolIsNeverExhausted: with max_concurrency at the provider's pool, calls
// wait in the sidecar's queue instead.
func TestThePoolIsNeverExhausted(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{provider: ", max_concurrency: 4", service: ", lb: {policy: random}"})
	for _, a := range m.apps {
		a.pool = 4
		a.delay = func() time.Duration { return 5 * time.Millisecond }
	}
	c := m.caller(egressDubbo)
	var ids []int64
	for range 300 {
		ids = append(ids, c.hessian("m", "x"))
	}
	for _, id := range ids {
		c.wants(id, dubbo.StatusOK, "")
	}
	for _, a := range m.apps {
		if a.refused != 0 || a.most != 4 {
			t.Errorf("%s: %d calls at a time, %d refused", a.addr, a.most, a.refused)
		}
	}
	m.settled()
}

// exhausted is the answer of a pool without a free thread.
func exhausted(f *dubbo.Frame) *dubbo.Frame {
	return &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusPoolExhausted}
}

// TestOneAppIsNotAskedTwice: the only application has turned a call away, so no
// sidecar asks it again.
func TestOneAppIsNotAskedTwice(t *testing.T) {
	eachWay(t, func(t *testing.T, direct bool) {
		m := newDubboMesh(t, dubboOptions{direct: direct, apps: 1, service: ", retry: {attempts: 3}, hedge: {budget: 1}"})
		asked := 0
		m.apps[0].seen = func(*dubbo.Frame) { asked++ }
		m.apps[0].answer = exhausted
		c := m.caller(egressDubbo)
		c.wants(c.hessian("m", "x"), dubbo.StatusPoolExhausted, "")
		k := m.json("m", `{"args":["x"]}`)
		m.do(k)
		m.finish(k)
		if k.status != 503 || k.code != "pool-exhausted" {
			t.Errorf("status %d %s", k.status, k.code)
		}
		if asked != 2 {
			t.Errorf("the application was asked %d times for two calls", asked)
		}
		m.settled()
	})
}

// TestPoolsExhaustedForNobody: a call that is turned away when its caller is gone says
// nothing of how fast its provider is.
func TestPoolsExhaustedForNobody(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{direct: true, apps: 1})
	a := m.apps[0]
	a.delay = func() time.Duration { return time.Second }
	for _, answer := range []func(*dubbo.Frame) *dubbo.Frame{exhausted, echoCall} {
		a.answer = answer
		c := m.caller(egressDubbo)
		c.hessian("m", "x")
		m.until("the call", func() bool { return a.busy == 1 })
		m.clients.Do(func() { c.conn.Close() })
		m.settled()
		if e := m.consumer.report().Services[0].Endpoints[0]; (e.Latency > 0) != (a.served == 2) {
			t.Errorf("after %d calls the latency is %v", a.served, e.Latency)
		}
	}
}

// TestExhaustedPoolsCostRetries: a call that was turned away goes to as many other
// endpoints as it has retries, each for a token.
func TestExhaustedPoolsCostRetries(t *testing.T) {
	eachWay(t, func(t *testing.T, direct bool) {
		for attempts, want := range map[int]int{1: 2, 2: 3, 3: 3} {
			m := newDubboMesh(t, dubboOptions{direct: direct, service: fmt.Sprintf(", retry: {attempts: %d}", attempts)})
			asked := map[string]int{}
			for _, a := range m.apps {
				a.answer = exhausted
				a.seen = func(*dubbo.Frame) { asked[a.addr]++ }
			}
			c := m.caller(egressDubbo)
			c.wants(c.hessian("m", "x"), dubbo.StatusPoolExhausted, "")
			if paid := m.consumer.stats("compute").RetriesPaid; len(asked) != want || paid != uint64(want-1) {
				t.Errorf("%d retries: asked %v, %d tokens paid", attempts, asked, paid)
			}
			m.settled()
		}
		m := newDubboMesh(t, dubboOptions{direct: direct, service: ", hedge: {budget: 0.01}"})
		for _, a := range m.apps {
			a.answer = exhausted
		}
		const calls = 50
		c := m.caller(egressDubbo)
		for range calls {
			c.wants(c.hessian("m", "x"), dubbo.StatusPoolExhausted, "")
		}
		s := m.consumer.stats("compute")
		if s.RetriesPaid < 10 || s.RetriesPaid > 11 || s.RetriesPaid+s.RetriesOverBudget != calls {
			t.Errorf("%d retries paid, %d over budget", s.RetriesPaid, s.RetriesOverBudget)
		}
		m.settled()
	})
}
