package proxy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/registry"
)

// never leaves a call without an answer.
func never(*dubbo.Frame) *dubbo.Frame { return nil }

// hessian sends a call that is answered with its argument.
func (c *caller) hessian(method, arg string) (id int64) {
	return c.call(dubbo.Hessian2, hessianCall(demo, "", "", method, arg))
}

// TestProviderThatNeverAnswers: the deadline covers what is never answered. The
// connection stays, and an answer that comes after all is for nobody.
func TestProviderThatNeverAnswers(t *testing.T) {
	eachWay(t, func(t *testing.T, direct bool) {
		m := newDubboMesh(t, dubboOptions{direct: direct, apps: 1, service: ", timeout: 100ms", provider: ", timeout: 100ms"})
		a := m.apps[0]
		a.answer = never
		c := m.caller(egressDubbo)
		for range 10 {
			c.wants(c.hessian("m", "x"), dubbo.StatusServerTimeout, "")
		}
		k := m.json("m", `{"args":["x"]}`)
		m.do(k)
		m.finish(k)
		if k.status != 504 || k.code != "deadline" {
			t.Errorf("status %d %s", k.status, k.code)
		}
		// Answers come 50 ms too late, while calls that are out have their places.
		a.answer = echoCall
		a.delay = func() time.Duration { return 150 * time.Millisecond }
		for i := range 10 {
			c.wants(c.hessian("late", fmt.Sprint("late", i)), dubbo.StatusServerTimeout, "")
			a.delay = func() time.Duration { return 80 * time.Millisecond }
			arg := fmt.Sprint("in time ", i)
			c.wants(c.hessian("m", arg), dubbo.StatusOK, string(hessianString([]byte{0x91}, arg)))
			a.delay = func() time.Duration { return 150 * time.Millisecond }
		}
		m.settled()
		if a.dialed != 1 {
			t.Errorf("%d connections", a.dialed)
		}
	})
}

// TestTheCallersTimeoutCounts: a call that says how long its caller waits is not
// waited for any longer.
func TestTheCallersTimeoutCounts(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 1})
	m.apps[0].answer = never
	c := m.caller(egressDubbo)
	body := hessianCall(demo, "", "", "m", "x")
	body = append(hessianString(hessianString(body[:len(body)-1], "timeout"), "200"), 'Z')
	before := m.w.Now()
	c.wants(c.call(dubbo.Hessian2, body), dubbo.StatusServerTimeout, "")
	if took := m.w.Now() - before; took < 200*time.Millisecond || took > time.Second {
		t.Errorf("it took %v", took)
	}
	m.settled()
}

