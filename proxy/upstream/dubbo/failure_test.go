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

// TestProviderThatNeverAnswers: the deadline covers what is never answered. The
// connection stays, and an answer that comes after all is for nobody.
func TestProviderThatNeverAnswers(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Direct: direct, Apps: 1, Service: ", timeout: 100ms", Provider: ", timeout: 100ms"})
		a := m.Apps[0]
		a.Answer = proxytest.NoAnswer
		c := m.Caller(proxytest.EgressDubbo)
		for range 10 {
			c.Wants(c.Hessian("m", "x"), dubbo.StatusServerTimeout, "")
		}
		k := m.JSON("m", `{"args":["x"]}`)
		m.Do(k)
		m.Finish(k)
		if k.Status != 504 || k.Code != "deadline" {
			t.Errorf("status %d %s", k.Status, k.Code)
		}
		// Answers come 50 ms too late, while calls that are out have their places.
		a.Answer = proxytest.EchoCall
		a.Delay = func() time.Duration { return 150 * time.Millisecond }
		for i := range 10 {
			c.Wants(c.Hessian("late", fmt.Sprint("late", i)), dubbo.StatusServerTimeout, "")
			a.Delay = func() time.Duration { return 80 * time.Millisecond }
			arg := fmt.Sprint("in time ", i)
			c.Wants(c.Hessian("m", arg), dubbo.StatusOK, string(proxytest.HessianString([]byte{0x91}, arg)))
			a.Delay = func() time.Duration { return 150 * time.Millisecond }
		}
		m.Settled()
		if a.Dialed != 1 {
			t.Errorf("%d connections", a.Dialed)
		}
	})
}

// TestTheCallersTimeoutCounts: a call that says how long its caller waits is not
// waited for any longer.
func TestTheCallersTimeoutCounts(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1})
	m.Apps[0].Answer = proxytest.NoAnswer
	c := m.Caller(proxytest.EgressDubbo)
	body := proxytest.HessianCall(proxytest.Demo, "", "", "m", "x")
	body = append(proxytest.HessianString(proxytest.HessianString(body[:len(body)-1], "timeout"), "200"), 'Z')
	before := m.W.Now()
	c.Wants(c.Call(dubbo.Hessian2, body), dubbo.StatusServerTimeout, "")
	if took := m.W.Now() - before; took < 200*time.Millisecond || took > time.Second {
		t.Errorf("it took %v", took)
	}
	m.Settled()
}

// TestLostProviders: calls that were not sent go elsewhere for free, those that
// were only if they may be sent twice; the next one dials anew.
func TestLostProviders(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Direct: direct, Apps: 2, Service: ", hedge: {budget: 1}, retry: {attempts: 2, on: [connect, reset]}",
			Routes: "[{match: {service: com.acme.Demo, method: [find]}, service: compute, idempotent: true}, {service: compute}]"})
		for _, a := range m.Apps {
			a.Delay = func() time.Duration { return 50 * time.Millisecond }
		}
		c := m.Caller(proxytest.EgressDubbo)
		var find, put []int64
		for range 20 {
			find = append(find, c.Hessian("find", "x"))
			put = append(put, c.Hessian("put", "x"))
		}
		m.Until("the calls at both", func() bool { return m.Apps[0].Busy > 0 && m.Apps[1].Busy > 0 })
		m.W.Crash(m.Apps[0].Loop)
		for _, id := range find {
			c.Wants(id, dubbo.StatusOK, "")
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
		for range 20 { // nothing was sent: any method
			c.Wants(c.Hessian("put", "x"), dubbo.StatusOK, "")
		}
		m.Apps[0].Restart()
		served := m.Apps[0].Served
		if !m.W.RunUntil(func() bool {
			c.Wants(c.Hessian("put", "x"), dubbo.StatusOK, "")
			return m.Apps[0].Served > served
		}, time.Minute) {
			t.Error("the provider that is back is not called")
		}
		m.Settled()
	})
}

// TestHeartbeats: an idle connection stays, for both sides see that the other is
// there; one whose provider is silent is closed, and what was out on it is lost.
func TestHeartbeats(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Direct: true, Service: ", timeout: 5m", Limits: "timeouts: {idle: 10m}"})
	a := m.Apps[0]
	c := m.Caller(proxytest.EgressDubbo)
	c.Wants(c.Hessian("m", "x"), dubbo.StatusOK, "")
	m.W.Run(5 * time.Minute)
	if a.Beats < 5 || a.Beats > 15 {
		t.Errorf("%d heartbeats in five minutes", a.Beats)
	}
	provider := a.Conns[0]
	for _, serialization := range []byte{dubbo.Hessian2, dubbo.Fastjson} {
		before := provider.Answered
		a.Loop.Do(func() { provider.Conn.Write(dubbo.AppendHeartbeat(nil, serialization, 7)) })
		m.Until("the answer to a provider's heartbeat", func() bool { return provider.Answered > before })
		c.Say(dubbo.AppendHeartbeat(nil, serialization, 1<<40))
		m.Until("the answer to a consumer's heartbeat", func() bool { return len(c.Events) > 0 })
		if f := c.Events[0]; f.Request || f.ID != 1<<40 || f.Status != dubbo.StatusOK || f.Serialization != serialization {
			t.Errorf("the answer to a heartbeat is %+v", f)
		}
		c.Events = nil
	}
	a.Answer, a.Deaf = proxytest.NoAnswer, true
	id := c.Hessian("m", "x")
	c.Wants(id, dubbo.StatusServerError, "")
	m.Until("the close", func() bool { return !provider.Open })
	a.Answer, a.Deaf = proxytest.EchoCall, false
	c.Wants(c.Hessian("m", "x"), dubbo.StatusOK, "")
	if a.Dialed != 2 {
		t.Errorf("%d connections", a.Dialed)
	}
	m.Settled()
}

