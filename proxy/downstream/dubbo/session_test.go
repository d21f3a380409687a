package dubbo_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/race"
)

// TestRefusedCalls checks that a refusal reaches the caller in its own serialization, and
// does not affect other calls.
func TestRefusedCalls(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Limits: "limits: {message: 1KiB}"})
	m.Apps[0].Delay = func() time.Duration { return 200 * time.Millisecond }
	c := m.DialDubbo(proxytest.EgressDubbo)
	id := c.CallHessian("m", "x")
	m.RunUntil("the call", func() bool { return m.Apps[0].Busy == 1 })
	c.CheckRefused(5, proxytest.CallFrame(5, dubbo.Hessian2, make([]byte, 1025)), dubbo.StatusBadRequest, "message-too-large")
	c.CheckRefused(6, proxytest.CallFrame(6, dubbo.Fastjson, []byte("nonsense")), dubbo.StatusBadRequest, "dubbo-bad-invocation")
	c.CheckRefused(7, proxytest.CallFrame(7, dubbo.Hessian2, nil), dubbo.StatusBadRequest, "dubbo-bad-invocation")
	c.CheckRefused(8, proxytest.CallFrame(8, 21, []byte("x")), dubbo.StatusBadRequest, "dubbo-serialization")
	for id, serialization := range map[int64]byte{5: dubbo.Hessian2, 6: dubbo.Fastjson, 8: dubbo.Hessian2} {
		if got := c.Responses[id].Serialization; got != serialization {
			t.Errorf("call %d was refused in serialization %d", id, got)
		}
	}
	if n := m.Consumer.Report().Stats.Errors.Of("dubbo-bad-invocation"); n != 2 {
		t.Errorf("%d malformed calls are counted, want 2", n)
	}
	oneWay := &dubbo.Frame{Request: true, Serialization: dubbo.Hessian2, ID: 9, Body: make([]byte, 1025)}
	c.Send(dubbo.AppendFrame(nil, oneWay))                                        // expects no response
	c.Send(dubbo.AppendFrame(nil, &dubbo.Frame{ID: 3, Body: make([]byte, 5000)})) // a response to no call
	c.Send(dubbo.AppendFrame(nil, &dubbo.Frame{Request: true, Event: true, TwoWay: true, Body: make([]byte, 5000)}))
	c.CheckResult(id, dubbo.StatusOK, "")
	m.Settled()
}

// TestCallLimitOfConsumerConnection checks that calls above the limit of a consumer's
// connection are refused at once.
func TestCallLimitOfConsumerConnection(t *testing.T) {
	const most = 4096
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Service: "max_pending: 10000", Provider: "max_pending: 10000, max_concurrency: 1, max_queue: 10000"})
	m.Apps[0].Delay = func() time.Duration { return time.Second }
	c := m.DialDubbo(proxytest.EgressDubbo)
	for range most + 100 {
		c.CallHessian("m", "x")
	}
	m.RunUntil("refusals", func() bool { return len(c.Responses) == 100 })
	m.W.Run(100 * time.Millisecond)
	if len(c.Responses) != 100 {
		t.Errorf("%d responses", len(c.Responses))
	}
	for _, f := range c.Responses {
		if f.Status != dubbo.StatusPoolExhausted || !bytes.Contains(f.Body, []byte("too-many-pipelined: ")) {
			t.Errorf("refused with %d %q", f.Status, f.Body)
		}
	}
	m.Clients.Do(func() { c.Conn.Close() })
	m.Settled()
}

// TestOtherProtocols checks that bytes other than Dubbo close the connection.
func TestOtherProtocols(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1})
	for _, sent := range []string{"GET / HTTP/1.1\r\n\r\n", "\xda\xbc", "\xda\xbb\xc2\x00\x00\x00\x00\x00\x00\x00\x00\x01\xff\xff\xff\xff"} {
		if received := m.RunUntilClosed(m.DialAndSend(proxytest.EgressDubbo, sent)); received != "" {
			t.Errorf("response %q", received)
		}
	}
	m.Settled()
}

