package dubbo_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestCallLimitOfProviderConnection checks that calls above the limit of a provider's
// connection are refused at once, whichever consumers they come from.
func TestCallLimitOfProviderConnection(t *testing.T) {
	const most, more = 4096, 104
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "max_pending: 10000, retry: {on: []}"})
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
	m.RunUntil("the responses", func() bool { return len(one.InFlight)+len(other.InFlight) == 0 })
	m.Settled()
}

// TestCallLengthLimit checks that a call of limits.message bytes passes, and one byte more
// is refused.
func TestCallLengthLimit(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Limits: "limits: {message: 1KiB}"})
	c := m.DialDubbo(proxytest.EgressDubbo)
	c.CheckResult(c.Call(dubbo.Hessian2, proxytest.HessianCallOf(t, 1024)), dubbo.StatusOK, "")
	c.CheckResult(c.Call(dubbo.Hessian2, proxytest.HessianCallOf(t, 1025)), dubbo.StatusBadRequest, "")
	m.Settled()
}

// TestEventsWithoutResponse checks that neither side responds to an event that expects no
// response, or to one too long for a heartbeat.
func TestEventsWithoutResponse(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true})
	c := m.DialDubbo(proxytest.EgressDubbo)
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
	events := dubbo.AppendFrame(nil, &dubbo.Frame{Request: true, Event: true, Serialization: dubbo.Hessian2, ID: 1, Body: []byte("N")})
	events = dubbo.AppendFrame(events, &dubbo.Frame{Request: true, Event: true, TwoWay: true, Serialization: dubbo.Hessian2, ID: 2, Body: make([]byte, 5000)})
	events = dubbo.AppendHeartbeat(events, dubbo.Hessian2, 3)
	provider := m.Apps[0].Conns[0]
	c.Send(events)
	m.Apps[0].Loop.Do(func() { provider.Conn.Write(events) })
	m.RunUntil("responses to heartbeats", func() bool { return len(c.Events) > 0 && provider.Answered > 0 })
	m.W.Run(100 * time.Millisecond)
	if len(c.Events) != 1 || c.Events[0].ID != 3 || provider.Answered != 1 {
		t.Errorf("the consumer got %d responses, the provider %d", len(c.Events), provider.Answered)
	}
	m.Settled()
}

// TestSkippedFrames: of a frame that nobody wants the sidecar keeps nothing while it arrives, however long it is.
func TestSkippedFrames(t *testing.T) {
	for name, f := range map[string]*dubbo.Frame{
		"a response":                  {Status: dubbo.StatusOK},
		"an event":                    {Request: true, Event: true, TwoWay: true},
		"the response to a heartbeat": {Event: true, Status: dubbo.StatusOK},
		"a call that is too long":     {Request: true, TwoWay: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Limits: "limits: {message: 64KiB}"})
			c := m.DialDubbo(proxytest.EgressDubbo)
			f.Serialization, f.ID, f.Body = dubbo.Hessian2, 1, make([]byte, 400_000)
			b := dubbo.AppendFrame(nil, f)
			c.Send(b[:200_000])
			m.W.Run(10 * time.Millisecond)
			if held := m.Consumer.Proc.Held(); held > 100 {
				t.Errorf("%d bytes are held", held)
			}
			c.InFlight[1] = b // the call that is too long gets a response, an error
			c.Send(b[200_000:])
			c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
			m.Settled()
		})
	}
}

// TestHeartbeatFloodUnread checks that the sidecar stops responding to the heartbeats of a
// peer that does not read.
func TestHeartbeatFloodUnread(t *testing.T) {
	const bound = 512 << 10
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true})
	c := m.DialDubbo(proxytest.EgressDubbo)
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
	a := m.Apps[0]
	many := bytes.Repeat(dubbo.AppendHeartbeat(nil, dubbo.Hessian2, 1), 1000)
	for name, say := range map[string]func(){
		"consumer": func() { c.Send(many) },
		"provider": func() { a.Loop.Do(func() { a.Conns[0].Conn.Write(many) }) },
	} {
		m.W.Faults.PauseReading(c.Conn, true)
		m.W.Faults.PauseReading(a.Conns[0].Conn, true)
		for range 60 { // 1 MB, twice the bound
			say()
			m.W.Run(time.Millisecond)
		}
		m.W.Run(time.Second)
		if held := m.Consumer.Proc.Held(); held > bound {
			t.Errorf("%d bytes are held for a %s that does not read", held, name)
		}
		m.W.Faults.PauseReading(c.Conn, false)
		m.W.Faults.PauseReading(a.Conns[0].Conn, false)
		m.Settled()
	}
}

