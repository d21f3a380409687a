package dubbo_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestMemoryOfHeldResponse: a response that waits for a better one counts once, also if it was converted.
func TestMemoryOfHeldResponse(t *testing.T) {
	const size = 100_000
	for name, call := range map[string]func(m *proxytest.Mesh, c *proxytest.DubboClient) (check func()){
		"passed on": func(_ *proxytest.Mesh, c *proxytest.DubboClient) func() {
			id := c.CallHessian("m", "x")
			return func() { c.CheckResult(id, dubbo.StatusServerError, "") }
		},
		"converted": func(m *proxytest.Mesh, _ *proxytest.DubboClient) func() {
			k := m.JSONCall("m", `{"args":["x"]}`)
			m.Do(k)
			return func() {
				m.Finish(k)
				proxytest.Equal(m.T, "status", k.Status, 500)
			}
		},
	} {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 2, OneHop: true,
			Service: `timeout: 5s, idempotent: true, retry: {on: ["5xx"]}, hedge: {budget: 1}, serialization: fastjson`})
		served := 0
		for _, a := range m.Apps {
			a.Respond = func(f *dubbo.Frame) *dubbo.Frame {
				if served++; served > 1 {
					return nil
				}
				body := append(append([]byte(`"`), bytes.Repeat([]byte("x"), size)...), `"`+"\n"...)
				return &dubbo.Frame{Serialization: dubbo.Fastjson, Status: dubbo.StatusServerError, Body: body}
			}
		}
		check := call(m.Mesh, m.DialDubbo(proxytest.EgressDubbo))
		m.RunUntil("the second attempt", func() bool { return served == 2 })
		m.W.Run(10 * time.Millisecond)
		if held := m.Consumer.Proc.Held(); held < size || held > 2*size {
			t.Errorf("%s: %d bytes are held for a response of %d", name, held, size)
		}
		check()
		m.Settled()
	}
}

// TestMemoryOfResponses: the memory of a long response serves the next one, whether the caller gets the response or not.
func TestMemoryOfResponses(t *testing.T) {
	const size = 100_000
	for name, f := range map[string]dubbo.Frame{
		"passed on":           {Serialization: dubbo.Hessian2, Status: dubbo.StatusOK},
		"no free thread":      {Serialization: dubbo.Hessian2, Status: dubbo.StatusPoolExhausted},
		"other serialization": {Serialization: 21, Status: dubbo.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "retry: {on: []}"})
			m.Apps[0].Respond = func(*dubbo.Frame) *dubbo.Frame {
				return &dubbo.Frame{Serialization: f.Serialization, Status: f.Status, Body: make([]byte, size)}
			}
			c := m.DialDubbo(proxytest.EgressDubbo)
			c.Await(c.CallHessian("m", "x"))
			first := m.Consumer.Proc.Kept()
			if first < size {
				t.Errorf("%d bytes are kept for the next response", first)
			}
			for range 3 {
				c.Await(c.CallHessian("m", "x"))
			}
			if kept := m.Consumer.Proc.Kept(); kept != first {
				t.Errorf("%d bytes are kept after four calls, %d after one", kept, first)
			}
			m.Settled()
		})
	}
}
