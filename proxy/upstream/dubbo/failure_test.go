package dubbo_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/registry"
)

// TestDeadlineWithoutResponse checks that calls without a response end at their deadline,
// that the connection stays, and that late responses are dropped.
func TestDeadlineWithoutResponse(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{OneHop: direct, Apps: 1, Service: "timeout: 100ms", Provider: "timeout: 100ms"})
		a := m.Apps[0]
		a.Respond = proxytest.NoResponse
		c := m.DialDubbo(proxytest.EgressDubbo)
		for range 10 {
			c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusServerTimeout, "")
		}
		k := m.JSONCall("m", `{"args":["x"]}`)
		m.Do(k)
		m.Finish(k)
		if k.Status != 504 || k.Code != "deadline" {
			t.Errorf("status %d %s", k.Status, k.Code)
		}
		// Late responses arrive while other calls are in flight.
		a.Respond = proxytest.EchoCall
		a.Delay = func() time.Duration { return 150 * time.Millisecond }
		for i := range 10 {
			c.CheckResult(c.CallHessian("late", fmt.Sprint("late", i)), dubbo.StatusServerTimeout, "")
			a.Delay = func() time.Duration { return 80 * time.Millisecond }
			arg := fmt.Sprint("in time ", i)
			c.CheckResult(c.CallHessian("m", arg), dubbo.StatusOK, string(proxytest.HessianString([]byte{0x91}, arg)))
			a.Delay = func() time.Duration { return 150 * time.Millisecond }
		}
		m.Settled()
		if a.Accepted != 1 {
			t.Errorf("%d connections", a.Accepted)
		}
	})
}

// TestTimeoutOfCaller checks that the attachment timeout shortens the deadline.
func TestTimeoutOfCaller(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1})
	m.Apps[0].Respond = proxytest.NoResponse
	c := m.DialDubbo(proxytest.EgressDubbo)
	body := proxytest.HessianCall(proxytest.DemoService, "", "", "m", "x")
	body = append(proxytest.HessianString(proxytest.HessianString(body[:len(body)-1], "timeout"), "200"), 'Z')
	before := m.W.Now()
	c.CheckResult(c.Call(dubbo.Hessian2, body), dubbo.StatusServerTimeout, "")
	if took := m.W.Now() - before; took < 200*time.Millisecond || took > time.Second {
		t.Errorf("it took %v", took)
	}
	m.Settled()
}

// TestRetriesAfterLostProvider checks that unsent calls are retried at no cost, that sent
// calls are retried only if they are idempotent, and that the next call dials again.
func TestRetriesAfterLostProvider(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{OneHop: direct, Apps: 2, Service: "hedge: {budget: 1}, retry: {attempts: 2, on: [connect, reset]}",
			Routes: "[{match: {service: com.acme.Demo, method: [find]}, service: compute, idempotent: true}, {service: compute}]"})
		m.Slow(50 * time.Millisecond)
		c := m.DialDubbo(proxytest.EgressDubbo)
		var find, put []int64
		for range 20 {
			find = append(find, c.CallHessian("find", "x"))
			put = append(put, c.CallHessian("put", "x"))
		}
		m.RunUntil("the calls at both", func() bool { return m.Apps[0].Busy > 0 && m.Apps[1].Busy > 0 })
		m.W.Faults.Crash(m.Apps[0].Loop)
		for _, id := range find {
			c.CheckResult(id, dubbo.StatusOK, "")
		}
		lost := 0
		for _, id := range put {
			if f := c.Await(id); f.Status != dubbo.StatusOK {
				lost++
				if f.Status != dubbo.StatusServerError {
					t.Errorf("status %d", f.Status)
				}
			}
		}
		if lost == 0 || lost == len(put) {
			t.Errorf("%d of %d calls were lost", lost, len(put))
		}
		for range 20 { // unsent calls of any method are retried
			c.CheckResult(c.CallHessian("put", "x"), dubbo.StatusOK, "")
		}
		m.Apps[0].Restart()
		served := m.Apps[0].Served
		if !m.W.RunUntil(func() bool {
			c.CheckResult(c.CallHessian("put", "x"), dubbo.StatusOK, "")
			return m.Apps[0].Served > served
		}, time.Minute) {
			t.Error("the restarted provider gets no calls")
		}
		m.Settled()
	})
}

