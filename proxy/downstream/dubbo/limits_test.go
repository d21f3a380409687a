package dubbo_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestTooManyCallsToAProvider: past what a connection to a provider may have out,
// whoever they are of, calls are refused at once.
func TestTooManyCallsToAProvider(t *testing.T) {
	const most, more = 4096, 104
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Direct: true, Service: ", max_pending: 10000, retry: {on: []}"})
	a := m.Apps[0]
	a.Delay = func() time.Duration { return time.Second }
	one, other := m.DialDubbo(proxytest.EgressDubbo), m.DialDubbo(proxytest.EgressDubbo)
	for range (most + more) / 2 {
		one.CallHessian("m", "x")
		other.CallHessian("m", "x")
	}
	m.RunUntil("the calls", func() bool { return a.Busy == most && len(one.Responses)+len(other.Responses) == more })
	for _, c := range []*proxytest.DubboClient{one, other} {
		for _, f := range c.Responses {
			if f.Status != dubbo.StatusPoolExhausted || !bytes.Contains(f.Body, []byte("connection-full: ")) {
				t.Errorf("refused with %d %q", f.Status, f.Body)
			}
		}
	}
	m.RunUntil("the answers", func() bool { return len(one.InFlight)+len(other.InFlight) == 0 })
	m.Settled()
}

// TestCallsOfTheGreatestLength: limits.message is the length of what still passes.
func TestCallsOfTheGreatestLength(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Limits: "limits: {message: 1KiB}"})
	c := m.DialDubbo(proxytest.EgressDubbo)
	sized := func(n int) []byte {
		arg := strings.Repeat("x", 100)
		arg += strings.Repeat("x", n-len(proxytest.HessianCall(proxytest.DemoService, "", "", "m", arg)))
		return proxytest.HessianCall(proxytest.DemoService, "", "", "m", arg)
	}
	c.CheckResult(c.Call(dubbo.Hessian2, sized(1024)), dubbo.StatusOK, "")
	c.CheckResult(c.Call(dubbo.Hessian2, sized(1025)), dubbo.StatusBadRequest, "")
	m.Settled()
}

// TestEventsThatWantNoAnswer get none, from neither side: those that say so, and
// those that are too long for a heartbeat.
func TestEventsThatWantNoAnswer(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Direct: true})
	c := m.DialDubbo(proxytest.EgressDubbo)
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
	events := dubbo.AppendFrame(nil, &dubbo.Frame{Request: true, Event: true, Serialization: dubbo.Hessian2, ID: 1, Body: []byte("N")})
	events = dubbo.AppendFrame(events, &dubbo.Frame{Request: true, Event: true, TwoWay: true, Serialization: dubbo.Hessian2, ID: 2, Body: make([]byte, 5000)})
	events = dubbo.AppendHeartbeat(events, dubbo.Hessian2, 3)
	provider := m.Apps[0].Conns[0]
	c.Send(events)
	m.Apps[0].Loop.Do(func() { provider.Conn.Write(events) })
	m.RunUntil("answers to heartbeats", func() bool { return len(c.Events) > 0 && provider.Answered > 0 })
	m.W.Run(100 * time.Millisecond)
	if len(c.Events) != 1 || c.Events[0].ID != 3 || provider.Answered != 1 {
		t.Errorf("the consumer got %d answers, the provider %d", len(c.Events), provider.Answered)
	}
	m.Settled()
}

// TestHeartbeatsOfThoseThatDoNotRead are answered no more once much is unread.
func TestHeartbeatsOfThoseThatDoNotRead(t *testing.T) {
	const bound = 512 << 10
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Direct: true})
	c := m.DialDubbo(proxytest.EgressDubbo)
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
	a := m.Apps[0]
	many := bytes.Repeat(dubbo.AppendHeartbeat(nil, dubbo.Hessian2, 1), 1000)
	for name, say := range map[string]func(){
		"consumer": func() { c.Send(many) },
		"provider": func() { a.Loop.Do(func() { a.Conns[0].Conn.Write(many) }) },
	} {
		m.W.Hold(c.Conn, true)
		m.W.Hold(a.Conns[0].Conn, true)
		for range 200 {
			say()
			m.W.Run(time.Millisecond)
		}
		m.W.Run(time.Second)
		if held := m.Consumer.Proc.Held(); held > bound {
			t.Errorf("%d bytes wait for a %s that does not read", held, name)
		}
		m.W.Hold(c.Conn, false)
		m.W.Hold(a.Conns[0].Conn, false)
		m.Settled()
	}
}