// TestProviderThatGoesDown: one that says so gets no more calls on that
// connection, and answers those it has.
func TestProviderThatGoesDown(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Direct: true})
	a := m.Apps[0]
	a.Delay = func() time.Duration { return 100 * time.Millisecond }
	c := m.Caller(proxytest.EgressDubbo)
	first := c.Hessian("m", "first")
	m.Until("the call", func() bool { return a.Busy == 1 })
	old := a.Conns[0]
	a.Loop.Do(func() { old.Conn.Write(dubbo.AppendReadOnly(nil, dubbo.Hessian2)) })
	m.W.Run(10 * time.Millisecond)
	second := c.Hessian("m", "second")
	c.Wants(first, dubbo.StatusOK, "")
	m.Until("the end of the old connection", func() bool { return !old.Open })
	c.Wants(second, dubbo.StatusOK, "")
	if a.Dialed != 2 {
		t.Errorf("%d connections", a.Dialed)
	}
	m.Settled()
}

// TestProviderThatTurnsConnectionsAway: one that goes down still accepts connections,
// to close them at once. No call is lost there, though none may be sent twice, and
// when the provider is back it is called again.
func TestProviderThatTurnsConnectionsAway(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 2, Direct: direct, Service: ", lb: {policy: weighted_round_robin}"})
		a := m.Apps[0]
		c := m.Caller(proxytest.EgressDubbo)
		for range 4 {
			c.Wants(c.Hessian("m", "x"), dubbo.StatusOK, "")
		}
		served, dialed := a.Served, a.Dialed
		a.Leaves = true
		a.Loop.Do(func() { a.Conns[0].Conn.Write(dubbo.AppendReadOnly(nil, dubbo.Hessian2)) })
		m.Until("the end of its connection", func() bool { return !a.Conns[0].Open })
		for range 50 {
			ids := []int64{c.Hessian("m", "x"), c.Hessian("m", "x")}
			for _, id := range ids {
				c.Wants(id, dubbo.StatusOK, "")
			}
		}
		if a.Dialed == dialed || a.Served != served {
			t.Errorf("connected to %d times, %d calls served", a.Dialed-dialed, a.Served-served)
		}
		a.Leaves = false
		if !m.W.RunUntil(func() bool {
			c.Wants(c.Hessian("m", "x"), dubbo.StatusOK, "")
			return a.Served > served
		}, time.Minute) {
			t.Error("the provider that is back is not called")
		}
		m.Settled()
	})
}

// TestProviderThatGoesDownAgain: one that says so once more, as it proves to be back, has
// to prove it once more.
func TestProviderThatGoesDownAgain(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Direct: true})
	a := m.Apps[0]
	c := m.Caller(proxytest.EgressDubbo)
	c.Wants(c.Hessian("m", "x"), dubbo.StatusOK, "")
	down := dubbo.AppendReadOnly(nil, dubbo.Hessian2)
	a.Loop.Do(func() { a.Conns[0].Conn.Write(down) })
	m.Until("the end of the first connection", func() bool { return !a.Conns[0].Open })
	a.Deaf = true
	second := c.Hessian("m", "second")
	m.Until("the question whether it is back", func() bool { return a.Beats == 1 })
	a.Loop.Do(func() {
		a.Conns[1].Conn.Write(dubbo.AppendHeartbeatAnswer(down, &dubbo.Frame{Serialization: dubbo.Hessian2}))
	})
	c.Wants(second, dubbo.StatusOK, "")
	m.Until("the end of the second connection", func() bool { return !a.Conns[1].Open })
	a.Deaf = false
	c.Wants(c.Hessian("m", "third"), dubbo.StatusOK, "")
	m.W.Reset(a.Conns[2].Conn)
	m.Until("the loss of the third connection", func() bool { return m.Consumer.Report().Services[0].Endpoints[0].Connections == 0 })
	c.Wants(c.Hessian("m", "fourth"), dubbo.StatusOK, "") // it is back, and need not prove it
	if a.Beats != 2 || a.Dialed != 4 {
		t.Errorf("%d questions on %d connections", a.Beats, a.Dialed)
	}
	m.Settled()
}