// TestHeartbeats checks that both sides respond to heartbeats, so that an idle connection
// stays open, and that the connection to a silent provider closes.
func TestHeartbeats(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "timeout: 5m", Limits: "timeouts: {idle: 10m}"})
	a := m.Apps[0]
	c := m.DialDubbo(proxytest.EgressDubbo)
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
	m.W.Run(5 * time.Minute)
	if a.Heartbeats < 5 || a.Heartbeats > 15 {
		t.Errorf("%d heartbeats in five minutes", a.Heartbeats)
	}
	provider := a.Conns[0]
	for _, serialization := range []byte{dubbo.Hessian2, dubbo.Fastjson} {
		before := provider.Answered
		a.Loop.Do(func() { provider.Conn.Write(dubbo.AppendHeartbeat(nil, serialization, 7)) })
		m.RunUntil("the response to a provider's heartbeat", func() bool { return provider.Answered > before })
		c.Send(dubbo.AppendHeartbeat(nil, serialization, 1<<40))
		m.RunUntil("the response to a consumer's heartbeat", func() bool { return len(c.Events) > 0 })
		if f := c.Events[0]; f.Request || f.ID != 1<<40 || f.Status != dubbo.StatusOK || f.Serialization != serialization {
			t.Errorf("the response to a heartbeat is %+v", f)
		}
		c.Events = nil
	}
	a.Respond, a.IgnoresHeartbeats = proxytest.NoResponse, true
	id := c.CallHessian("m", "x")
	c.CheckResult(id, dubbo.StatusServerError, "")
	m.RunUntil("the close", func() bool { return !provider.Open })
	a.Respond, a.IgnoresHeartbeats = proxytest.EchoCall, false
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
	if a.Accepted != 2 {
		t.Errorf("%d connections", a.Accepted)
	}
	m.Settled()
}

// TestReadOnlyEvent checks that a provider that announces its end gets no more calls on
// that connection, and finishes those it has.
func TestReadOnlyEvent(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true})
	a := m.Apps[0]
	a.Delay = func() time.Duration { return 100 * time.Millisecond }
	c := m.DialDubbo(proxytest.EgressDubbo)
	first := c.CallHessian("m", "first")
	m.RunUntil("the call", func() bool { return a.Busy == 1 })
	old := a.Conns[0]
	a.Loop.Do(func() { old.Conn.Write(dubbo.AppendReadOnly(nil, dubbo.Hessian2)) })
	m.W.Run(10 * time.Millisecond)
	second := c.CallHessian("m", "second")
	c.CheckResult(first, dubbo.StatusOK, "")
	m.RunUntil("the end of the old connection", func() bool { return !old.Open })
	c.CheckResult(second, dubbo.StatusOK, "")
	if a.Accepted != 2 {
		t.Errorf("%d connections", a.Accepted)
	}
	m.Settled()
}

// TestProbeOfEndingProvider checks that no call is lost at a provider that accepts
// connections only to close them, and that it gets calls again when it is back.
func TestProbeOfEndingProvider(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 2, OneHop: direct, Service: "lb: {policy: weighted_round_robin}"})
		a := m.Apps[0]
		c := m.DialDubbo(proxytest.EgressDubbo)
		for range 4 {
			c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
		}
		served, dialed := a.Served, a.Accepted
		a.ClosesNew = true
		a.Loop.Do(func() { a.Conns[0].Conn.Write(dubbo.AppendReadOnly(nil, dubbo.Hessian2)) })
		m.RunUntil("the end of its connection", func() bool { return !a.Conns[0].Open })
		for range 50 {
			ids := []int64{c.CallHessian("m", "x"), c.CallHessian("m", "x")}
			for _, id := range ids {
				c.CheckResult(id, dubbo.StatusOK, "")
			}
		}
		if a.Accepted == dialed || a.Served != served {
			t.Errorf("connected to %d times, %d calls served", a.Accepted-dialed, a.Served-served)
		}
		a.ClosesNew = false
		if !m.W.RunUntil(func() bool {
			c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
			return a.Served > served
		}, time.Minute) {
			t.Error("the restarted provider gets no calls")
		}
		m.Settled()
	})
}

