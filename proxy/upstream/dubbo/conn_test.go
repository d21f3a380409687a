package dubbo_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestWriteTimeout: a connection closes if the provider takes nothing for timeouts.write, be that calls, or responses to its own
// heartbeats, of which few wait.
func TestWriteTimeout(t *testing.T) {
	for _, what := range []string{"calls", "heartbeats"} {
		t.Run(what, func(t *testing.T) {
			m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "timeout: 20s", Limits: "timeouts: {write: 2s}"})
			a := m.Apps[0]
			c := m.DialDubbo(proxytest.EgressDubbo)
			c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
			provider := a.Conns[0]
			m.W.Faults.PauseReading(provider.Conn, true)
			var ids []int64
			if what == "calls" {
				for range 50 {
					ids = append(ids, c.CallHessian("m", strings.Repeat("x", 30_000)))
				}
			} else {
				asks := bytes.Repeat(dubbo.AppendHeartbeat(nil, dubbo.Hessian2, 1), 50_000)
				a.Loop.Do(func() { provider.Conn.Write(asks) })
			}
			m.W.Run(time.Second)
			if n := m.Consumer.Proc.Buffered(); what == "heartbeats" && (n < mux.MaxOutbound || n > 2*mux.MaxOutbound) {
				t.Errorf("%d bytes are buffered", n)
			}
			if n := m.Consumer.WriteTimeouts(); n != 0 {
				t.Error("a write timeout after a second")
			}
			m.RunUntil("the timeout", func() bool { return m.Consumer.WriteTimeouts() == 1 })
			m.W.Faults.PauseReading(provider.Conn, false)
			m.RunUntil("the close", func() bool { return !provider.Open })
			lost := 0
			for _, id := range ids { // those that were not sent take another connection
				if c.Await(id).Status != dubbo.StatusOK {
					lost++
				}
			}
			if (lost > 0) != (what == "calls") || lost == len(ids) && what == "calls" {
				t.Errorf("%d of %d calls were lost", lost, len(ids))
			}
			c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
			m.Settled()
		})
	}
}

// TestIncompleteFrames: an incomplete response counts in limits.buffered until it is complete, or its connection closes. Frames that
// nobody waits for don't count.
func TestIncompleteFrames(t *testing.T) {
	const size = 100_000
	for _, c := range []struct {
		name    string
		frame   func(call *dubbo.Frame) dubbo.Frame
		counts  bool
		unasked bool // nobody waits for it
	}{
		{name: "response", frame: func(call *dubbo.Frame) dubbo.Frame { return dubbo.Frame{ID: call.ID} }, counts: true},
		{name: "response to nobody", frame: func(call *dubbo.Frame) dubbo.Frame { return dubbo.Frame{ID: call.ID + 1} }, unasked: true},
		{name: "request", frame: func(call *dubbo.Frame) dubbo.Frame { return dubbo.Frame{ID: call.ID, Request: true} }, unasked: true},
		{name: "event", frame: func(*dubbo.Frame) dubbo.Frame { return dubbo.Frame{Event: true, Request: true, TwoWay: true} }, unasked: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, whole := range []bool{true, false} {
				m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "timeout: 60s, retry: {on: []}"})
				a := m.Apps[0]
				a.Respond = proxytest.NoResponse
				var call dubbo.Frame
				a.OnCall = func(f *dubbo.Frame) { call = *f }
				client := m.DialDubbo(proxytest.EgressDubbo)
				id := client.CallHessian("m", "x")
				m.RunUntil("the call", func() bool { return a.Served == 1 })
				before := m.Consumer.Proc.Buffered()
				f := c.frame(&call)
				f.Serialization, f.Status, f.Body = dubbo.Hessian2, dubbo.StatusOK, make([]byte, size)
				text := dubbo.AppendFrame(nil, &f)
				provider := a.Conns[0]
				a.Loop.Do(func() { provider.Conn.Write(text[:size]) })
				m.W.Run(100 * time.Millisecond)
				if n := m.Consumer.Proc.Buffered() - before; (n > size/2) != c.counts {
					t.Errorf("%d bytes more are counted for an incomplete frame", n)
				}
				if whole {
					a.Loop.Do(func() { provider.Conn.Write(text[size:]) })
					m.W.Run(100 * time.Millisecond)
				}
				if whole && c.unasked { // the frame was skipped
					a.Loop.Do(func() {
						provider.Conn.Write(dubbo.AppendFrame(nil, &dubbo.Frame{ID: call.ID, Serialization: dubbo.Hessian2, Status: dubbo.StatusOK, Body: []byte{0x92}}))
					})
				}
				if !whole {
					m.W.Faults.Reset(provider.Conn)
				}
				if got := client.Await(id).Status; (got == dubbo.StatusOK) != whole {
					t.Errorf("whole %t: status %d", whole, got)
				}
				if provider.Answered > 0 {
					t.Error("a long event has a response")
				}
				if n := m.Consumer.Proc.Buffered() - before; n > size/2 {
					t.Errorf("whole %t: %d bytes more are counted in the end", whole, n)
				}
				m.Settled()
			}
		})
	}
}

