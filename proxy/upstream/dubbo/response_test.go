package dubbo_test

import (
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestResponsesThatAreSkipped: an incomplete response that nobody can get takes no memory.
func TestResponsesThatAreSkipped(t *testing.T) {
	const size = 100_000
	for _, what := range []string{"above limits.message", "to a caller that has gone"} {
		t.Run(what, func(t *testing.T) {
			limits := ""
			if what == "above limits.message" {
				limits = proxytest.SmallMessages
			}
			m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "timeout: 60s, retry: {on: []}", Limits: limits})
			a := m.Apps[0]
			a.Respond = proxytest.NoResponse
			var call dubbo.Frame
			a.OnCall = func(f *dubbo.Frame) { call = *f }
			c := m.DialDubbo(proxytest.EgressDubbo)
			id := c.CallHessian("m", "x")
			m.RunUntil("the call", func() bool { return a.Served == 1 })
			if limits == "" {
				m.Clients.Do(func() { c.Conn.Close() })
				m.W.Run(100 * time.Millisecond)
			}
			before := m.Consumer.Proc.Buffered()
			text := dubbo.AppendFrame(nil, &dubbo.Frame{ID: call.ID, Serialization: dubbo.Hessian2, Status: dubbo.StatusOK, Body: make([]byte, size)})
			provider := a.Conns[0]
			a.Loop.Do(func() { provider.Conn.Write(text[:size]) })
			m.W.Run(100 * time.Millisecond)
			if n := m.Consumer.Proc.Buffered() - before; n > size/4 {
				t.Errorf("%d bytes more are counted", n)
			}
			a.Loop.Do(func() { provider.Conn.Write(text[size:]) })
			if limits != "" && c.Await(id).Status == dubbo.StatusOK {
				t.Error("the caller has the response")
			}
			a.Respond = proxytest.EchoCall
			other := m.DialDubbo(proxytest.EgressDubbo)
			other.CheckResult(other.CallHessian("m", "x"), dubbo.StatusOK, "")
			if a.Accepted != 1 {
				t.Errorf("%d connections", a.Accepted)
			}
			m.Settled()
		})
	}
}

// TestResponseToUnsentCall: a response that comes before its call was sent is not that of the call.
func TestResponseToUnsentCall(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "timeout: 60s"})
	a := m.Apps[0]
	c := m.DialDubbo(proxytest.EgressDubbo)
	var called []int64
	a.OnCall = func(f *dubbo.Frame) { called = append(called, f.ID) }
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
	provider := a.Conns[0]
	m.W.Faults.PauseReading(provider.Conn, true)
	ids := map[int64]string{}
	const calls = 50
	for i := range calls {
		arg := strings.Repeat(string(rune('a'+i%26)), 30_000)
		ids[c.CallHessian("m", arg)] = arg
	}
	m.W.Run(time.Second)
	// Each call has a place of its own, whose number is the lower half of its id.
	a.Loop.Do(func() {
		for i := range int64(calls) {
			provider.Conn.Write(dubbo.AppendFrame(nil, &dubbo.Frame{ID: called[0] + i, Serialization: dubbo.Hessian2, Status: dubbo.StatusOK, Body: []byte{0x92}}))
		}
	})
	m.W.Run(time.Second)
	early := len(c.Responses) - 1 // without that of the first call
	m.W.Faults.PauseReading(provider.Conn, false)
	right := 0
	for id, arg := range ids {
		if f := c.Await(id); string(f.Body) == string(proxytest.HessianString([]byte{0x91}, arg)) {
			right++
		}
	}
	if early == 0 || early == calls || right != calls-early {
		t.Errorf("%d calls have a response early, and %d of %d the right one", early, right, calls)
	}
	m.Settled()
}
