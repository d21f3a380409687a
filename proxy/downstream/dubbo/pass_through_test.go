package dubbo_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestPassThrough checks that calls of a Dubbo consumer reach the providers byte for byte,
// over one connection each, and that the responses come back in the same way, in any
// order.
func TestPassThrough(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		for name, as := range proxytest.Serializations {
			t.Run(name, func(t *testing.T) {
				m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{OneHop: direct})
				m.W.Options.Cut = 0.3
				rnd := m.W.Rand()
				got := map[string]bool{}
				for _, a := range m.Apps {
					a.Delay = func() time.Duration { return time.Duration(rnd.IntN(5000)) * time.Microsecond }
					a.OnCall = func(f *dubbo.Frame) {
						if !f.TwoWay || f.Serialization != as.ID {
							t.Errorf("the provider got %+v", f)
						}
						got[string(f.Body)] = true
					}
				}
				c := m.DialDubbo(proxytest.EgressDubbo)
				want := map[int64]*dubbo.Frame{}
				order := []int64{}
				for i := range 300 {
					size := rnd.IntN(300)
					if i%50 == 0 {
						size = 100_000
					}
					body := as.Call(proxytest.DemoService, "1.0", "g", "echo", fmt.Sprint(i, strings.Repeat("x", size)))
					id := c.Call(as.ID, body)
					want[id] = proxytest.EchoCall(&dubbo.Frame{Serialization: as.ID, Body: body})
					order = append(order, id)
				}
				for id, f := range want {
					a := c.Await(id)
					if a.Status != dubbo.StatusOK || a.Serialization != as.ID || !bytes.Equal(a.Body, f.Body) {
						t.Errorf("response %.100q, want %.100q", a.Body, f.Body)
					}
				}
				if len(got) != len(order) {
					t.Errorf("%d different calls arrived, of %d", len(got), len(order))
				}
				for _, a := range m.Apps {
					if a.Accepted != 1 || a.Served == 0 {
						t.Errorf("%s: %d connections, %d calls", a.Addr, a.Accepted, a.Served)
					}
				}
				m.Settled()
			})
		}
	})
}

// TestPassThroughKeepsStatus checks that a response keeps the provider's status and
// serialization.
func TestPassThroughKeepsStatus(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{OneHop: direct, Apps: 1})
		c := m.DialDubbo(proxytest.EgressDubbo)
		for _, status := range []dubbo.Status{20, 30, 31, 40, 50, 60, 70, 80, 90, 105} {
			m.Apps[0].Respond = func(*dubbo.Frame) *dubbo.Frame {
				return &dubbo.Frame{Serialization: dubbo.Fastjson, Status: status, Body: []byte("anything")}
			}
			f := c.Await(c.Call(dubbo.Hessian2, proxytest.HessianCall(proxytest.DemoService, "", "", "m", "x")))
			if f.Status != status || f.Serialization != dubbo.Fastjson || string(f.Body) != "anything" {
				t.Errorf("got %+v for status %d", f, status)
			}
		}
		m.Settled()
	})
}

// TestOneWayCalls checks that a one-way call reaches a provider, gets no response and
// leaves nothing in use.
func TestOneWayCalls(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{OneHop: direct, Apps: 1})
		body := proxytest.HessianCall(proxytest.DemoService, "", "", "log", "x")
		arrived := 0
		m.Apps[0].OnCall = func(f *dubbo.Frame) {
			if f.TwoWay || !bytes.Equal(f.Body, body) {
				t.Errorf("the provider got %+v", f)
			}
			arrived++
		}
		m.Apps[0].Delay = func() time.Duration { return time.Hour }
		c := m.DialDubbo(proxytest.EgressDubbo)
		for id := range int64(5) {
			c.Send(dubbo.AppendFrame(nil, &dubbo.Frame{Request: true, Serialization: dubbo.Hessian2, ID: id, Body: body}))
		}
		m.RunUntil("the calls", func() bool { return arrived == 5 })
		m.W.Run(100 * time.Millisecond)
		if n := m.Consumer.Proc.Pending(); n != 0 {
			t.Errorf("%d calls are pending", n)
		}
		m.Settled()
		m.Apps[0].Stop()
		m.W.Faults.Crash(m.Apps[0].Loop)
		c.Send(dubbo.AppendFrame(nil, &dubbo.Frame{Request: true, Serialization: dubbo.Hessian2, ID: 5, Body: body}))
		m.W.Run(time.Second)
		m.Settled() // fails if the caller got a response
	})
}