// TestEndpointsThatGo: a provider that leaves the service answers what it has,
// and its connection closes.
func TestEndpointsThatGo(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 2, Direct: true})
	for _, a := range m.Apps {
		a.Delay = func() time.Duration { return 100 * time.Millisecond }
	}
	c := m.Caller(proxytest.EgressDubbo)
	var ids []int64
	for range 10 {
		ids = append(ids, c.Hessian("m", "x"))
	}
	m.Until("calls at both", func() bool { return m.Apps[0].Busy > 0 && m.Apps[1].Busy > 0 })
	m.Consumer.Update("compute", registry.Endpoint{Addr: m.Apps[1].Addr, Weight: 1})
	for _, id := range ids {
		c.Wants(id, dubbo.StatusOK, "")
	}
	m.Until("the end of the connection", func() bool { return !m.Apps[0].Conns[0].Open })
	if !m.Apps[1].Conns[0].Open {
		t.Error("the endpoint that stayed lost its connection")
	}
	m.Settled()
}

// TestDubboProviderThatDoesNotRead: of the calls to a provider that does not read, most stay where
// they can go elsewhere when it is lost.
func TestDubboProviderThatDoesNotRead(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 2, Direct: true, Service: ", hedge: {budget: 1}, retry: {on: [connect]}, lb: {policy: weighted_round_robin}"})
	a := m.Apps[0]
	c := m.Caller(proxytest.EgressDubbo)
	for range 4 {
		c.Wants(c.Hessian("m", "x"), dubbo.StatusOK, "")
	}
	m.W.Hold(a.Conns[0].Conn, true)
	var ids []int64
	for range 200 {
		ids = append(ids, c.Hessian("m", strings.Repeat("x", 30_000)))
	}
	m.W.Run(time.Second)
	m.W.Crash(a.Loop)
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

// TestNonsenseFromProviders: what is not Dubbo ends the connection, answers to
// nothing are dropped.
func TestNonsenseFromProviders(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Direct: true, Limits: "limits: {message: 1KiB}"})
	a := m.Apps[0]
	c := m.Caller(proxytest.EgressDubbo)
	c.Wants(c.Hessian("m", "x"), dubbo.StatusOK, "")
	provider := a.Conns[0]
	for _, id := range []int64{0, 1, -1, 1 << 32, 1<<32 + 5, 1<<63 - 1, -1 << 63} {
		ans := &dubbo.Frame{Serialization: dubbo.Hessian2, Status: dubbo.StatusOK, ID: id, Body: make([]byte, 10_000)}
		a.Loop.Do(func() { provider.Conn.Write(dubbo.AppendFrame(nil, ans)) })
		ans.Request = true
		a.Loop.Do(func() { provider.Conn.Write(dubbo.AppendFrame(nil, ans)) })
	}
	c.Wants(c.Hessian("m", "x"), dubbo.StatusOK, "")
	a.Answer = func(f *dubbo.Frame) *dubbo.Frame {
		return &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusOK, Body: make([]byte, 1025)}
	}
	c.Wants(c.Hessian("m", "x"), dubbo.StatusServerError, "")
	if a.Dialed != 1 {
		t.Errorf("%d connections", a.Dialed)
	}
	a.Answer = proxytest.NoAnswer
	id := c.Hessian("m", "x")
	m.Until("the call", func() bool { return a.Served == 4 })
	a.Loop.Do(func() { provider.Conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) })
	c.Wants(id, dubbo.StatusBadResponse, "")
	m.Until("the close", func() bool { return !provider.Open })
	m.Settled()
}

// TestDubboFaultsCostNoAnswer lets providers crash, pause and lose connections
// under load, seed after seed: every call is answered, rightly, and nothing is
// left behind.
func TestDubboFaultsCostNoAnswer(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Seed: seed, Direct: seed%2 == 0, Provider: ", max_concurrency: 16",
				Service: `, timeout: 2s, idempotent: true,
				retry: {attempts: 3, on: [connect, refused, reset]}, hedge: {mode: on, budget: 1}`})
			m.W.Options.Cut = 0.2
			rnd := m.W.Rand()
			for _, a := range m.Apps {
				a.Delay = func() time.Duration { return time.Duration(200+rnd.IntN(3000)) * time.Microsecond }
			}
			for at := 20 * time.Millisecond; at < 400*time.Millisecond; at += 100 * time.Millisecond {
				m.W.At(at, func() { m.DubboFault(rnd.IntN(3), m.Apps[rnd.IntN(len(m.Apps))]) })
			}
			args := map[int64]string{}
			c := m.Caller(proxytest.EgressDubbo)
			for range 50 {
				for range 20 {
					arg := fmt.Sprint(len(args))
					args[c.Hessian("m", arg)] = arg
				}
				m.W.Run(10 * time.Millisecond)
			}
			for id, arg := range args {
				c.Wants(id, dubbo.StatusOK, string(proxytest.HessianString([]byte{0x91}, arg)))
			}
			m.W.Run(500 * time.Millisecond)
			m.Settled()
		})
	}
}
