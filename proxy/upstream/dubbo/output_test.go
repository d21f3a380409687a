package dubbo_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestCallsOfTurn: a call leaves at once if no other one is in flight. The others of a turn leave together behind it, in writes of
// some mux.BatchSize bytes.
func TestCallsOfTurn(t *testing.T) {
	for _, c := range []struct {
		name   string
		size   int // of the frame of a call
		calls  int
		writes int
	}{{"short", 100, 10, 2}, {"long", 30_000, 10, 4}, {"a batch each", mux.BatchSize, 3, 3}} {
		t.Run(c.name, func(t *testing.T) {
			m := proxytest.NewDubboAllocMesh(t, 1, 1, "dubbo", dubbo.Frame{})
			p, client := m.DubboProvider(), m.Clients[0]
			call := proxytest.CallFrame(1, dubbo.Hessian2, proxytest.HessianCallOf(t, c.size-dubbo.HeaderSize))
			for range 2 { // dials, and then sends on the connection
				client.Deliver(call)
				m.Net.Pump()
				p.Conn.Write(p.Responses(nil))
				m.Net.Pump()
				p.Calls = p.Calls[:0]
			}
			conn := p.Conn.Peer
			before := conn.Writes
			for i := range c.calls {
				client.Deliver(call)
				if writes := conn.Writes - before; writes != 1 {
					t.Errorf("%d writes for %d calls before the end of the turn, want one for the first", writes, i+1)
				}
			}
			m.Net.Pump()
			if writes := conn.Writes - before; writes != c.writes || len(p.Calls) != c.calls {
				t.Errorf("%d calls in %d writes, want %d in %d", len(p.Calls), writes, c.calls, c.writes)
			}
		})
	}
}

// TestAllocationsPerCall: a call and its response allocate nothing, and neither does the response to a heartbeat of the provider.
func TestAllocationsPerCall(t *testing.T) {
	m := proxytest.NewDubboAllocMesh(t, 1, 1, "dubbo", dubbo.Frame{})
	p, client := m.DubboProvider(), m.Clients[0]
	call := proxytest.CallFrame(1, dubbo.Hessian2, proxytest.HessianCall(proxytest.DemoService, "", "", "m", strings.Repeat("x", 1000)))
	respond := dubbo.AppendFrame(nil, &dubbo.Frame{Serialization: dubbo.Hessian2, Status: dubbo.StatusOK, Body: make([]byte, 100)})
	beat := dubbo.AppendHeartbeat(nil, dubbo.Hessian2, 7)
	client.Deliver(call)
	m.Net.Pump()
	p.Conn.Write(p.Responses(nil))
	m.Net.Pump()
	m.CheckAllocs(0, func() {
		p.Calls, client.Out = p.Calls[:0], client.Out[:0]
		client.Deliver(call)
		m.Net.Pump()
		binary.BigEndian.PutUint64(respond[4:], uint64(p.Calls[0].ID))
		p.Conn.Write(respond)
		p.Conn.Write(beat)
		m.Net.Pump()
		if len(p.Calls) != 2 || len(client.Out) != dubbo.HeaderSize+100 {
			t.Fatalf("%d frames, and a response of %d bytes", len(p.Calls), len(client.Out))
		}
	})
}

// TestEventsOfProvider: a heartbeat has the null of its serialization as its response. An event that expects no response, or is too
// long for a heartbeat, has none.
func TestEventsOfProvider(t *testing.T) {
	const unknown = 21 // a serialization
	m := proxytest.NewDubboAllocMesh(t, 1, 1, "dubbo", dubbo.Frame{})
	p := m.DubboProvider()
	m.Clients[0].Deliver(proxytest.CallFrame(1, dubbo.Hessian2, proxytest.HessianCall(proxytest.DemoService, "", "", "m", "x")))
	m.Net.Pump()
	for i, c := range []struct {
		frame dubbo.Frame
		body  string // of the response; empty for none
	}{
		{dubbo.Frame{Request: true, TwoWay: true, Event: true, Serialization: dubbo.Hessian2, Body: []byte("N")}, "N"},
		{dubbo.Frame{Request: true, TwoWay: true, Event: true, Serialization: unknown, Body: []byte("nothing")}, "nothing"},
		{dubbo.Frame{Request: true, TwoWay: true, Event: true, Serialization: unknown, Body: make([]byte, 1024)}, string(make([]byte, 1024))},
		{dubbo.Frame{Request: true, TwoWay: true, Event: true, Serialization: unknown, Body: make([]byte, 1025)}, ""},
		{dubbo.Frame{Request: true, Event: true, Serialization: dubbo.Hessian2, Body: []byte("N")}, ""},
		{dubbo.Frame{Event: true, Serialization: dubbo.Hessian2, Body: []byte("N")}, ""},
	} {
		c.frame.ID = int64(i)
		p.Calls = p.Calls[:0]
		p.Conn.Write(dubbo.AppendFrame(nil, &c.frame))
		m.Net.Pump()
		if c.body == "" {
			proxytest.Equal(t, "responses", len(p.Calls), 0)
			continue
		}
		if len(p.Calls) != 1 {
			t.Fatalf("event %d has %d responses", i, len(p.Calls))
		}
		f := p.Calls[0]
		if f.Request || !f.Event || f.Serialization != c.frame.Serialization || f.Status != dubbo.StatusOK || f.ID != int64(i) || string(f.Body) != c.body {
			t.Errorf("the response to event %d is %+v", i, f)
		}
	}
}