// TestConsumerTimeouts checks that an idle connection closes, and one with an incomplete
// frame, and that heartbeats keep a connection open.
func TestConsumerTimeouts(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Service: "timeout: 30s", Limits: "timeouts: {idle: 10s, header: 1s, body: 2s}"})
	call := proxytest.CallFrame(7, dubbo.Hessian2, proxytest.HessianCall(proxytest.DemoService, "", "", "m", "x"))
	oneWay, response := bytes.Clone(call), bytes.Clone(call)
	oneWay[2] &^= 0x40
	response[2] &^= 0x80
	for _, c := range []struct {
		name  string
		sends []byte
		lasts time.Duration
		code  string
	}{
		{"idle", nil, 10 * time.Second, ""},
		{"half a header", call[:7], time.Second, ""},
		{"half a call", call[:30], 2 * time.Second, "body-timeout: "},
		{"half a call that is too long", proxytest.CallFrame(7, dubbo.Hessian2, make([]byte, 5<<20))[:1000], 2 * time.Second, "message-too-large: "},
		{"half a call that expects no response", oneWay[:30], 2 * time.Second, ""},
		{"half a response", response[:30], 2 * time.Second, ""},
		{"half an event", dubbo.AppendHeartbeat(nil, dubbo.Hessian2, 7)[:16], 2 * time.Second, ""},
	} {
		before := m.W.Now()
		received := m.RunUntilClosed(m.DialAndSend(proxytest.EgressDubbo, string(c.sends)))
		if took := m.W.Now() - before; took < c.lasts || took > c.lasts+3*time.Second/2 {
			t.Errorf("%s: closed after %v", c.name, took)
		}
		if !bytes.Contains([]byte(received), []byte(c.code)) || (c.code == "") != (received == "") {
			t.Errorf("%s: received %q", c.name, received)
		}
	}
	c := m.DialDubbo(proxytest.EgressDubbo)
	m.Apps[0].Delay = func() time.Duration { return 14 * time.Second }
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "") // a connection that waits for a response is not idle
	for range 5 {
		c.Send(dubbo.AppendHeartbeat(nil, dubbo.Hessian2, 1))
		m.W.Run(8 * time.Second)
	}
	if c.Ended {
		t.Error("the connection closed in spite of heartbeats")
	}
	m.RunUntil("the end", func() bool { return c.Ended })
	m.Settled()
}

// TestSplitFrames checks that each frame has its own time to arrive, although the begin of the next one comes with its end.
func TestSplitFrames(t *testing.T) {
	for name, at := range map[string]int{"in the head": 7, "in the body": 30} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Limits: "timeouts: {header: 1s, body: 1s}"})
			c := m.DialDubbo(proxytest.EgressDubbo)
			var ids []int64
			var rest []byte
			for id := range int64(5) {
				body := proxytest.HessianCall(proxytest.DemoService, "", "", "m", "x")
				call := proxytest.CallFrame(id+1, dubbo.Hessian2, body)
				c.InFlight[id+1], ids = body, append(ids, id+1)
				c.Send(append(rest, call[:at]...))
				rest = call[at:]
				m.W.Run(700 * time.Millisecond)
			}
			c.Send(rest)
			for _, id := range ids {
				c.CheckResult(id, dubbo.StatusOK, "")
			}
			m.Settled()
		})
	}
}

