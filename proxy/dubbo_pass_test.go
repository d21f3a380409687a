package proxy_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
)

// serializations of the tests, and how a call is put in them.
var serializations = map[string]struct {
	id   byte
	call func(service, version, group, method, arg string) []byte
}{
	"fastjson": {dubbo.Fastjson, fastjsonCall},
	"hessian2": {dubbo.Hessian2, hessianCall},
}

// eachWay runs a test with a provider's sidecar and without.
func eachWay(t *testing.T, f func(t *testing.T, direct bool)) {
	t.Run("two sidecars", func(t *testing.T) { f(t, false) })
	t.Run("one sidecar", func(t *testing.T) { f(t, true) })
}

// TestDubboPassesThrough: calls of a Dubbo consumer reach the providers byte for
// byte, over one connection each, and their answers come back so, in whatever
// order.
func TestDubboPassesThrough(t *testing.T) {
	eachWay(t, func(t *testing.T, direct bool) {
		for name, as := range serializations {
			t.Run(name, func(t *testing.T) {
				m := newDubboMesh(t, dubboOptions{direct: direct})
				m.w.Options.Cut = 0.3
				rnd := m.w.Rand()
				got := map[string]bool{}
				for _, a := range m.apps {
					a.delay = func() time.Duration { return time.Duration(rnd.IntN(5000)) * time.Microsecond }
					a.seen = func(f *dubbo.Frame) {
						if !f.TwoWay || f.Serialization != as.id {
							t.Errorf("the provider got %+v", f)
						}
						got[string(f.Body)] = true
					}
				}
				c := m.caller(egressDubbo)
				want := map[int64]*dubbo.Frame{}
				order := []int64{}
				for i := range 300 {
					size := rnd.IntN(300)
					if i%50 == 0 {
						size = 100_000
					}
					body := as.call(demo, "1.0", "g", "echo", fmt.Sprint(i, strings.Repeat("x", size)))
					id := c.call(as.id, body)
					want[id] = echoCall(&dubbo.Frame{Serialization: as.id, Body: body})
					order = append(order, id)
				}
				for id, f := range want {
					a := c.await(id)
					if a.Status != dubbo.StatusOK || a.Serialization != as.id || !bytes.Equal(a.Body, f.Body) {
						t.Errorf("answer %.100q, want %.100q", a.Body, f.Body)
					}
				}
				if len(got) != len(order) {
					t.Errorf("%d different calls arrived, of %d", len(got), len(order))
				}
				for _, a := range m.apps {
					if a.dialed != 1 || a.served == 0 {
						t.Errorf("%s: %d connections, %d calls", a.addr, a.dialed, a.served)
					}
				}
				m.settled()
			})
		}
	})
}

// TestDubboAnswersKeepTheirForm: status and serialization are the provider's.
func TestDubboAnswersKeepTheirForm(t *testing.T) {
	eachWay(t, func(t *testing.T, direct bool) {
		m := newDubboMesh(t, dubboOptions{direct: direct, apps: 1})
		c := m.caller(egressDubbo)
		for _, status := range []dubbo.Status{20, 30, 31, 40, 50, 60, 70, 80, 90, 105} {
			m.apps[0].answer = func(*dubbo.Frame) *dubbo.Frame {
				return &dubbo.Frame{Serialization: dubbo.Fastjson, Status: status, Body: []byte("anything")}
			}
			f := c.await(c.call(dubbo.Hessian2, hessianCall(demo, "", "", "m", "x")))
			if f.Status != status || f.Serialization != dubbo.Fastjson || string(f.Body) != "anything" {
				t.Errorf("got %+v for status %d", f, status)
			}
		}
		m.settled()
	})
}