// TestLostProviders: calls that were not sent go elsewhere for free, those that
// were only if they may be sent twice; the next one dials anew.
func TestLostProviders(t *testing.T) {
	eachWay(t, func(t *testing.T, direct bool) {
		m := newDubboMesh(t, dubboOptions{direct: direct, apps: 2, service: ", hedge: {budget: 1}, retry: {attempts: 2, on: [connect, reset]}",
			routes: "[{match: {service: com.acme.Demo, method: [find]}, service: compute, idempotent: true}, {service: compute}]"})
		for _, a := range m.apps {
			a.delay = func() time.Duration { return 50 * time.Millisecond }
		}
		c := m.caller(egressDubbo)
		var find, put []int64
		for range 20 {
			find = append(find, c.hessian("find", "x"))
			put = append(put, c.hessian("put", "x"))
		}
		m.until("the calls at both", func() bool { return m.apps[0].busy > 0 && m.apps[1].busy > 0 })
		m.w.Crash(m.apps[0].loop)
		for _, id := range find {
			c.wants(id, dubbo.StatusOK, "")
		}
		lost := 0
		for _, id := range put {
			if f := c.await(id); f.Status != dubbo.StatusOK {
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
			c.wants(c.hessian("put", "x"), dubbo.StatusOK, "")
		}
		m.apps[0].restart()
		served := m.apps[0].served
		if !m.w.RunUntil(func() bool {
			c.wants(c.hessian("put", "x"), dubbo.StatusOK, "")
			return m.apps[0].served > served
		}, time.Minute) {
			t.Error("the provider that is back is not called")
		}
		m.settled()
	})
}

// TestHeartbeats: an idle connection stays, for both sides see that the other is
// there; one whose provider is silent is closed, and what was out on it is lost.
func TestHeartbeats(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 1, direct: true, service: ", timeout: 5m", limits: "timeouts: {idle: 10m}"})
	a := m.apps[0]
	c := m.caller(egressDubbo)
	c.wants(c.hessian("m", "x"), dubbo.StatusOK, "")
	m.w.Run(5 * time.Minute)
	if a.beats < 5 || a.beats > 15 {
		t.Errorf("%d heartbeats in five minutes", a.beats)
	}
	provider := a.conns[0]
	for _, serialization := range []byte{dubbo.Hessian2, dubbo.Fastjson} {
		before := provider.answered
		a.loop.Do(func() { provider.conn.Write(dubbo.AppendHeartbeat(nil, serialization, 7)) })
		m.until("the answer to a provider's heartbeat", func() bool { return provider.answered > before })
		c.say(dubbo.AppendHeartbeat(nil, serialization, 1<<40))
		m.until("the answer to a consumer's heartbeat", func() bool { return len(c.events) > 0 })
		if f := c.events[0]; f.Request || f.ID != 1<<40 || f.Status != dubbo.StatusOK || f.Serialization != serialization {
			t.Errorf("the answer to a heartbeat is %+v", f)
		}
		c.events = nil
	}
	a.answer, a.deaf = never, true
	id := c.hessian("m", "x")
	c.wants(id, dubbo.StatusServerError, "")
	m.until("the close", func() bool { return !provider.open })
	a.answer, a.deaf = echoCall, false
	c.wants(c.hessian("m", "x"), dubbo.StatusOK, "")
	if a.dialed != 2 {
		t.Errorf("%d connections", a.dialed)
	}
	m.settled()
}

// TestProviderThatGoesDown: one that says so gets no more calls on that
// connection, and answers those it has.
func TestProviderThatGoesDown(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 1, direct: true})
	a := m.apps[0]
	a.delay = func() time.Duration { return 100 * time.Millisecond }
	c := m.caller(egressDubbo)
	first := c.hessian("m", "first")
	m.until("the call", func() bool { return a.busy == 1 })
	old := a.conns[0]
	a.loop.Do(func() { old.conn.Write(dubbo.AppendReadOnly(nil, dubbo.Hessian2)) })
	m.w.Run(10 * time.Millisecond)
	second := c.hessian("m", "second")
	c.wants(first, dubbo.StatusOK, "")
	m.until("the end of the old connection", func() bool { return !old.open })
	c.wants(second, dubbo.StatusOK, "")
	if a.dialed != 2 {
		t.Errorf("%d connections", a.dialed)
	}
	m.settled()
}

// TestProviderThatTurnsConnectionsAway: one that goes down still accepts connections,
// to close them at once. No call is lost there, though none may be sent twice, and
// when the provider is back it is called again.
func TestProviderThatTurnsConnectionsAway(t *testing.T) {
	eachWay(t, func(t *testing.T, direct bool) {
		m := newDubboMesh(t, dubboOptions{apps: 2, direct: direct, service: ", lb: {policy: weighted_round_robin}"})
		a := m.apps[0]
		c := m.caller(egressDubbo)
		for range 4 {
			c.wants(c.hessian("m", "x"), dubbo.StatusOK, "")
		}
		served, dialed := a.served, a.dialed
		a.leaves = true
		a.loop.Do(func() { a.conns[0].conn.Write(dubbo.AppendReadOnly(nil, dubbo.Hessian2)) })
		m.until("the end of its connection", func() bool { return !a.conns[0].open })
		for range 50 {
			ids := []int64{c.hessian("m", "x"), c.hessian("m", "x")}
			for _, id := range ids {
				c.wants(id, dubbo.StatusOK, "")
			}
		}
		if a.dialed == dialed || a.served != served {
			t.Errorf("connected to %d times, %d calls served", a.dialed-dialed, a.served-served)
		}
		a.leaves = false
		if !m.w.RunUntil(func() bool {
			c.wants(c.hessian("m", "x"), dubbo.StatusOK, "")
			return a.served > served
		}, time.Minute) {
			t.Error("the provider that is back is not called")
		}
		m.settled()
	})
}