// TestPartialFramesCountAsBuffered checks that the received part of a frame counts against
// limits.buffered until its connection ends.
func TestPartialFramesCountAsBuffered(t *testing.T) {
	const size = 100_000
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "retry: {on: []}"})
	a := m.Apps[0]
	a.Respond = proxytest.NoResponse
	var id64 int64
	a.OnCall = func(f *dubbo.Frame) { id64 = f.ID }
	c := m.DialDubbo(proxytest.EgressDubbo)
	id := c.CallHessian("m", "x")
	m.RunUntil("the call", func() bool { return id64 != 0 })
	response := dubbo.AppendFrame(nil, &dubbo.Frame{Serialization: dubbo.Hessian2, Status: dubbo.StatusOK, ID: id64, Body: make([]byte, size)})
	a.Loop.Do(func() { a.Conns[0].Conn.Write(response[:size/2]) })
	m.RunUntil("half a response", func() bool { return m.Consumer.Proc.Held() >= size/2 })
	m.W.Faults.Reset(a.Conns[0].Conn)
	c.CheckResult(id, dubbo.StatusServerError, "")
	m.Settled()
	c.Send(proxytest.CallFrame(7, dubbo.Hessian2, make([]byte, size))[:size/2])
	m.RunUntil("half a call", func() bool { return m.Consumer.Proc.Held() >= size/2 })
	m.Clients.Do(func() { c.Conn.Close() })
	m.Settled()
}

// TestCallsOverMemoryShare checks that large calls on a connection over its share of
// memory are refused and not buffered, and small ones pass.
func TestCallsOverMemoryShare(t *testing.T) {
	const big = 140_000
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Limits: "limits: {buffered: 1MiB, message: 256KiB}"})
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
		t.Errorf("%d bytes of a refused call are held", held)
	}
	c.Send(b[big/2:])
	c.CheckResult(1, dubbo.StatusPoolExhausted, "")
	c.CallHessian("m", "small")
	m.RunUntil("the small call", func() bool { return a.Served == served+1 })
	m.Settled()
}

// TestPartialCallOverMemoryShare checks that a large call is refused if memory runs short
// while it arrives.
func TestPartialCallOverMemoryShare(t *testing.T) {
	const big = 140_000
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Limits: "limits: {buffered: 1MiB, message: 256KiB}"})
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
	m.RunUntil("the calls of the other consumer", func() bool { return a.Served == 9 })
	c.Send(b[big/2:])
	c.CheckResult(1, dubbo.StatusPoolExhausted, "")
	m.Settled()
}

// TestPartialCallCountsOnce: the part of a call that has arrived counts once when the call is complete. So the call is served
// if there is room for it.
func TestPartialCallCountsOnce(t *testing.T) {
	const big, bigger = 140_000, 200_000 // 6*big + bigger fit in limits.buffered, and 6*big + 2*bigger do not
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Limits: "limits: {buffered: 1MiB, message: 256KiB}"})
	a := m.Apps[0]
	a.Respond = proxytest.NoResponse
	c := m.DialDubbo(proxytest.EgressDubbo)
	for range 6 {
		c.CallHessian("m", strings.Repeat("x", big))
	}
	m.RunUntil("the calls", func() bool { return a.Served == 6 })
	b := proxytest.CallFrame(1, dubbo.Hessian2, proxytest.HessianCall(proxytest.DemoService, "", "", "m", strings.Repeat("x", bigger)))
	c.Send(b[:bigger-1])
	m.W.Run(10 * time.Millisecond) // the part arrives, and counts
	a.Respond = proxytest.EchoCall
	c.InFlight[1] = b
	c.Send(b[bigger-1:])
	c.CheckResult(1, dubbo.StatusOK, "")
	m.Settled()
}

// TestShareOfCall: while memory is short, a connection that holds more than its share may make calls of at most that share
// divided by its calls in flight, the new one included.
func TestShareOfCall(t *testing.T) {
	const share, calls = 1 << 20, 130 // the room above limits.buffered, of one connection
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "timeout: 1m, max_pending: 1000", Limits: "limits: {buffered: 1MiB, message: 256KiB}"})
	a := m.Apps[0]
	a.Respond = proxytest.NoResponse
	c := m.DialDubbo(proxytest.EgressDubbo)
	for range 28 {
		c.Call(dubbo.Hessian2, proxytest.HessianCallOf(t, 36_000)) // these alone hold more than the share
	}
	for range calls - 1 - 28 {
		c.CallHessian("m", "x")
	}
	m.RunUntil("the calls", func() bool { return a.Served == calls-1 })
	c.Call(dubbo.Hessian2, proxytest.HessianCallOf(t, share/calls))
	m.RunUntil("one more call", func() bool { return a.Served == calls })
	c.CheckResult(c.Call(dubbo.Hessian2, proxytest.HessianCallOf(t, share/(calls+1)+1)), dubbo.StatusPoolExhausted, "")
	m.Settled()
}

