package dubbo_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestCallsThatAreRefused: what is wrong with one call is told to its caller, in
// what it understands, and costs the others nothing.
func TestCallsThatAreRefused(t *testing.T) {
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
	if n := m.Consumer.Report().Stats.Errors["dubbo-bad-invocation"]; n != 2 {
		t.Errorf("%d malformed calls are counted, of two", n)
	}
	oneWay := &dubbo.Frame{Request: true, Serialization: dubbo.Hessian2, ID: 9, Body: make([]byte, 1025)}
	c.Send(dubbo.AppendFrame(nil, oneWay))                                        // wants no answer
	c.Send(dubbo.AppendFrame(nil, &dubbo.Frame{ID: 3, Body: make([]byte, 5000)})) // an answer to nothing
	c.Send(dubbo.AppendFrame(nil, &dubbo.Frame{Request: true, Event: true, TwoWay: true, Body: make([]byte, 5000)}))
	c.CheckResult(id, dubbo.StatusOK, "")
	m.Settled()
}

// TestTooManyCalls: past what a connection may have out, calls are refused at
// once.
func TestTooManyCalls(t *testing.T) {
	const most = 4096
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Service: ", max_pending: 10000", Provider: ", max_pending: 10000, max_concurrency: 1, max_queue: 10000"})
	m.Apps[0].Delay = func() time.Duration { return time.Second }
	c := m.DialDubbo(proxytest.EgressDubbo)
	for range most + 100 {
		c.CallHessian("m", "x")
	}
	m.RunUntil("refusals", func() bool { return len(c.Responses) == 100 })
	m.W.Run(100 * time.Millisecond)
	if len(c.Responses) != 100 {
		t.Errorf("%d answers", len(c.Responses))
	}
	for _, f := range c.Responses {
		if f.Status != dubbo.StatusPoolExhausted || !bytes.Contains(f.Body, []byte("too-many-pipelined: ")) {
			t.Errorf("refused with %d %q", f.Status, f.Body)
		}
	}
	m.Clients.Do(func() { c.Conn.Close() })
	m.Settled()
}

// TestWhatIsNotDubbo closes the connection.
func TestWhatIsNotDubbo(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1})
	for _, said := range []string{"GET / HTTP/1.1\r\n\r\n", "\xda\xbc", "\xda\xbb\xc2\x00\x00\x00\x00\x00\x00\x00\x00\x01\xff\xff\xff\xff"} {
		if heard := m.RunUntilClosed(m.DialAndSend(proxytest.EgressDubbo, said)); heard != "" {
			t.Errorf("answer %q", heard)
		}
	}
	m.Settled()
}

// TestSlowConsumers: a connection closes that is idle, and one whose frame does
// not end; a heartbeat shows that a consumer means to stay.
func TestSlowConsumers(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Service: ", timeout: 30s", Limits: "timeouts: {idle: 10s, header: 1s, body: 2s}"})
	call := proxytest.CallFrame(7, dubbo.Hessian2, proxytest.HessianCall(proxytest.DemoService, "", "", "m", "x"))
	for _, c := range []struct {
		name  string
		says  []byte
		lasts time.Duration
		code  string
	}{
		{"idle", nil, 10 * time.Second, ""},
		{"half a header", call[:7], time.Second, ""},
		{"half a call", call[:30], 2 * time.Second, "body-timeout: "},
	} {
		before := m.W.Now()
		heard := m.RunUntilClosed(m.DialAndSend(proxytest.EgressDubbo, string(c.says)))
		if took := m.W.Now() - before; took < c.lasts || took > c.lasts+3*time.Second/2 {
			t.Errorf("%s: closed after %v", c.name, took)
		}
		if !bytes.Contains([]byte(heard), []byte(c.code)) || (c.code == "") != (heard == "") {
			t.Errorf("%s: heard %q", c.name, heard)
		}
	}
	c := m.DialDubbo(proxytest.EgressDubbo)
	m.Apps[0].Delay = func() time.Duration { return 14 * time.Second }
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "") // it waits; it is not idle
	for range 5 {
		c.Send(dubbo.AppendHeartbeat(nil, dubbo.Hessian2, 1))
		m.W.Run(8 * time.Second)
	}
	if c.Ended {
		t.Error("closed in spite of heartbeats")
	}
	m.RunUntil("the end", func() bool { return c.Ended })
	m.Settled()
}