// TestCallsOfConnection: a connection carries as many calls as it may, and no more.
func TestCallsOfConnection(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "timeout: 60s, max_pending: 10000"})
	a := m.Apps[0]
	a.Delay = func() time.Duration { return time.Second }
	c := m.DialDubbo(proxytest.EgressDubbo)
	var ids []int64
	for range mux.MaxStreams {
		ids = append(ids, c.CallHessian("m", "x"))
	}
	m.RunUntil("the calls", func() bool { return a.Busy == mux.MaxStreams })
	k := m.JSONCall("m", `{"args":["x"]}`)
	m.Do(k)
	m.Finish(k)
	if k.Status != 503 || k.Code != "connection-full" {
		t.Errorf("one call more: status %d %s", k.Status, k.Code)
	}
	for _, id := range ids {
		c.CheckResult(id, dubbo.StatusOK, "")
	}
	m.Settled()
}

// TestIdleConnectionOfRemovedEndpoint: it closes at once, whatever the length of the last response was, and leaves no timer.
func TestIdleConnectionOfRemovedEndpoint(t *testing.T) {
	for name, size := range map[string]int{"a response": 10, "a response above limits.message": proxytest.LongBodySize} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Limits: proxytest.SmallMessages})
			m.Apps[0].Respond = func(f *dubbo.Frame) *dubbo.Frame {
				return &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusOK, Body: make([]byte, size)}
			}
			c := m.DialDubbo(proxytest.EgressDubbo)
			c.Await(c.CallHessian("m", "x"))
			m.Consumer.Update("compute")
			if m.W.Run(10 * time.Millisecond); m.Apps[0].Conns[0].Open {
				t.Error("the connection is open")
			}
			m.Settled()
			m.Clients.Do(func() { c.Conn.Close() })
			m.W.Run(3 * time.Second) // until the loop has released long buffers
			if left := m.W.Leftovers(); len(left) > 0 {
				t.Errorf("left is %q", left)
			}
		})
	}
}

// TestCallsOfLostConnection: all calls in flight on a lost connection fail at once, also behind some that are over.
func TestCallsOfLostConnection(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "timeout: 60s, retry: {on: []}"})
	a := m.Apps[0]
	takes := time.Millisecond
	a.Delay = func() time.Duration { return takes }
	c := m.DialDubbo(proxytest.EgressDubbo)
	var ids []int64
	for i := range 6 {
		if takes = time.Hour; i%2 == 0 {
			takes = 100 * time.Millisecond
		}
		ids = append(ids, c.CallHessian("m", "x"))
		m.W.Run(time.Millisecond)
	}
	for i := 0; i < len(ids); i += 2 {
		c.CheckResult(ids[i], dubbo.StatusOK, "")
	}
	began := m.W.Now()
	m.W.Faults.Reset(a.Conns[0].Conn)
	for i := 1; i < len(ids); i += 2 {
		if got := c.Await(ids[i]).Status; got == dubbo.StatusOK || m.W.Now()-began > time.Second {
			t.Errorf("call %d: status %d after %v", i, got, m.W.Now()-began)
		}
	}
	m.Settled()
}

// TestTimeLeft: the provider learns how long the caller still waits, if the caller has said it, or the service wants it.
func TestTimeLeft(t *testing.T) {
	timeout := regexp.MustCompile(`timeout\D{1,3}(\d+)`)
	for _, c := range []struct {
		service string
		call    func(m *proxytest.Mesh) *proxytest.Call
		from    int // the least number of milliseconds; 0 means none
	}{
		{"timeout: 2s", func(m *proxytest.Mesh) *proxytest.Call { return m.JSONCall("m", `{"args":["x"]}`) }, 0},
		{"timeout: 2s, timeout_header: true", func(m *proxytest.Mesh) *proxytest.Call { return m.JSONCall("m", `{"args":["x"]}`) }, 1900},
		{"timeout: 2s", func(m *proxytest.Mesh) *proxytest.Call {
			return m.JSONCall("m", `{"args":["x"]}`, "x-remora-timeout-ms: 800")
		}, 700},
	} {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: c.service})
		got := 0
		m.Apps[0].OnCall = func(f *dubbo.Frame) {
			if found := timeout.FindSubmatch(f.Body); found != nil {
				got, _ = strconv.Atoi(string(found[1]))
			}
		}
		k := c.call(m.Mesh)
		m.Do(k)
		m.Finish(k)
		if m.OK(k); got < c.from || got > c.from+100 {
			t.Errorf("%s: the provider got a timeout of %d ms, want %d at least", c.service, got, c.from)
		}
		m.Settled()
	}
}

