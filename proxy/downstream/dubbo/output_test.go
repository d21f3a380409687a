package dubbo_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestResponsesOfTurn: short responses of a turn are written together, at most mux.BatchSize bytes at a time. A long response is written
// at once, behind those before it.
func TestResponsesOfTurn(t *testing.T) {
	for _, c := range []struct {
		name          string
		sizes         []int
		before, whole int // writes, before the end of the turn and in all
	}{
		{"short", slices.Repeat([]int{100}, 10), 0, 1},
		{"a batch, and one more", []int{65_520, 100}, 0, 1},
		{"more than a batch, and one more", []int{65_521, 100}, 1, 2},
		{"four batches", slices.Repeat([]int{30_000}, 10), 3, 4},
		{"no long one", []int{65_536}, 0, 1},
		{"a long one", []int{65_537}, 1, 1},
		{"a long one between short ones", []int{100, 100_000, 100, 100}, 1, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := proxytest.NewDubboAllocMesh(t, 1, 1, "dubbo", dubbo.Frame{})
			p, client := m.DubboProvider(), m.Clients[0]
			var calls, want []byte
			var bodies [][]byte
			for i, size := range c.sizes {
				id := int64(i + 1)
				calls = append(calls, proxytest.CallFrame(id, dubbo.Hessian2, proxytest.HessianCall(proxytest.DemoService, "", "", "m", "x"))...)
				bodies = append(bodies, bytes.Repeat([]byte{byte(i)}, size))
				want = dubbo.AppendFrame(want, &dubbo.Frame{Serialization: dubbo.Hessian2, Status: dubbo.StatusOK, ID: id, Body: bodies[i]})
			}
			client.Deliver(calls)
			m.Net.Pump()
			p.Conn.Peer.Deliver(p.Responses(bodies...))
			proxytest.Equal(t, "writes before the end of the turn", client.Writes, c.before)
			m.Net.Pump()
			proxytest.Equal(t, "writes", client.Writes, c.whole)
			if !bytes.Equal(client.Out, want) {
				t.Errorf("the %d bytes of responses are not the %d that were expected", len(client.Out), len(want))
			}
		})
	}
}

// TestAllocationsPerHeartbeat: the response to a heartbeat allocates nothing.
func TestAllocationsPerHeartbeat(t *testing.T) {
	m := proxytest.NewDubboAllocMesh(t, 1, 4, "dubbo", dubbo.Frame{})
	beat := dubbo.AppendHeartbeat(nil, dubbo.Hessian2, 7)
	want := dubbo.AppendHeartbeatAnswer(nil, &dubbo.Frame{Serialization: dubbo.Hessian2, ID: 7})
	m.CheckAllocs(0, func() { m.CallFrame(beat, want) })
}

// TestMemoryOfCalls: the memory of a long call serves the next one, whether the call was sent on or refused.
func TestMemoryOfCalls(t *testing.T) {
	const size = 100_000
	for name, call := range map[string][]byte{
		"sent on": proxytest.HessianCall(proxytest.DemoService, "", "", "m", string(make([]byte, size))),
		"refused": make([]byte, size),
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true})
			m.Apps[0].Respond = func(f *dubbo.Frame) *dubbo.Frame {
				return &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusOK}
			}
			c := m.DialDubbo(proxytest.EgressDubbo)
			c.Await(c.Call(dubbo.Hessian2, call))
			first := m.Consumer.Proc.Kept()
			if first < size {
				t.Errorf("%d bytes are kept for the next call", first)
			}
			for range 3 {
				c.Await(c.Call(dubbo.Hessian2, call))
			}
			if kept := m.Consumer.Proc.Kept(); kept != first {
				t.Errorf("%d bytes are kept after four calls, %d after one", kept, first)
			}
			m.Settled()
		})
	}
}