// TestCallerGone: what a consumer that is gone asked for is withdrawn; the
// provider's work stays counted until it is done.
func TestCallerGone(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Direct: direct, Apps: 1})
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

// TestDubboDrain: a sidecar that goes down says so, serves calls until then
// and what is out, whole, and closes.
func TestDubboDrain(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Service: ", timeout: 30s"})
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

// TestDubboDrainWaitsForHalfACall: one that has begun to arrive is taken whole.
func TestDubboDrainWaitsForHalfACall(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1})
	c := m.DialDubbo(proxytest.EgressDubbo)
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
	body := proxytest.HessianCall(proxytest.DemoService, "", "", "m", "x")
	c.InFlight[7] = body
	b := proxytest.CallFrame(7, dubbo.Hessian2, body)
	c.Send(b[:30])
	m.Consumer.Proc.Drain()
	m.RunUntil("the event", func() bool { return len(c.Events) > 0 })
	m.W.Run(3 * time.Second)
	c.Send(b[30:])
	c.CheckResult(7, dubbo.StatusOK, "")
	m.RunUntil("the close", func() bool { return c.Ended })
	m.Settled()
}

// TestDubboRetire: consumers of a listener that another process takes over are told to
// go, and get their answers before.
func TestDubboRetire(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1})
	m.Apps[0].Delay = func() time.Duration { return 3 * time.Second }
	c, idle := m.DialDubbo(proxytest.EgressDubbo), m.DialDubbo(proxytest.EgressDubbo)
	id := c.CallHessian("m", "x")
	m.RunUntil("the call", func() bool { return m.Apps[0].Busy == 1 })
	m.Consumer.Proc.Retire()
	m.RunUntil("the close of an idle connection", func() bool { return idle.Ended })
	if len(c.Events) != 1 || !dubbo.ReadOnly(c.Events[0]) {
		t.Errorf("%d events", len(c.Events))
	}
	c.CheckResult(id, dubbo.StatusOK, "")
	m.RunUntil("the close", func() bool { return c.Ended })
	m.Settled()
}

// TestConsumersThatDoNotRead: answers that nobody reads are counted, and end with
// the write timeout.
func TestConsumersThatDoNotRead(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Direct: true, Limits: "timeouts: {write: 5s}"})
	m.Apps[0].Respond = func(f *dubbo.Frame) *dubbo.Frame {
		return &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusOK, Body: make([]byte, 1<<20)}
	}
	c := m.DialDubbo(proxytest.EgressDubbo)
	c.CheckResult(c.CallHessian("m", "x"), dubbo.StatusOK, "")
	m.W.Hold(c.Conn, true)
	for range 10 {
		c.CallHessian("m", "x")
	}
	m.RunUntil("memory in use", func() bool { return m.Consumer.Proc.Held() > 5<<20 })
	m.RunUntil("the close", func() bool { return m.Consumer.Report().Stats.Connections == 0 })
	if m.Consumer.Report().Stats.WriteTimeouts != 1 {
		t.Error("it was not for the write timeout")
	}
	m.Settled()
}

// TestDubboUnderMemoryPressure: with memory short, who holds the most is refused,
// and then closed.
func TestDubboUnderMemoryPressure(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Direct: true, Service: ", max_pending: 5000", Limits: "limits: {buffered: 1MiB, message: 256KiB}"})
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

// TestGreedyCallsAreGivenUp: past the hard mark the calls of a connection that hold
// the most are given up, one by one, and the others and the connection go on.
func TestGreedyCallsAreGivenUp(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 2, Direct: true, Limits: proxytest.SmallBudget,
		Service: `, idempotent: true, retry: {on: ["5xx"]}, hedge: {budget: 1}, lb: {policy: weighted_round_robin}`})
	// A bad answer is held while a better one may come from elsewhere.
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

// TestNoLeaseOfDubbo: a stream gets no endpoint that speaks Dubbo.
func TestNoLeaseOfDubbo(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Direct: true})
	var got *fault.Failure
	m.Consumer.Loop.Do(func() {
		m.Consumer.Proc.Workers()[0].Lease("compute", func(l *exchange.Lease, at exchange.Target, f *fault.Failure) { got = f })
	})
	m.RunUntil("the lease", func() bool { return got != nil })
	if got != fault.Unsupported {
		t.Errorf("got %+v", got)
	}
	m.Settled()
}