// TestMalformedInputEndsCalls: a connection with malformed input holds nothing any more, although the consumer does not learn
// yet that it closes.
func TestMalformedInputEndsCalls(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true})
	m.Apps[0].Respond = proxytest.NoResponse
	c := m.DialDubbo(proxytest.EgressDubbo)
	c.CallHessian("m", strings.Repeat("x", 100_000))
	m.RunUntil("the call", func() bool { return m.Apps[0].Served == 1 })
	m.W.Faults.PauseReading(c.Conn, true)
	c.Send([]byte("malformed"))
	m.W.Run(500 * time.Millisecond)
	proxytest.Equal(t, "bytes held", m.Consumer.Proc.Held(), int64(0))
	proxytest.Equal(t, "calls that ended with their consumer", m.Consumer.Stats("compute").Outcomes[stats.OutcomeCancelled], uint64(1))
	proxytest.Equal(t, "connections", m.Consumer.Connections(), 1)
	m.W.Faults.PauseReading(c.Conn, false)
	m.RunUntil("the close", func() bool { return c.Ended })
	m.Settled()
}

// TestShedIdleConnections: a connection is not idle while it waits for a response, or while it closes.
func TestShedIdleConnections(t *testing.T) {
	event := dubbo.AppendFrame(nil, &dubbo.Frame{Request: true, Event: true, Serialization: dubbo.Hessian2, Body: []byte("N")})
	for _, test := range []struct {
		name  string
		begin func(m *proxytest.Mesh, c *proxytest.DubboClient)
		shed  uint64
	}{
		{"idle", func(*proxytest.Mesh, *proxytest.DubboClient) {}, 1},
		{"a call in flight", func(_ *proxytest.Mesh, c *proxytest.DubboClient) { c.CallHessian("never", "x") }, 0},
		{"closes after malformed input", func(_ *proxytest.Mesh, c *proxytest.DubboClient) { c.Send([]byte("malformed")) }, 0},
		{"closes after the last frame", func(m *proxytest.Mesh, c *proxytest.DubboClient) {
			c.Send(event[:16])
			m.W.Run(10 * time.Millisecond)
			m.Consumer.Proc.Drain()
			m.W.Run(2 * time.Second)
			c.Send(event[16:])
		}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "timeout: 1m"})
			m.Apps[0].Respond = func(f *dubbo.Frame) *dubbo.Frame {
				if bytes.Contains(f.Body, []byte("never")) {
					return nil
				}
				return &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusOK, Body: make([]byte, 1<<20)}
			}
			c := m.DialDubbo(proxytest.EgressDubbo)
			m.RunUntil("the connection", func() bool { return c.Conn != nil })
			m.W.Faults.PauseReading(c.Conn, true) // so that it can't close at once
			c.CallHessian("m", "x")
			m.RunUntil("the response", func() bool { return m.Consumer.Proc.Held() > 0 && m.Consumer.Proc.Pending() == 0 })
			test.begin(m.Mesh, c)
			m.W.Run(2 * time.Second)
			m.Consumer.Proc.ShedIdle()
			m.W.Run(10 * time.Millisecond)
			proxytest.Equal(t, "idle connections that were closed", m.Consumer.Report().Stats.ShedIdle, test.shed)
			m.W.Faults.PauseReading(c.Conn, false)
			m.Settled()
		})
	}
}

// TestIdleAfterLongCall: a call that lasts longer than timeouts.idle does not keep its connection open afterwards.
func TestIdleAfterLongCall(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "timeout: 1m", Limits: "timeouts: {idle: 5s}"})
	m.Apps[0].Delay = func() time.Duration { return 7 * time.Second }
	c := m.DialDubbo(proxytest.EgressDubbo)
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
	m.RunUntil("the idle connection to close", func() bool { return c.Ended })
	m.Settled()
}

// TestRemovedEndpointClosesWithoutResponse checks that the connection to a removed
// endpoint closes when its last call passes its deadline, or is withdrawn before it is
// sent.
func TestRemovedEndpointClosesWithoutResponse(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "timeout: 10s"})
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

	m = proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "timeout: 10s"})
	a = m.Apps[0]
	c = m.DialDubbo(proxytest.EgressDubbo)
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
	a.IgnoresHeartbeats = true // a new connection sends no calls before a heartbeat is answered
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

// TestConnectionLeavesNoTimer checks that no timer outlives its connection.
func TestConnectionLeavesNoTimer(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true})
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