// TestDubboOneWay: a call that wants no answer reaches a provider, gets none, and
// leaves nothing behind.
func TestDubboOneWay(t *testing.T) {
	eachWay(t, func(t *testing.T, direct bool) {
		m := newDubboMesh(t, dubboOptions{direct: direct, apps: 1})
		body := hessianCall(demo, "", "", "log", "x")
		arrived := 0
		m.apps[0].seen = func(f *dubbo.Frame) {
			if f.TwoWay || !bytes.Equal(f.Body, body) {
				t.Errorf("the provider got %+v", f)
			}
			arrived++
		}
		m.apps[0].delay = func() time.Duration { return time.Hour }
		c := m.caller(egressDubbo)
		for id := range int64(5) {
			c.say(dubbo.AppendFrame(nil, &dubbo.Frame{Request: true, Serialization: dubbo.Hessian2, ID: id, Body: body}))
		}
		m.until("the calls", func() bool { return arrived == 5 })
		m.w.Run(100 * time.Millisecond)
		if n := m.consumer.proc.Pending(); n != 0 {
			t.Errorf("%d calls are waited for", n)
		}
		m.settled()
		m.apps[0].stop()
		m.w.Crash(m.apps[0].loop)
		c.say(dubbo.AppendFrame(nil, &dubbo.Frame{Request: true, Serialization: dubbo.Hessian2, ID: 5, Body: body}))
		m.w.Run(time.Second)
		m.settled() // and the caller would have complained of an answer
	})
}

// TestDubboRoutes: routes match service, version, group and method of a call, and
// conditions on HTTP and on Dubbo keep apart.
func TestDubboRoutes(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 1, routes: `
- {match: {service: com.acme.A, version: "1.0", group: g, method: [find]}, service: compute}
- {match: {service: com.acme.B}, service: compute}
- {match: {service: com.acme.C, method: [GET]}, service: compute, timeout: 50ms}
- {match: {path: /}, service: other}`})
	c := m.caller(egressDubbo)
	for name, as := range serializations {
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
			if f := c.await(c.call(as.id, as.call(call.service, call.version, call.group, call.method, "x"))); f.Status != call.want {
				t.Errorf("%s: status %d for %+v", name, f.Status, call)
			}
		}
	}
	k := m.json("GET", `["x"]`)
	m.do(k)
	m.finish(k)
	if k.status != 503 || k.code != "no-endpoint" {
		t.Errorf("status %d %s of a request of HTTP, want that of service other", k.status, k.code)
	}
	m.settled()
}

// TestDubboMethodIsNoHTTPMethod: a method that is called GET may still not be sent
// twice.
func TestDubboMethodIsNoHTTPMethod(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{direct: true, apps: 1, service: ", retry: {on: [reset]}"})
	m.apps[0].seen = func(*dubbo.Frame) { m.w.At(0, func() { m.w.Crash(m.apps[0].loop) }) }
	c := m.caller(egressDubbo)
	c.wants(c.call(dubbo.Hessian2, hessianCall(demo, "", "", "GET", "x")), dubbo.StatusServerError, "")
	if n := m.consumer.stats("compute").Retries; n != 0 {
		t.Errorf("%d retries", n)
	}
	m.settled()
}

// TestDubboHedges: an answer that is late is asked for elsewhere where the route
// says that its methods may be; the loser is dropped when it comes.
func TestDubboHedges(t *testing.T) {
	eachWay(t, func(t *testing.T, direct bool) {
		m := newDubboMesh(t, dubboOptions{direct: direct, apps: 2, service: ", timeout: 3s", routes: `
- {match: {service: com.acme.Demo, method: [find]}, service: compute, idempotent: true, hedge: {mode: on, delay: 5ms, budget: 1}}
- {service: compute, hedge: {mode: on, delay: 5ms, budget: 1}}`})
		m.apps[0].delay = func() time.Duration { return time.Second }
		c := m.caller(egressDubbo)
		slow := 0
		for i := range 20 {
			before := m.w.Now()
			c.wants(c.call(dubbo.Fastjson, fastjsonCall(demo, "", "", "find", fmt.Sprint(i))), dubbo.StatusOK, fmt.Sprintf("1\n\"%d\"\n", i))
			if m.w.Now()-before > 500*time.Millisecond {
				t.Errorf("call %d took %v", i, m.w.Now()-before)
			}
		}
		if m.apps[0].busy == 0 {
			t.Error("the slow provider was not asked")
		}
		m.w.Run(2 * time.Second)
		for i := range 20 {
			before := m.w.Now()
			c.wants(c.call(dubbo.Fastjson, fastjsonCall(demo, "", "", "put", fmt.Sprint(i))), dubbo.StatusOK, "")
			if m.w.Now()-before > 500*time.Millisecond {
				slow++
			}
		}
		if slow == 0 {
			t.Error("calls that may not be sent twice were hedged")
		}
		m.settled()
		for _, a := range m.apps {
			if a.dialed != 1 {
				t.Errorf("%d connections to %s", a.dialed, a.addr)
			}
		}
	})
}