// TestNoDubboResponse checks that a response which is none of Dubbo is not passed on.
func TestNoDubboResponse(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1})
	w := link.NewWriter()
	w.Preface(link.Acceptor, link.Settings{})
	w.Open(1, link.Settings{})
	p := &proxytest.Peer{Says: w.Append(nil, 1<<20)}
	p.Reply = func(heard []byte) []byte {
		if bytes.Contains(heard, []byte("echo")) {
			w.Response(1, &protocol.Response{Status: 200, Body: []byte("x"), DeclaredLength: -1}, protocol.CodecHTTP, nil)
		}
		return w.Append(nil, 1<<20)
	}
	m.ReplaceProvider(p)
	c := m.DialDubbo(proxytest.EgressDubbo)
	c.CheckResult(c.CallHessian("echo", "x"), dubbo.StatusBadResponse, "")
	m.Clients.Do(func() { c.Conn.Close() })
	m.Settled()
}

// TestTraceOfCall checks that the trace in the attachments of a call is that of its access line.
func TestTraceOfCall(t *testing.T) {
	for parent, want := range map[string]string{proxytest.SampledParent: proxytest.ParentTraceID, proxytest.SampledParent[:54]: ""} {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Limits: proxytest.LogAll})
		body := proxytest.FastjsonCall(proxytest.DemoService, "", "", "echo", "x")
		body = bytes.Replace(body, []byte(`{"path"`), []byte(`{"traceparent":"`+parent+`","path"`), 1)
		c := m.DialDubbo(proxytest.EgressDubbo)
		c.CheckResult(c.Call(dubbo.Fastjson, body), dubbo.StatusOK, "")
		m.Settled()
		if got := m.Consumer.OnlyAccessLine().TraceID; got != want {
			t.Errorf("%s: the trace %q, want %q", parent, got, want)
		}
	}
}

// TestConsumerDisconnects checks that the calls of a lost consumer are withdrawn, and
// count as pending until their provider has responded.
func TestConsumerDisconnects(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{OneHop: direct, Apps: 1})
		a := m.Apps[0]
		a.Delay = func() time.Duration { return time.Second }
		c := m.DialDubbo(proxytest.EgressDubbo)
		for range 10 {
			c.CallHessian("m", "x")
		}
		m.RunUntil("the calls", func() bool { return a.Busy == 10 })
		m.Clients.Do(func() { c.Conn.Close() })
		m.W.Run(100 * time.Millisecond)
		if n := m.Consumer.Proc.Pending(); n != 10 {
			t.Errorf("%d calls are counted, of 10 at the provider", n)
		}
		m.Settled()
		if a.Accepted != 1 || !a.Conns[0].Open {
			t.Error("the connection to the provider is lost")
		}
	})
}

// TestDrain checks that a draining sidecar announces its end, still takes calls for a
// moment, completes calls in flight and closes.
func TestDrain(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Service: "timeout: 30s"})
	m.W.Options.Cut = 0.5
	m.Apps[0].Delay = func() time.Duration { return 3 * time.Second }
	m.Apps[0].Respond = func(f *dubbo.Frame) *dubbo.Frame {
		return &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusOK, Body: make([]byte, 100_000)}
	}
	c, idle := m.DialDubbo(proxytest.EgressDubbo), m.DialDubbo(proxytest.EgressDubbo)
	first := c.CallHessian("m", "x")
	m.RunUntil("the call", func() bool { return m.Apps[0].Busy == 1 })
	m.Consumer.Proc.Drain()
	m.RunUntil("the event", func() bool { return len(c.Events) > 0 && len(idle.Events) > 0 })
	if f := c.Events[0]; !dubbo.ReadOnly(f) || !f.Request || f.TwoWay {
		t.Errorf("the event is %+v", f)
	}
	second := c.CallHessian("m", "x")
	m.RunUntil("the close of an idle connection", func() bool { return idle.Ended })
	third := c.CallHessian("m", "x")
	c.CheckResult(third, dubbo.StatusPoolExhausted, "")
	c.CheckResult(first, dubbo.StatusOK, "")
	c.CheckResult(second, dubbo.StatusOK, "")
	m.RunUntil("the close", func() bool { return c.Ended })
	late := m.DialDubbo(proxytest.EgressDubbo) // accepted just before the listener closed
	late.CheckResult(late.CallHessian("m", "x"), dubbo.StatusOK, "")
	m.RunUntil("the close", func() bool { return late.Ended })
	m.Settled()
}

