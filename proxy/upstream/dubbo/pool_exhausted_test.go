package dubbo_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestRetryAfterPoolExhausted checks that a call goes to another provider if one has no
// free thread, and fails if there is no other.
func TestRetryAfterPoolExhausted(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{OneHop: direct, Apps: 2, Service: "retry: {attempts: 3, on: [refused]}, hedge: {budget: 1}"})
		m.Apps[0].Pool, m.Apps[1].Pool = 1, 1000
		m.Slow(20 * time.Millisecond)
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

// TestMaxConcurrencyOfPool checks that with max_concurrency at the size of the provider's
// pool, calls wait in the sidecar's queue and none is refused.
func TestMaxConcurrencyOfPool(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Provider: "max_concurrency: 4", Service: "lb: {policy: random}"})
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

// exhausted is the response of a provider whose pool has no free thread.
func exhausted(f *dubbo.Frame) *dubbo.Frame {
	return &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusPoolExhausted}
}

// TestNoRetryAtSameProvider checks that a provider with an exhausted pool does not get the
// same call again.
func TestNoRetryAtSameProvider(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{OneHop: direct, Apps: 1, Service: "retry: {attempts: 3}, hedge: {budget: 1}"})
		attempts := 0
		m.Apps[0].OnCall = func(*dubbo.Frame) { attempts++ }
		m.Apps[0].Respond = exhausted
		c := m.DialDubbo(proxytest.EgressDubbo)
		c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusPoolExhausted, "")
		k := m.JSONCall("m", `{"args":["x"]}`)
		m.Do(k)
		m.Finish(k)
		if k.Status != 503 || k.Code != "pool-exhausted" {
			t.Errorf("status %d %s", k.Status, k.Code)
		}
		if attempts != 2 {
			t.Errorf("the application got %d attempts of two calls", attempts)
		}
		m.Settled()
	})
}

// TestLatencyIgnoresExhaustedPool checks that the refusal of a withdrawn call is not taken
// for the provider's latency.
func TestLatencyIgnoresExhaustedPool(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{OneHop: true, Apps: 1})
	a := m.Apps[0]
	a.Delay = func() time.Duration { return time.Second }
	for _, respond := range []func(*dubbo.Frame) *dubbo.Frame{exhausted, proxytest.EchoCall} {
		a.Respond = respond
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

// TestRetriesAfterPoolExhausted checks that a refused call goes to three endpoints free of charge, and to
// as many others as it has retries, each for a token. Calls that come where all refuse pay for each.
func TestRetriesAfterPoolExhausted(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		for attempts, want := range map[int]int{1: 4, 2: 5, 3: 5} {
			m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{OneHop: direct, Apps: 5, Service: fmt.Sprintf("retry: {attempts: %d}", attempts)})
			called := map[string]int{}
			for _, a := range m.Apps {
				a.Respond = exhausted
				a.OnCall = func(*dubbo.Frame) { called[a.Addr]++ }
			}
			c := m.DialDubbo(proxytest.EgressDubbo)
			c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusPoolExhausted, "")
			if paid := m.Consumer.Stats("compute").RetriesPaid; len(called) != want || paid != uint64(want-3) {
				t.Errorf("%d retries: called %v, %d tokens paid", attempts, called, paid)
			}
			m.Settled()
		}
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{OneHop: direct, Service: "hedge: {budget: 0.01}"})
		for _, a := range m.Apps {
			a.Respond = exhausted
		}
		const calls = 50
		c := m.DialDubbo(proxytest.EgressDubbo)
		for range calls {
			c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusPoolExhausted, "")
		}
		s := m.Consumer.Stats("compute")
		paid, all := s.RetriesPaid, s.RetriesPaid+s.RetriesOverBudget
		if paid < 10 || paid > 11 || all < calls-10 || all > calls { // the first few calls go to all three free
			t.Errorf("%d retries paid, %d over budget", s.RetriesPaid, s.RetriesOverBudget)
		}
		m.Settled()
	})
}

// TestNoMoveOfRetries checks that a refused call that is itself a retry of its caller goes nowhere else.
func TestNoMoveOfRetries(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{OneHop: direct})
		called := 0
		for _, a := range m.Apps {
			a.Respond = exhausted
			a.OnCall = func(*dubbo.Frame) { called++ }
		}
		k := m.JSONCall("m", `{"args":["x"]}`, "x-remora-attempt: 1")
		m.Do(k)
		m.Finish(k)
		if k.Code != "pool-exhausted" || called != 1 {
			t.Errorf("%s after %d calls", k.Code, called)
		}
		m.Settled()
	})
}