// TestIdleWithInput: a call that has arrived while the loop was late gets its response, although timeouts.idle has
// passed.
func TestIdleWithInput(t *testing.T) {
	for seed := range uint64(10) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Seed: seed, Apps: 1, OneHop: true, Limits: "timeouts: {idle: 5s}"})
		c := m.DialDubbo(proxytest.EgressDubbo)
		c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
		m.W.Run(5*time.Second - 2*time.Millisecond)
		m.W.Faults.Pause(m.Consumer.Loop, 10*time.Millisecond)
		c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
		m.RunUntil("the idle connection to close", func() bool { return c.Ended })
		m.Settled()
	}
}

// TestShedConnectionOfSlowConsumer checks that a consumer that does not read loses its
// connection once it holds too much memory, and that its calls are abandoned at once. Another one
// that does not read stays, since it holds less.
func TestShedConnectionOfSlowConsumer(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Limits: proxytest.SmallBudget, Service: "timeout: 5m"})
	m.Apps[0].Respond = func(f *dubbo.Frame) *dubbo.Frame {
		if bytes.Contains(f.Body, []byte("never")) {
			return nil
		}
		return &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusOK, Body: make([]byte, 1<<20)}
	}
	c, other := m.DialDubbo(proxytest.EgressDubbo), m.DialDubbo(proxytest.EgressDubbo)
	for _, c := range []*proxytest.DubboClient{c, other} {
		c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
		m.W.Faults.PauseReading(c.Conn, true)
	}
	id := other.CallHessian("m", "x")
	m.RunUntil("a response that is not read", func() bool { return m.Consumer.Proc.Pending() == 0 })
	c.CallHessian("never", "x")
	for range 10 {
		c.CallHessian("m", "x")
	}
	m.RunUntil("the close", func() bool { return m.Consumer.ShedConnections() > 0 })
	if n := m.Consumer.Proc.Pending(); n != 0 {
		t.Errorf("%d calls are pending, though their consumer is gone", n)
	}
	m.W.Run(time.Second)
	proxytest.Equal(t, "connections that were closed", m.Consumer.ShedConnections(), uint64(1))
	proxytest.Equal(t, "connections that are open", m.Consumer.Connections(), 1)
	m.W.Faults.PauseReading(c.Conn, false)
	m.W.Faults.PauseReading(other.Conn, false)
	other.CheckResult(id, dubbo.StatusOK, "")
	m.W.Run(time.Second)
	if !c.Ended || other.Ended {
		t.Errorf("the connection of the largest holder is closed: %t, the other one: %t", c.Ended, other.Ended)
	}
	m.Settled()
}

// TestResponseInUnknownSerialization checks that a response in an unknown serialization is
// not passed on.
func TestResponseInUnknownSerialization(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{OneHop: direct, Apps: 1})
		m.Apps[0].Respond = func(*dubbo.Frame) *dubbo.Frame {
			return &dubbo.Frame{Serialization: 21, Status: dubbo.StatusOK, Body: []byte("x")}
		}
		c := m.DialDubbo(proxytest.EgressDubbo)
		c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusBadResponse, "")
		m.Settled()
	})
}

// TestReserve: connections with many calls leave the last eighth of max_pending to connections with one. A
// connection that is alone may take all places.
func TestReserve(t *testing.T) {
	for _, c := range []struct {
		name            string
		others          int // connections with one call, before the connection with many
		calls, inFlight int // of the connection with many
	}{
		{"alone, all places", 0, 16, 16}, {"alone, one more", 0, 17, 16},
		{"beside another, unreserved places", 1, 13, 13}, {"beside another, one more", 1, 14, 13},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "max_pending: 16, retry: {on: []}"})
			m.Apps[0].Delay = func() time.Duration { return time.Second }
			single := func() *proxytest.DubboClient {
				o := m.DialDubbo(proxytest.EgressDubbo)
				o.CallHessian("m", "x")
				return o
			}
			for range c.others {
				single()
			}
			m.RunUntil("the first call", func() bool { return m.Consumer.Proc.Pending() == c.others })
			many := m.DialDubbo(proxytest.EgressDubbo)
			for range c.calls {
				many.CallHessian("m", "x")
			}
			m.RunUntil("the calls", func() bool {
				return m.Consumer.Proc.Pending() == c.others+c.inFlight && len(many.Responses) == c.calls-c.inFlight
			})
			if c.others > 0 {
				late := []*proxytest.DubboClient{single(), single(), single()}
				m.RunUntil("one refusal", func() bool {
					return len(late[0].Responses)+len(late[1].Responses)+len(late[2].Responses) == 1
				})
				if n := m.Consumer.Proc.Pending(); n != 16 {
					t.Errorf("%d calls in flight, want 16", n)
				}
			}
			m.RunUntil("the responses", func() bool { return m.Consumer.Proc.Pending() == 0 })
			m.Settled()
		})
	}
}