// TestRoutes checks that routes match the service, version, group and method of a call,
// and that a route with a condition of HTTP takes no call.
func TestRoutes(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Routes: `
- {match: {service: com.acme.A, version: "1.0", group: g, method: [find]}, service: compute}
- {match: {service: com.acme.B}, service: compute}
- {match: {service: com.acme.C, method: [GET]}, service: compute, timeout: 50ms}
- {match: {path: /}, service: other}`})
	c := m.DialDubbo(proxytest.EgressDubbo)
	for name, as := range proxytest.Serializations {
		for _, call := range []struct {
			service, version, group, method string
			want                            dubbo.Status
		}{
			{"com.acme.A", "1.0", "g", "find", dubbo.StatusOK},
			{"com.acme.A", "1.1", "g", "find", dubbo.StatusServiceNotFound},
			{"com.acme.A", "", "g", "find", dubbo.StatusServiceNotFound},
			{"com.acme.A", "1.0", "h", "find", dubbo.StatusServiceNotFound},
			{"com.acme.A", "1.0", "", "find", dubbo.StatusServiceNotFound},
			{"com.acme.A", "1.0", "g", "found", dubbo.StatusServiceNotFound},
			{"com.acme.Aa", "1.0", "g", "find", dubbo.StatusServiceNotFound},
			{"com.acme.B", "", "", "any", dubbo.StatusOK},
			{"com.acme.B", "2", "x", "any", dubbo.StatusOK},
			{"com.acme.C", "", "", "GET", dubbo.StatusOK},
		} {
			if f := c.Await(c.Call(as.ID, as.Call(call.service, call.version, call.group, call.method, "x"))); f.Status != call.want {
				t.Errorf("%s: status %d for %+v", name, f.Status, call)
			}
		}
	}
	k := m.JSONCall("GET", `["x"]`)
	m.Do(k)
	m.Finish(k)
	if k.Status != 503 || k.Code != "no-endpoint" {
		t.Errorf("status %d %s for an HTTP request, want 503 no-endpoint of service other", k.Status, k.Code)
	}
	m.Settled()
}

// TestMethodNamedGETIsNotIdempotent checks that a Dubbo method with the name GET is not
// taken for HTTP's.
func TestMethodNamedGETIsNotIdempotent(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{OneHop: true, Apps: 1, Service: "retry: {on: [reset]}"})
	m.Apps[0].OnCall = func(*dubbo.Frame) { m.W.At(0, func() { m.W.Faults.Crash(m.Apps[0].Loop) }) }
	c := m.DialDubbo(proxytest.EgressDubbo)
	c.CheckResult(c.Call(dubbo.Hessian2, proxytest.HessianCall(proxytest.DemoService, "", "", "GET", "x")), dubbo.StatusServerError, "")
	if n := m.Consumer.Stats("compute").Retries; n != 0 {
		t.Errorf("%d retries", n)
	}
	m.Settled()
}

// TestHedges checks that late calls are hedged if their route says that they are
// idempotent, and that the late response of the loser is dropped.
func TestHedges(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{OneHop: direct, Apps: 2, Service: "timeout: 3s", Routes: `
- {match: {service: com.acme.Demo, method: [find]}, service: compute, idempotent: true, hedge: {mode: on, delay: 5ms, budget: 1}}
- {service: compute, hedge: {mode: on, delay: 5ms, budget: 1}}`})
		m.Apps[0].Delay = func() time.Duration { return time.Second }
		c := m.DialDubbo(proxytest.EgressDubbo)
		slow := 0
		for i := range 20 {
			before := m.W.Now()
			c.CheckResult(c.Call(dubbo.Fastjson, proxytest.FastjsonCall(proxytest.DemoService, "", "", "find", fmt.Sprint(i))), dubbo.StatusOK, fmt.Sprintf("1\n\"%d\"\n", i))
			if m.W.Now()-before > 500*time.Millisecond {
				t.Errorf("call %d took %v", i, m.W.Now()-before)
			}
		}
		if m.Apps[0].Busy == 0 {
			t.Error("the slow provider got no call")
		}
		m.W.Run(2 * time.Second)
		for i := range 20 {
			before := m.W.Now()
			c.CheckResult(c.Call(dubbo.Fastjson, proxytest.FastjsonCall(proxytest.DemoService, "", "", "put", fmt.Sprint(i))), dubbo.StatusOK, "")
			if m.W.Now()-before > 500*time.Millisecond {
				slow++
			}
		}
		if slow == 0 {
			t.Error("calls that may not be sent twice were hedged")
		}
		m.Settled()
		for _, a := range m.Apps {
			if a.Accepted != 1 {
				t.Errorf("%d connections to %s", a.Accepted, a.Addr)
			}
		}
	})
}