// TestProviderThatGoesDownAgain: one that says so once more, as it proves to be back, has
// to prove it once more.
func TestProviderThatGoesDownAgain(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 1, direct: true})
	a := m.apps[0]
	c := m.caller(egressDubbo)
	c.wants(c.hessian("m", "x"), dubbo.StatusOK, "")
	down := dubbo.AppendReadOnly(nil, dubbo.Hessian2)
	a.loop.Do(func() { a.conns[0].conn.Write(down) })
	m.until("the end of the first connection", func() bool { return !a.conns[0].open })
	a.deaf = true
	second := c.hessian("m", "second")
	m.until("the question whether it is back", func() bool { return a.beats == 1 })
	a.loop.Do(func() {
		a.conns[1].conn.Write(dubbo.AppendHeartbeatAnswer(down, &dubbo.Frame{Serialization: dubbo.Hessian2}))
	})
	c.wants(second, dubbo.StatusOK, "")
	m.until("the end of the second connection", func() bool { return !a.conns[1].open })
	a.deaf = false
	c.wants(c.hessian("m", "third"), dubbo.StatusOK, "")
	m.w.Reset(a.conns[2].conn)
	m.until("the loss of the third connection", func() bool { return m.consumer.report().Services[0].Endpoints[0].Connections == 0 })
	c.wants(c.hessian("m", "fourth"), dubbo.StatusOK, "") // it is back, and need not prove it
	if a.beats != 2 || a.dialed != 4 {
		t.Errorf("%d questions on %d connections", a.beats, a.dialed)
	}
	m.settled()
}

// TestEndpointsThatGo: a provider that leaves the service answers what it has,
// and its connection closes.
func TestEndpointsThatGo(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 2, direct: true})
	for _, a := range m.apps {
		a.delay = func() time.Duration { return 100 * time.Millisecond }
	}
	c := m.caller(egressDubbo)
	var ids []int64
	for range 10 {
		ids = append(ids, c.hessian("m", "x"))
	}
	m.until("calls at both", func() bool { return m.apps[0].busy > 0 && m.apps[1].busy > 0 })
	m.consumer.update("compute", registry.Endpoint{Addr: m.apps[1].addr, Weight: 1})
	for _, id := range ids {
		c.wants(id, dubbo.StatusOK, "")
	}
	m.until("the end of the connection", func() bool { return !m.apps[0].conns[0].open })
	if !m.apps[1].conns[0].open {
		t.Error("the endpoint that stayed lost its connection")
	}
	m.settled()
}

// TestDubboProviderThatDoesNotRead: of the calls to a provider that does not read, most stay where
// they can go elsewhere when it is lost.
func TestDubboProviderThatDoesNotRead(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 2, direct: true, service: ", hedge: {budget: 1}, retry: {on: [connect]}, lb: {policy: weighted_round_robin}"})
	a := m.apps[0]
	c := m.caller(egressDubbo)
	for range 4 {
		c.wants(c.hessian("m", "x"), dubbo.StatusOK, "")
	}
	m.w.Hold(a.conns[0].conn, true)
	var ids []int64
	for range 200 {
		ids = append(ids, c.hessian("m", strings.Repeat("x", 30_000)))
	}
	m.w.Run(time.Second)
	m.w.Crash(a.loop)
	lost := 0
	for _, id := range ids {
		if c.await(id).Status != dubbo.StatusOK {
			lost++
		}
	}
	if lost == 0 || lost > 50 {
		t.Errorf("%d of 100 calls were lost", lost)
	}
	m.settled()
}