// TestDrainWaitsForPartialFrame checks that a frame that has begun to arrive before the drain is taken: a call is served,
// and after an event, which has no response, the connection closes too.
func TestDrainWaitsForPartialFrame(t *testing.T) {
	body := proxytest.HessianCall(proxytest.DemoService, "", "", "m", "x")
	event := &dubbo.Frame{Request: true, Event: true, Serialization: dubbo.Hessian2, ID: 7, Body: []byte("N")}
	for _, test := range []struct {
		name   string
		frame  []byte
		served bool
	}{
		{"call", proxytest.CallFrame(7, dubbo.Hessian2, body), true},
		{"event", dubbo.AppendFrame(nil, event), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1})
			c := m.DialDubbo(proxytest.EgressDubbo)
			c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
			c.Send(test.frame[:16])
			m.Consumer.Proc.Drain()
			m.RunUntil("the event", func() bool { return len(c.Events) > 0 })
			m.W.Run(3 * time.Second)
			if c.Ended {
				t.Fatal("the connection closed in the middle of a frame")
			}
			if test.served {
				c.InFlight[7] = body
			}
			c.Send(test.frame[16:])
			if test.served {
				c.CheckResult(7, dubbo.StatusOK, "")
			}
			m.W.Run(time.Second)
			if !c.Ended {
				t.Error("the connection is open")
			}
			m.Settled()
		})
	}
}

// TestRetire checks that connections close after their last response when another process
// takes over the listener, whether this process ends soon after or not.
func TestRetire(t *testing.T) {
	for name, ends := range map[string]bool{"goes on": false, "ends": true} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1})
			m.Apps[0].Delay = func() time.Duration { return 3 * time.Second }
			c, idle := m.DialDubbo(proxytest.EgressDubbo), m.DialDubbo(proxytest.EgressDubbo)
			id := c.CallHessian("m", "x")
			m.RunUntil("the call", func() bool { return m.Apps[0].Busy == 1 })
			began := m.W.Now()
			m.Consumer.Proc.Retire()
			if ends {
				m.Consumer.Proc.Drain() // the connections drain already
			}
			m.RunUntil("the close of an idle connection", func() bool { return idle.Ended })
			if took := m.W.Now() - began; took < time.Second || took > 1100*time.Millisecond {
				t.Errorf("the idle connection had %v for calls on their way", took)
			}
			if len(c.Events) != 1 || !dubbo.ReadOnly(c.Events[0]) {
				t.Errorf("%d events", len(c.Events))
			}
			late := proxytest.CallFrame(99, dubbo.Hessian2, proxytest.HessianCall(proxytest.DemoService, "", "", "m", "x"))
			c.CheckRefused(99, late, dubbo.StatusPoolExhausted, "draining")
			c.CheckResult(id, dubbo.StatusOK, "")
			m.RunUntil("the close", func() bool { return c.Ended })
			m.Settled()
		})
	}
}

// TestWriteTimeout checks that unread responses count as buffered until the write timeout
// closes the connection.
func TestWriteTimeout(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Limits: "timeouts: {write: 5s}"})
	m.Apps[0].Respond = func(f *dubbo.Frame) *dubbo.Frame {
		return &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusOK, Body: make([]byte, 1<<20)}
	}
	c := m.DialDubbo(proxytest.EgressDubbo)
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
	m.W.Faults.PauseReading(c.Conn, true)
	for range 10 {
		c.CallHessian("m", "x")
	}
	m.RunUntil("memory in use", func() bool { return m.Consumer.Proc.Held() > 5<<20 })
	m.RunUntil("the close", func() bool { return m.Consumer.Report().Stats.Connections == 0 })
	if m.Consumer.Report().Stats.WriteTimeouts != 1 {
		t.Error("the write timeout did not close the connection")
	}
	m.Settled()
}