// TestHalfFramesAreCounted against limits.buffered, while they are here.
func TestHalfFramesAreCounted(t *testing.T) {
	const size = 100_000
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Direct: true, Service: ", retry: {on: []}"})
	a := m.Apps[0]
	a.Respond = proxytest.NoResponse
	var asked int64
	a.OnCall = func(f *dubbo.Frame) { asked = f.ID }
	c := m.DialDubbo(proxytest.EgressDubbo)
	id := c.CallHessian("m", "x")
	m.RunUntil("the call", func() bool { return asked != 0 })
	answer := dubbo.AppendFrame(nil, &dubbo.Frame{Serialization: dubbo.Hessian2, Status: dubbo.StatusOK, ID: asked, Body: make([]byte, size)})
	a.Loop.Do(func() { a.Conns[0].Conn.Write(answer[:size/2]) })
	m.RunUntil("half an answer", func() bool { return m.Consumer.Proc.Held() >= size/2 })
	m.W.Reset(a.Conns[0].Conn)
	c.CheckResult(id, dubbo.StatusServerError, "")
	m.Settled()
	c.Send(proxytest.CallFrame(7, dubbo.Hessian2, make([]byte, size))[:size/2])
	m.RunUntil("half a call", func() bool { return m.Consumer.Proc.Held() >= size/2 })
	m.Clients.Do(func() { c.Conn.Close() })
	m.Settled()
}

// TestCallsWhileMemoryIsShort: of a connection that is over its share big calls are not
// received, small ones pass.
func TestCallsWhileMemoryIsShort(t *testing.T) {
	const big = 140_000
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Direct: true, Limits: "limits: {buffered: 1MiB, message: 256KiB}"})
	a := m.Apps[0]
	a.Respond = proxytest.NoResponse
	c := m.DialDubbo(proxytest.EgressDubbo)
	for len(c.Responses) == 0 {
		c.CallHessian("m", strings.Repeat("x", big))
		m.W.Run(10 * time.Millisecond)
	}
	before, served := m.Consumer.Proc.Held(), a.Served
	b := proxytest.CallFrame(1, dubbo.Hessian2, proxytest.HessianCall(proxytest.DemoService, "", "", "m", strings.Repeat("x", big)))
	c.InFlight[1] = b
	c.Send(b[:big/2])
	m.W.Run(10 * time.Millisecond)
	if held := m.Consumer.Proc.Held() - before; held > 100 {
		t.Errorf("%d bytes of a call that is refused are held", held)
	}
	c.Send(b[big/2:])
	c.CheckResult(1, dubbo.StatusPoolExhausted, "")
	c.CallHessian("m", "small")
	m.RunUntil("the small call", func() bool { return a.Served == served+1 })
	m.Settled()
}

// TestCallsThatArriveWhileMemoryRunsShort are refused when they are big, though they
// had begun before.
func TestCallsThatArriveWhileMemoryRunsShort(t *testing.T) {
	const big = 140_000
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Direct: true, Limits: "limits: {buffered: 1MiB, message: 256KiB}"})
	a := m.Apps[0]
	a.Respond = proxytest.NoResponse
	c, other := m.DialDubbo(proxytest.EgressDubbo), m.DialDubbo(proxytest.EgressDubbo)
	for range 6 {
		c.CallHessian("m", strings.Repeat("x", big))
	}
	b := proxytest.CallFrame(1, dubbo.Hessian2, proxytest.HessianCall(proxytest.DemoService, "", "", "m", strings.Repeat("x", big)))
	c.InFlight[1] = b
	c.Send(b[:big/2])
	m.RunUntil("half a call", func() bool { return m.Consumer.Proc.Held() > 13*big/2 })
	for range 3 {
		other.CallHessian("m", strings.Repeat("x", big))
	}
	m.RunUntil("the calls of another", func() bool { return a.Served == 9 })
	c.Send(b[big/2:])
	c.CheckResult(1, dubbo.StatusPoolExhausted, "")
	m.Settled()
}