// TestNonsenseFromProviders: what is not Dubbo ends the connection, answers to
// nothing are dropped.
func TestNonsenseFromProviders(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 1, direct: true, limits: "limits: {message: 1KiB}"})
	a := m.apps[0]
	c := m.caller(egressDubbo)
	c.wants(c.hessian("m", "x"), dubbo.StatusOK, "")
	provider := a.conns[0]
	for _, id := range []int64{0, 1, -1, 1 << 32, 1<<32 + 5, 1<<63 - 1, -1 << 63} {
		ans := &dubbo.Frame{Serialization: dubbo.Hessian2, Status: dubbo.StatusOK, ID: id, Body: make([]byte, 10_000)}
		a.loop.Do(func() { provider.conn.Write(dubbo.AppendFrame(nil, ans)) })
		ans.Request = true
		a.loop.Do(func() { provider.conn.Write(dubbo.AppendFrame(nil, ans)) })
	}
	c.wants(c.hessian("m", "x"), dubbo.StatusOK, "")
	a.answer = func(f *dubbo.Frame) *dubbo.Frame {
		return &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusOK, Body: make([]byte, 1025)}
	}
	c.wants(c.hessian("m", "x"), dubbo.StatusServerError, "")
	if a.dialed != 1 {
		t.Errorf("%d connections", a.dialed)
	}
	a.answer = never
	id := c.hessian("m", "x")
	m.until("the call", func() bool { return a.served == 4 })
	a.loop.Do(func() { provider.conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) })
	c.wants(id, dubbo.StatusBadResponse, "")
	m.until("the close", func() bool { return !provider.open })
	m.settled()
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
			m := newDubboMesh(t, dubboOptions{seed: seed, direct: seed%2 == 0, provider: ", max_concurrency: 16",
				service: `, timeout: 2s, idempotent: true,
				retry: {attempts: 3, on: [connect, refused, reset]}, hedge: {mode: on, budget: 1}`})
			m.w.Options.Cut = 0.2
			rnd := m.w.Rand()
			for _, a := range m.apps {
				a.delay = func() time.Duration { return time.Duration(200+rnd.IntN(3000)) * time.Microsecond }
			}
			for at := 20 * time.Millisecond; at < 400*time.Millisecond; at += 100 * time.Millisecond {
				m.w.At(at, func() { m.dubboFault(rnd.IntN(3), m.apps[rnd.IntN(len(m.apps))]) })
			}
			args := map[int64]string{}
			c := m.caller(egressDubbo)
			for range 50 {
				for range 20 {
					arg := fmt.Sprint(len(args))
					args[c.hessian("m", arg)] = arg
				}
				m.w.Run(10 * time.Millisecond)
			}
			for id, arg := range args {
				c.wants(id, dubbo.StatusOK, string(hessianString([]byte{0x91}, arg)))
			}
			m.w.Run(500 * time.Millisecond)
			m.settled()
		})
	}
}

// dubboFault makes one thing go wrong with a, for less than 80 ms.
func (m *dubboMesh) dubboFault(kind int, a *dubboApp) {
	switch loop := a.loop; kind {
	case 0:
		m.w.Crash(loop)
		m.w.At(m.w.Now()+50*time.Millisecond, func() {
			if a.loop == loop {
				a.restart()
			}
		})
	case 1:
		m.w.Pause(loop, 50*time.Millisecond)
	case 2:
		for _, c := range a.conns {
			if c.open {
				m.w.Reset(c.conn)
			}
		}
	}
}