// TestEvents: a heartbeat has the null of its serialization as its response, also right behind a call that was refused. An
// event that expects no response, or is too long for a heartbeat, has none, and neither has a response.
func TestEvents(t *testing.T) {
	const unknown = 21 // a serialization
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Limits: "limits: {message: 2KiB}"})
	var sent, want []byte
	for i, c := range []struct {
		frame dubbo.Frame
		body  string // of the response; empty for none
	}{
		{dubbo.Frame{Request: true, TwoWay: true, Event: true, Serialization: dubbo.Hessian2, Body: []byte("N")}, "N"},
		{dubbo.Frame{Request: true, TwoWay: true, Event: true, Serialization: dubbo.Fastjson, Body: []byte("null\n")}, "null\n"},
		{dubbo.Frame{Request: true, TwoWay: true, Event: true, Serialization: unknown, Body: []byte("nothing")}, "nothing"},
		{dubbo.Frame{Request: true, TwoWay: true, Event: true, Serialization: unknown, Body: make([]byte, 1024)}, string(make([]byte, 1024))},
		{dubbo.Frame{Request: true, TwoWay: true, Event: true, Serialization: unknown, Body: make([]byte, 1025)}, ""},
		{dubbo.Frame{Request: true, Event: true, Serialization: dubbo.Hessian2, Body: []byte("N")}, ""},
		{dubbo.Frame{Request: true, Serialization: dubbo.Hessian2, Body: make([]byte, 3000)}, ""}, // is refused
		{dubbo.Frame{Serialization: dubbo.Hessian2, Status: dubbo.StatusOK, Body: []byte("N")}, ""},
		{dubbo.Frame{Request: true, Serialization: dubbo.Hessian2, Body: make([]byte, 3000)}, ""}, // is refused
		{dubbo.Frame{Event: true, Serialization: dubbo.Hessian2, Body: []byte("N")}, ""},
		{dubbo.Frame{Request: true, TwoWay: true, Event: true, Serialization: dubbo.Hessian2, Body: []byte("N")}, "N"},
	} {
		c.frame.ID = int64(i)
		sent = dubbo.AppendFrame(sent, &c.frame)
		if c.body != "" {
			want = dubbo.AppendFrame(want, &dubbo.Frame{Event: true, Serialization: c.frame.Serialization, Status: dubbo.StatusOK, ID: int64(i), Body: []byte(c.body)})
		}
	}
	p := m.DialAndSend(proxytest.EgressDubbo, string(sent))
	m.RunUntil("the last response", func() bool { return len(p.Heard) >= len(want) })
	m.W.Run(100 * time.Millisecond)
	if !bytes.Equal(p.Heard, want) {
		t.Errorf("received %x, want %x", p.Heard, want)
	}
	if n := m.Consumer.Report().Stats.Errors.Of("message-too-large"); n != 2 || p.Ended {
		t.Errorf("%d calls were refused, connection closed: %t", n, p.Ended)
	}
	m.Settled()
}

// TestHeartbeatsWithUnreadResponses: heartbeats have responses until more than mux.MaxOutbound bytes wait in the sidecar for
// the consumer to read.
func TestHeartbeatsWithUnreadResponses(t *testing.T) {
	for waiting, want := range map[int]int{mux.MaxOutbound: 1, mux.MaxOutbound + 1: 0} {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true})
		c := m.DialDubbo(proxytest.EgressDubbo)
		c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
		m.Apps[0].Respond = func(f *dubbo.Frame) *dubbo.Frame {
			size := m.W.Options.ReceiveBuffer + m.W.Options.SendBuffer + waiting - dubbo.HeaderSize
			return &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusOK, Body: make([]byte, size)}
		}
		m.W.Faults.PauseReading(c.Conn, true)
		id := c.CallHessian("m", "x")
		m.RunUntil("the response", func() bool { return m.Consumer.Proc.Pending() == 0 })
		m.W.Run(time.Second)
		proxytest.Equal(t, "bytes that wait", m.Consumer.Proc.Held(), int64(waiting))
		for range 2 {
			c.Send(dubbo.AppendHeartbeat(nil, dubbo.Hessian2, 1))
			m.W.Run(10 * time.Millisecond)
		}
		m.W.Faults.PauseReading(c.Conn, false)
		c.CheckResult(id, dubbo.StatusOK, "")
		m.W.Run(100 * time.Millisecond)
		if len(c.Events) != want {
			t.Errorf("%d bytes wait: %d responses to heartbeats, want %d", waiting, len(c.Events), want)
		}
		m.Settled()
	}
}

// TestLostConsumerWithUnreadResponses: responses that a consumer has not read count no longer when its connection is lost.
func TestLostConsumerWithUnreadResponses(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true})
	m.Apps[0].Respond = func(f *dubbo.Frame) *dubbo.Frame {
		return &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusOK, Body: make([]byte, 1<<20)}
	}
	c := m.DialDubbo(proxytest.EgressDubbo)
	m.RunUntil("the connection", func() bool { return c.Conn != nil })
	m.W.Faults.PauseReading(c.Conn, true)
	c.CallHessian("m", "x")
	m.RunUntil("the response", func() bool { return m.Consumer.Proc.Pending() == 0 && m.Consumer.Proc.Held() > 0 })
	m.W.Faults.Reset(c.Conn)
	m.RunUntil("the close", func() bool { return m.Consumer.Connections() == 0 })
	if held := m.Consumer.Proc.Held(); held != 0 {
		t.Errorf("%d bytes are held for a consumer that has gone", held)
	}
	m.Settled()
}