// TestEndpointsThatGoWithoutAnAnswer: the connection to an endpoint that has left
// closes when the last call on it has come to its deadline, or was withdrawn before
// it could be sent.
func TestEndpointsThatGoWithoutAnAnswer(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Direct: true, Service: ", timeout: 10s"})
	a := m.Apps[0]
	a.Respond = proxytest.NoResponse
	c := m.DialDubbo(proxytest.EgressDubbo)
	id := c.CallHessian("m", "x")
	m.RunUntil("the call", func() bool { return a.Busy == 1 })
	m.Consumer.Update("compute")
	c.CheckResult(id, dubbo.StatusServerTimeout, "")
	m.W.Run(10 * time.Millisecond)
	if a.Conns[0].Open {
		t.Error("the connection outlives the last deadline")
	}
	m.Settled()

	m = proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Direct: true, Service: ", timeout: 10s"})
	a = m.Apps[0]
	c = m.DialDubbo(proxytest.EgressDubbo)
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
	a.IgnoresHeartbeats = true // a connection that is not proven sends no calls
	a.Loop.Do(func() { a.Conns[0].Conn.Write(dubbo.AppendReadOnly(nil, dubbo.Hessian2)) })
	m.RunUntil("the end of the connection", func() bool { return !a.Conns[0].Open })
	c.CallHessian("m", "x")
	m.RunUntil("another connection", func() bool { return a.Accepted == 2 })
	m.W.Run(10 * time.Millisecond)
	m.Consumer.Update("compute")
	m.Clients.Do(func() { c.Conn.Close() })
	m.W.Run(100 * time.Millisecond)
	if a.Conns[1].Open {
		t.Error("the connection outlives its last call")
	}
	m.Settled()
}

// TestConnectionsLeaveNothing: no timer outlives its connection.
func TestConnectionsLeaveNothing(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Direct: true})
	c := m.DialDubbo(proxytest.EgressDubbo)
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
	m.Consumer.Update("compute")
	m.Consumer.Proc.Drain()
	m.RunUntil("the event", func() bool { return len(c.Events) > 0 })
	m.Clients.Do(func() { c.Conn.Close() })
	m.W.Run(100 * time.Millisecond)
	if left := m.W.Leftovers(); len(left) > 0 {
		t.Errorf("timers %q", left)
	}
}

// TestConnectionsThatAreCut: a consumer that reads nothing of what is too much to
// hold loses its connection, and its calls are given up at once.
func TestConnectionsThatAreCut(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Direct: true, Limits: proxytest.SmallBudget, Service: ", timeout: 5m"})
	m.Apps[0].Respond = func(f *dubbo.Frame) *dubbo.Frame {
		if bytes.Contains(f.Body, []byte("never")) {
			return nil
		}
		return &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusOK, Body: make([]byte, 1<<20)}
	}
	c := m.DialDubbo(proxytest.EgressDubbo)
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
	m.W.Hold(c.Conn, true)
	c.CallHessian("never", "x")
	for range 10 {
		c.CallHessian("m", "x")
	}
	m.RunUntil("the cut", func() bool { return m.Consumer.ShedConnections() == 1 })
	if n := m.Consumer.Proc.Pending(); n != 0 {
		t.Errorf("%d calls are waited for, for nobody", n)
	}
	m.W.Hold(c.Conn, false)
	m.Settled()
}

// TestAnswersInUnknownSerializations can't be passed on as the caller's.
func TestAnswersInUnknownSerializations(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Direct: direct, Apps: 1})
		m.Apps[0].Respond = func(*dubbo.Frame) *dubbo.Frame {
			return &dubbo.Frame{Serialization: 21, Status: dubbo.StatusOK, Body: []byte("x")}
		}
		c := m.DialDubbo(proxytest.EgressDubbo)
		c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusBadResponse, "")
		m.Settled()
	})
}