// TestOneWayCall: a call that wants no response is over once it is sent.
func TestOneWayCall(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		for name, as := range proxytest.Serializations {
			m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: direct, Limits: proxytest.LogAll})
			a := m.Apps[0]
			c := m.DialDubbo(proxytest.EgressDubbo)
			f := &dubbo.Frame{Request: true, Serialization: as.ID, ID: 1, Body: as.Call(proxytest.DemoService, "", "", "m", "x")}
			twoWay := true
			a.OnCall = func(f *dubbo.Frame) { twoWay = f.TwoWay }
			c.Send(dubbo.AppendFrame(nil, f))
			m.RunUntil("the call", func() bool { return a.Served == 1 })
			m.Settled()
			if s := m.Consumer.Stats("compute"); twoWay || fmt.Sprint(s.Outcomes) != "[1 0 0 0 0 0]" {
				t.Errorf("%s: the provider was asked for a response: %t; outcomes %v", name, twoWay, s.Outcomes)
			}
			if line := m.Consumer.OnlyAccessLine(); line.Status != 200 {
				t.Errorf("%s: status %d in the access log", name, line.Status)
			}
		}
	})
}

// TestResponseLimits: a response may have limits.message, and no byte more, in a serialization that the caller knows. The connection
// goes on.
func TestResponseLimits(t *testing.T) {
	const most = 64 << 10
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "retry: {on: []}", Limits: proxytest.SmallMessages})
	a := m.Apps[0]
	c := m.DialDubbo(proxytest.EgressDubbo)
	for _, r := range []struct {
		serialization byte
		size          int
		ok            bool
	}{{dubbo.Hessian2, most, true}, {dubbo.Hessian2, most + 1, false}, {21, 10, false}, {dubbo.Hessian2, 10, true}} {
		a.Respond = func(*dubbo.Frame) *dubbo.Frame {
			return &dubbo.Frame{Serialization: r.serialization, Status: dubbo.StatusOK, Body: make([]byte, r.size)}
		}
		if got := c.Await(c.CallHessian("m", "x")); (got.Status == dubbo.StatusOK && len(got.Body) == r.size) != r.ok {
			t.Errorf("%d bytes in serialization %d: status %d, %d bytes", r.size, r.serialization, got.Status, len(got.Body))
		}
		m.Settled()
	}
	if a.Accepted != 1 {
		t.Errorf("%d connections", a.Accepted)
	}
	// The endpoint has done wrong with a serialization that nobody knows, and with nothing else.
	proxytest.Equal(t, "attempts that the endpoint broke", m.Consumer.Report().Services[0].Endpoints[0].Stats.Outcomes[stats.AttemptBroken], uint64(1))
}

// TestCallsAreSentOnce: a call is not sent again with later ones.
func TestCallsAreSentOnce(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true})
	a := m.Apps[0]
	a.Delay = func() time.Duration { return 100 * time.Millisecond }
	c := m.DialDubbo(proxytest.EgressDubbo)
	var ids []int64
	for range 5 {
		ids = append(ids, c.CallHessian("m", "x"), c.CallHessian("m", "x"))
		m.W.Run(10 * time.Millisecond)
	}
	for _, id := range ids {
		c.CheckResult(id, dubbo.StatusOK, "")
	}
	m.W.Run(time.Second)
	if a.Served != len(ids) {
		t.Errorf("%d calls were served of %d", a.Served, len(ids))
	}
	m.Settled()
}

// TestTimeLeftOfDubboCall: the provider learns how long a Dubbo caller still waits, also if that is less than the caller has said.
func TestTimeLeftOfDubboCall(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "timeout: 500ms"})
	timeout, got := regexp.MustCompile(`timeout\D{1,3}(\d+)`), 0
	m.Apps[0].OnCall = func(f *dubbo.Frame) {
		if found := timeout.FindSubmatch(f.Body); found != nil {
			got, _ = strconv.Atoi(string(found[1]))
		}
	}
	c := m.DialDubbo(proxytest.EgressDubbo)
	body := proxytest.HessianCall(proxytest.DemoService, "", "", "m", "x")
	body = append(proxytest.HessianString(proxytest.HessianString(body[:len(body)-1], "timeout"), "800"), 'Z')
	c.CheckResult(c.Call(dubbo.Hessian2, body), dubbo.StatusOK, "")
	if got < 400 || got > 500 {
		t.Errorf("the provider got a timeout of %d ms", got)
	}
	m.Settled()
}