// TestOutputBounds: while a provider does not read, calls and responses to its heartbeats are written until more than mux.MaxOutbound
// bytes wait in the sidecar.
func TestOutputBounds(t *testing.T) {
	for waiting, want := range map[int]int{mux.MaxOutbound: 1, mux.MaxOutbound + 1: 0} {
		for _, what := range []string{"heartbeats", "calls"} {
			t.Run(fmt.Sprint(what, " behind ", waiting), func(t *testing.T) {
				m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "timeout: 1m, retry: {on: [connect]}"})
				a := m.Apps[0]
				c := m.DialDubbo(proxytest.EgressDubbo)
				c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
				provider := a.Conns[0]
				m.W.Faults.PauseReading(provider.Conn, true)
				ids := []int64{c.Call(dubbo.Hessian2, proxytest.HessianCallOf(t, m.W.Options.ReceiveBuffer+m.W.Options.SendBuffer+waiting-dubbo.HeaderSize))}
				m.W.Run(time.Second)
				for range 2 {
					if what == "calls" {
						ids = append(ids, c.CallHessian("m", "x"))
					} else {
						a.Loop.Do(func() { provider.Conn.Write(dubbo.AppendHeartbeat(nil, dubbo.Hessian2, 1)) })
					}
					m.W.Run(10 * time.Millisecond)
				}
				if what == "calls" {
					m.W.Faults.Reset(provider.Conn)
					sent := 0 // a call that was not sent takes another connection
					for _, id := range ids[1:] {
						if c.Await(id).Status != dubbo.StatusOK {
							sent++
						}
					}
					proxytest.Equal(t, "calls that were written", sent, want)
				} else {
					m.W.Faults.PauseReading(provider.Conn, false)
					c.CheckResult(ids[0], dubbo.StatusOK, "")
					m.W.Run(100 * time.Millisecond)
					proxytest.Equal(t, "responses to heartbeats", provider.Answered, want)
				}
				m.Settled()
			})
		}
	}
}

// TestUnsentHeartbeat: a heartbeat that the provider does not take is output that waits, like calls.
func TestUnsentHeartbeat(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "timeout: 2m, retry: {on: []}", Limits: "timeouts: {write: 1s}"})
	c := m.DialDubbo(proxytest.EgressDubbo)
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
	m.W.Faults.PauseReading(m.Apps[0].Conns[0].Conn, true)
	id := c.Call(dubbo.Hessian2, proxytest.HessianCallOf(t, m.W.Options.ReceiveBuffer+m.W.Options.SendBuffer-dubbo.HeaderSize))
	m.W.Run(5 * time.Second)
	proxytest.Equal(t, "write timeouts of a call that the kernel has", m.Consumer.WriteTimeouts(), uint64(0))
	if f := c.Await(id); f.Status == dubbo.StatusOK {
		t.Error("a response of a provider that does not read")
	}
	proxytest.Equal(t, "write timeouts", m.Consumer.WriteTimeouts(), uint64(1))
	m.Settled()
}

// TestLostProviderWithUnreadCalls: calls that a provider has not read count no longer when its connection is lost.
func TestLostProviderWithUnreadCalls(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "retry: {on: []}"})
	c := m.DialDubbo(proxytest.EgressDubbo)
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
	provider := m.Apps[0].Conns[0]
	m.W.Faults.PauseReading(provider.Conn, true)
	c.Call(dubbo.Hessian2, proxytest.HessianCallOf(t, 1<<20))
	m.W.Run(time.Second)
	m.W.Faults.Reset(provider.Conn)
	m.RunUntil("the failure of the call", func() bool { return m.Consumer.Proc.Pending() == 0 })
	proxytest.Equal(t, "bytes held", m.Consumer.Proc.Held(), int64(0))
	m.Settled()
}