// TestReadOnlyEventDuringProbe checks that a provider that announces its end again while a
// heartbeat probes it is probed again.
func TestReadOnlyEventDuringProbe(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true})
	a := m.Apps[0]
	c := m.DialDubbo(proxytest.EgressDubbo)
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
	down := dubbo.AppendReadOnly(nil, dubbo.Hessian2)
	a.Loop.Do(func() { a.Conns[0].Conn.Write(down) })
	m.RunUntil("the end of the first connection", func() bool { return !a.Conns[0].Open })
	a.IgnoresHeartbeats = true
	second := c.CallHessian("m", "second")
	m.RunUntil("the probing heartbeat", func() bool { return a.Heartbeats == 1 })
	a.Loop.Do(func() {
		a.Conns[1].Conn.Write(dubbo.AppendHeartbeatAnswer(down, &dubbo.Frame{Serialization: dubbo.Hessian2}))
	})
	c.CheckResult(second, dubbo.StatusOK, "")
	if m.W.Run(10 * time.Millisecond); a.Conns[1].Open {
		t.Error("the second connection is open after its last call")
	}
	a.IgnoresHeartbeats = false
	c.CheckResult(c.CallHessian("m", "third"), dubbo.StatusOK, "")
	m.W.Faults.Reset(a.Conns[2].Conn)
	m.RunUntil("the loss of the third connection", func() bool { return m.Consumer.Report().Services[0].Endpoints[0].Connections == 0 })
	c.CheckResult(c.CallHessian("m", "fourth"), dubbo.StatusOK, "") // no probe: the provider announced no end
	if a.Heartbeats != 2 || a.Accepted != 4 {
		t.Errorf("%d heartbeats on %d connections", a.Heartbeats, a.Accepted)
	}
	m.Settled()
}

// TestLateAnswerDuringProbe checks that a provider that has announced its end on a connection is probed again, although a
// newer connection had a response to its heartbeat before the older one.
func TestLateAnswerDuringProbe(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true})
	a := m.Apps[0]
	c := m.DialDubbo(proxytest.EgressDubbo)
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
	down := dubbo.AppendReadOnly(nil, dubbo.Hessian2)
	a.Loop.Do(func() { a.Conns[0].Conn.Write(down) })
	m.RunUntil("the end of the first connection", func() bool { return !a.Conns[0].Open })
	a.IgnoresHeartbeats = true
	second := c.CallHessian("m", "second")
	m.RunUntil("the heartbeat of the second connection", func() bool { return a.Heartbeats == 1 })
	a.Loop.Do(func() { a.Conns[1].Conn.Write(down) })
	m.W.Run(10 * time.Millisecond)
	a.IgnoresHeartbeats = false
	c.CheckResult(c.CallHessian("m", "third"), dubbo.StatusOK, "")
	a.Loop.Do(func() {
		a.Conns[1].Conn.Write(dubbo.AppendHeartbeatAnswer(nil, &dubbo.Frame{Serialization: dubbo.Hessian2}))
	})
	c.CheckResult(second, dubbo.StatusOK, "")
	m.W.Faults.Reset(a.Conns[2].Conn)
	m.RunUntil("the loss of the third connection", func() bool { return m.Consumer.Report().Services[0].Endpoints[0].Connections == 0 })
	c.CheckResult(c.CallHessian("m", "fourth"), dubbo.StatusOK, "")
	if a.Heartbeats != 3 || a.Accepted != 4 {
		t.Errorf("%d heartbeats on %d connections", a.Heartbeats, a.Accepted)
	}
	m.Settled()
}

