package dubbo_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestExhaustedPools: a provider without a free thread has not begun the call, so
// it goes elsewhere; the caller learns of it when there is nowhere else.
func TestExhaustedPools(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Direct: direct, Apps: 2, Service: ", retry: {attempts: 3, on: [refused]}, hedge: {budget: 1}"})
		m.Apps[0].Pool, m.Apps[1].Pool = 1, 1000
		for _, a := range m.Apps {
			a.Delay = func() time.Duration { return 20 * time.Millisecond }
		}
		c := m.DialDubbo(proxytest.EgressDubbo)
		var ids []int64
		for range 100 {
			ids = append(ids, c.CallHessian("m", "x"))
		}
		for _, id := range ids {
			c.CheckResult(id, dubbo.StatusOK, "")
		}
		if m.Apps[0].Refused == 0 {
			t.Error("no pool was exhausted")
		}
		m.Apps[1].Pool = 1
		ids = ids[:0]
		for range 100 {
			ids = append(ids, c.CallHessian("m", "x"))
		}
		served := 0
		for _, id := range ids {
			switch f := c.Await(id); f.Status {
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
		m.Settled()
	})
}

// TestThePoolIsNeverExhausted: with max_concurrency at the provider's pool, calls
// wait in the sidecar's queue instead.
func TestThePoolIsNeverExhausted(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Provider: ", max_concurrency: 4", Service: ", lb: {policy: random}"})
	for _, a := range m.Apps {
		a.Pool = 4
		a.Delay = func() time.Duration { return 5 * time.Millisecond }
	}
	c := m.DialDubbo(proxytest.EgressDubbo)
	var ids []int64
	for range 300 {
		ids = append(ids, c.CallHessian("m", "x"))
	}
	for _, id := range ids {
		c.CheckResult(id, dubbo.StatusOK, "")
	}
	for _, a := range m.Apps {
		if a.Refused != 0 || a.MostBusy != 4 {
			t.Errorf("%s: %d calls at a time, %d refused", a.Addr, a.MostBusy, a.Refused)
		}
	}
	m.Settled()
}

// exhausted is the answer of a pool without a free thread.
func exhausted(f *dubbo.Frame) *dubbo.Frame {
	return &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusPoolExhausted}
}

// TestOneAppIsNotAskedTwice: the only application has turned a call away, so no
// sidecar asks it again.
func TestOneAppIsNotAskedTwice(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Direct: direct, Apps: 1, Service: ", retry: {attempts: 3}, hedge: {budget: 1}"})
		asked := 0
		m.Apps[0].OnCall = func(*dubbo.Frame) { asked++ }
		m.Apps[0].Respond = exhausted
		c := m.DialDubbo(proxytest.EgressDubbo)
		c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusPoolExhausted, "")
		k := m.JSONCall("m", `{"args":["x"]}`)
		m.Do(k)
		m.Finish(k)
		if k.Status != 503 || k.Code != "pool-exhausted" {
			t.Errorf("status %d %s", k.Status, k.Code)
		}
		if asked != 2 {
			t.Errorf("the application was asked %d times for two calls", asked)
		}
		m.Settled()
	})
}

// TestPoolsExhaustedForNobody: a call that is turned away when its caller is gone says
// nothing of how fast its provider is.
func TestPoolsExhaustedForNobody(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Direct: true, Apps: 1})
	a := m.Apps[0]
	a.Delay = func() time.Duration { return time.Second }
	for _, answer := range []func(*dubbo.Frame) *dubbo.Frame{exhausted, proxytest.EchoCall} {
		a.Respond = answer
		c := m.DialDubbo(proxytest.EgressDubbo)
		c.CallHessian("m", "x")
		m.RunUntil("the call", func() bool { return a.Busy == 1 })
		m.Clients.Do(func() { c.Conn.Close() })
		m.Settled()
		if e := m.Consumer.Report().Services[0].Endpoints[0]; (e.Latency > 0) != (a.Served == 2) {
			t.Errorf("after %d calls the latency is %v", a.Served, e.Latency)
		}
	}
}

// TestExhaustedPoolsCostRetries: a call that was turned away goes to as many other
// endpoints as it has retries, each for a token.
func TestExhaustedPoolsCostRetries(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		for attempts, want := range map[int]int{1: 2, 2: 3, 3: 3} {
			m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Direct: direct, Service: fmt.Sprintf(", retry: {attempts: %d}", attempts)})
			asked := map[string]int{}
			for _, a := range m.Apps {
				a.Respond = exhausted
				a.OnCall = func(*dubbo.Frame) { asked[a.Addr]++ }
			}
			c := m.DialDubbo(proxytest.EgressDubbo)
			c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusPoolExhausted, "")
			if paid := m.Consumer.Stats("compute").RetriesPaid; len(asked) != want || paid != uint64(want-1) {
				t.Errorf("%d retries: asked %v, %d tokens paid", attempts, asked, paid)
			}
			m.Settled()
		}
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Direct: direct, Service: ", hedge: {budget: 0.01}"})
		for _, a := range m.Apps {
			a.Respond = exhausted
		}
		const calls = 50
		c := m.DialDubbo(proxytest.EgressDubbo)
		for range calls {
			c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusPoolExhausted, "")
		}
		s := m.Consumer.Stats("compute")
		if s.RetriesPaid < 10 || s.RetriesPaid > 11 || s.RetriesPaid+s.RetriesOverBudget != calls {
			t.Errorf("%d retries paid, %d over budget", s.RetriesPaid, s.RetriesOverBudget)
		}
		m.Settled()
	})
}