// TestMemoryShortage checks that calls of the largest holder of memory are refused, and
// other consumers are served.
func TestMemoryShortage(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Service: "max_pending: 5000", Limits: "limits: {buffered: 1MiB, message: 256KiB}"})
	m.Apps[0].Delay = func() time.Duration { return time.Second }
	big, small := m.DialDubbo(proxytest.EgressDubbo), m.DialDubbo(proxytest.EgressDubbo)
	for range 100 {
		big.CallHessian("m", string(bytes.Repeat([]byte("x"), 100_000)))
	}
	m.RunUntil("refusals", func() bool { return len(big.Responses) > 0 || big.Ended })
	id := small.CallHessian("m", "x")
	small.CheckResult(id, dubbo.StatusOK, "")
	for _, f := range big.Responses {
		if f.Status != dubbo.StatusOK && f.Status != dubbo.StatusPoolExhausted {
			t.Errorf("status %d", f.Status)
		}
	}
	if big.Ended {
		t.Log("the large connection was closed")
	}
	m.RunUntil("the rest", func() bool { return len(big.InFlight) == 0 || big.Ended })
	m.Settled()
}

// TestShedLargestCalls checks that above the hard mark the calls that hold the most memory
// are abandoned one by one, and that their connection and its other calls continue.
func TestShedLargestCalls(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 2, OneHop: true, Limits: proxytest.SmallBudget,
		Service: `idempotent: true, retry: {on: ["5xx"]}, hedge: {budget: 1}, lb: {policy: weighted_round_robin}`})
	// A bad response is held while another endpoint may send a better one.
	bad, good := m.Apps[0], m.Apps[1]
	bad.Respond = func(f *dubbo.Frame) *dubbo.Frame {
		size := 100
		if bytes.Contains(f.Body, []byte("large")) {
			size = 1 << 20
		}
		return &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusServerError, Body: make([]byte, size)}
	}
	good.Delay = func() time.Duration { return time.Second }
	c := m.DialDubbo(proxytest.EgressDubbo)
	const each = 16
	var small, large []int64
	for range each {
		small = append(small, c.CallHessian("small", "x"))
		large = append(large, c.CallHessian("large", "x"))
	}
	for _, id := range small {
		c.CheckResult(id, dubbo.StatusOK, "")
	}
	for _, id := range large {
		if f := c.Await(id); f.Status != dubbo.StatusOK && !bytes.Contains(f.Body, []byte("shed: ")) {
			t.Errorf("status %d, %.100q", f.Status, f.Body)
		}
	}
	m.Consumer.CheckBelowHardMark()
	m.Consumer.CheckShedRequests(each)
	m.Settled()
}

// TestNoStreamOfDubboEndpoint checks that no stream gets an endpoint that speaks Dubbo.
func TestNoStreamOfDubboEndpoint(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true})
	var got *fault.Failure
	m.Consumer.Loop.Do(func() {
		m.Consumer.Proc.Workers()[0].Open("compute", func(_ *race.Stream, _ race.Target, f *fault.Failure) { got = f })
	})
	m.RunUntil("the result", func() bool { return got != nil })
	if got != fault.Unsupported {
		t.Errorf("got %+v", got)
	}
	m.Settled()
}

// TestShedIdle checks that a connection that waits for a call is shed, and a busy one is not.
func TestShedIdle(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Service: "timeout: 30s"})
	m.Apps[0].Delay = func() time.Duration { return 3 * time.Second }
	c, idle := m.DialDubbo(proxytest.EgressDubbo), m.DialDubbo(proxytest.EgressDubbo)
	call := c.CallHessian("m", "x")
	m.W.Run(2 * time.Second)
	for range 2 {
		m.Consumer.Proc.ShedIdle()
	}
	m.RunUntil("the close of an idle connection", func() bool { return idle.Ended })
	c.CheckResult(call, dubbo.StatusOK, "")
	m.Settled()
}