// TestRemovedEndpointFinishesCalls checks that the connection to a removed endpoint closes
// after its last response.
func TestRemovedEndpointFinishesCalls(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 2, OneHop: true})
	m.Slow(100 * time.Millisecond)
	c := m.DialDubbo(proxytest.EgressDubbo)
	var ids []int64
	for range 10 {
		ids = append(ids, c.CallHessian("m", "x"))
	}
	m.RunUntil("calls at both", func() bool { return m.Apps[0].Busy > 0 && m.Apps[1].Busy > 0 })
	m.Consumer.Update("compute", registry.Endpoint{Addr: m.Apps[1].Addr, Weight: 1})
	for _, id := range ids {
		c.CheckResult(id, dubbo.StatusOK, "")
	}
	m.RunUntil("the end of the connection", func() bool { return !m.Apps[0].Conns[0].Open })
	if !m.Apps[1].Conns[0].Open {
		t.Error("the remaining endpoint lost its connection")
	}
	m.Settled()
}

// TestProviderThatDoesNotRead checks that most calls to a provider that does not read stay
// unsent, so that they can be retried when it is lost.
func TestProviderThatDoesNotRead(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 2, OneHop: true, Service: "hedge: {budget: 1}, retry: {on: [connect]}, lb: {policy: weighted_round_robin}"})
	a := m.Apps[0]
	c := m.DialDubbo(proxytest.EgressDubbo)
	for range 4 {
		c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
	}
	m.W.Faults.PauseReading(a.Conns[0].Conn, true)
	var ids []int64
	for range 200 {
		ids = append(ids, c.CallHessian("m", strings.Repeat("x", 30_000)))
	}
	m.W.Run(time.Second)
	m.W.Faults.Crash(a.Loop)
	lost := 0
	for _, id := range ids {
		if c.Await(id).Status != dubbo.StatusOK {
			lost++
		}
	}
	if lost == 0 || lost > 50 {
		t.Errorf("%d of 100 calls were lost", lost)
	}
	m.Settled()
}

// TestLostConnection: calls take another connection once a call has reached its deadline at a provider that was silent.
func TestLostConnection(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "timeout: 3s"})
	c := m.DialDubbo(proxytest.EgressDubbo)
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
	first := m.Apps[0].Conns[0]
	m.W.Faults.PauseReading(first.Conn, true)
	if f := c.Await(c.CallHessian("m", "x")); f.Status == dubbo.StatusOK {
		t.Error("a response on a lost connection")
	}
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
	m.W.Faults.PauseReading(first.Conn, false)
	m.RunUntil("the end of the lost connection", func() bool { return !first.Open })
	m.Settled()
}

// TestMalformedResponses checks that bytes other than Dubbo end the connection, and that
// responses to unknown calls are dropped.
func TestMalformedResponses(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Limits: "limits: {message: 1KiB}"})
	a := m.Apps[0]
	c := m.DialDubbo(proxytest.EgressDubbo)
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
	provider := a.Conns[0]
	for _, id := range []int64{0, 1, -1, 1 << 32, 1<<32 + 5, 1<<63 - 1, -1 << 63} {
		response := &dubbo.Frame{Serialization: dubbo.Hessian2, Status: dubbo.StatusOK, ID: id, Body: make([]byte, 10_000)}
		a.Loop.Do(func() { provider.Conn.Write(dubbo.AppendFrame(nil, response)) })
		response.Request = true
		a.Loop.Do(func() { provider.Conn.Write(dubbo.AppendFrame(nil, response)) })
	}
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
	a.Respond = func(f *dubbo.Frame) *dubbo.Frame {
		return &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusOK, Body: make([]byte, 1025)}
	}
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusServerError, "")
	if a.Accepted != 1 {
		t.Errorf("%d connections", a.Accepted)
	}
	a.Respond = proxytest.NoResponse
	id := c.CallHessian("m", "x")
	m.RunUntil("the call", func() bool { return a.Served == 4 })
	a.Loop.Do(func() { provider.Conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) })
	c.CheckResult(id, dubbo.StatusBadResponse, "")
	m.RunUntil("the close", func() bool { return !provider.Open })
	m.Settled()
}

// TestRandomFaults lets providers crash, pause and lose connections under load, for
// several seeds. Every call must get its response, and nothing may be left in use.
func TestRandomFaults(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Seed: seed, OneHop: seed%2 == 0, Provider: "max_concurrency: 16",
				Service: `timeout: 2s, idempotent: true,
				retry: {attempts: 3, per_try_timeout: 40ms}, hedge: {mode: on, budget: 1}`})
			m.W.Options.Cut = 0.2
			rnd := m.W.Rand()
			for _, a := range m.Apps {
				a.Delay = func() time.Duration { return time.Duration(200+rnd.IntN(3000)) * time.Microsecond }
			}
			for at := 20 * time.Millisecond; at < 400*time.Millisecond; at += 100 * time.Millisecond {
				m.W.At(at, func() { m.InjectFault(proxytest.DubboFaults[rnd.IntN(3)], m.Apps[rnd.IntN(len(m.Apps))]) })
			}
			args := map[int64]string{}
			c := m.DialDubbo(proxytest.EgressDubbo)
			for range 50 {
				for range 20 {
					arg := fmt.Sprint(len(args))
					args[c.CallHessian("m", arg)] = arg
				}
				m.W.Run(10 * time.Millisecond)
			}
			for id, arg := range args {
				c.CheckResult(id, dubbo.StatusOK, string(proxytest.HessianString([]byte{0x91}, arg)))
			}
			m.W.Run(500 * time.Millisecond)
			m.Settled()
		})
	}
}

// TestConnectionThatProviderLeaves checks that a connection whose provider is leaving counts until it closes.
func TestConnectionThatProviderLeaves(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true})
	m.Slow(100 * time.Millisecond)
	a := m.Apps[0]
	c := m.DialDubbo(proxytest.EgressDubbo)
	id := c.CallHessian("m", "x")
	m.RunUntil("the call", func() bool { return a.Busy == 1 })
	a.Loop.Do(func() { a.Conns[0].Conn.Write(dubbo.AppendReadOnly(nil, dubbo.Hessian2)) })
	m.W.Run(10 * time.Millisecond)
	connections := func() int { return m.Consumer.Report().Services[0].Endpoints[0].Connections }
	if n := connections(); n != 1 || a.Busy != 1 {
		t.Errorf("%d connections count with %d calls, want one", n, a.Busy)
	}
	c.CheckResult(id, dubbo.StatusOK, "")
	m.RunUntil("the end of the connection", func() bool { return !a.Conns[0].Open })
	if n := connections(); n != 0 {
		t.Errorf("%d connections count after the end", n)
	}
}

// TestDeadlineOfLastCall: a connection whose provider is leaving closes when its last call has reached its deadline.
func TestDeadlineOfLastCall(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "timeout: 100ms"})
	a := m.Apps[0]
	a.Respond = proxytest.NoResponse
	c := m.DialDubbo(proxytest.EgressDubbo)
	id := c.CallHessian("m", "x")
	m.RunUntil("the call", func() bool { return a.Busy == 1 })
	a.Loop.Do(func() { a.Conns[0].Conn.Write(dubbo.AppendReadOnly(nil, dubbo.Hessian2)) })
	c.CheckResult(id, dubbo.StatusServerTimeout, "")
	m.W.Run(time.Second)
	if a.Conns[0].Open {
		t.Error("the connection is open")
	}
	m.Settled()
}

// TestSilentConnection: a connection that was silent until the deadline of a call takes no more calls, also while it has others.
func TestSilentConnection(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "timeout: 3s"})
	c := m.DialDubbo(proxytest.EgressDubbo)
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
	first := m.Apps[0].Conns[0]
	m.W.Faults.PauseReading(first.Conn, true)
	lost := c.CallHessian("m", "x")
	m.W.Run(2 * time.Second)
	later := c.CallHessian("m", "x")
	c.CheckResult(lost, dubbo.StatusServerTimeout, "")
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
	if c.Responses[later] != nil {
		t.Error("the connection has no other call")
	}
	m.W.Faults.PauseReading(first.Conn, false)
	c.CheckResult(later, dubbo.StatusOK, "")
	m.RunUntil("the end of the silent connection", func() bool { return !first.Open })
	m.Settled()
}
