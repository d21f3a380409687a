package proxy_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy"
)

// frameOf is a two-way call.
func frameOf(id int64, serialization byte, body []byte) []byte {
	return dubbo.AppendFrame(nil, &dubbo.Frame{Request: true, TwoWay: true, Serialization: serialization, ID: id, Body: body})
}

// refused says what is no call, under an id, and wants it refused with the code.
func (c *caller) refused(id int64, b []byte, status dubbo.Status, code string) {
	c.m.t.Helper()
	c.out[id] = b
	c.say(b)
	if f := c.await(id); f.Status != status || !bytes.Contains(f.Body, []byte(code+": ")) {
		c.m.t.Errorf("status %d, %q; want %d, %s", f.Status, f.Body, status, code)
	}
}

// TestCallsThatAreRefused: what is wrong with one call is told to its caller, in
// what it understands, and costs the others nothing.
func TestCallsThatAreRefused(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 1, limits: "limits: {message: 1KiB}"})
	m.apps[0].delay = func() time.Duration { return 200 * time.Millisecond }
	c := m.caller(egressDubbo)
	id := c.hessian("m", "x")
	m.until("the call", func() bool { return m.apps[0].busy == 1 })
	c.refused(5, frameOf(5, dubbo.Hessian2, make([]byte, 1025)), dubbo.StatusBadRequest, "message-too-large")
	c.refused(6, frameOf(6, dubbo.Fastjson, []byte("nonsense")), dubbo.StatusBadRequest, "dubbo-bad-invocation")
	c.refused(7, frameOf(7, dubbo.Hessian2, nil), dubbo.StatusBadRequest, "dubbo-bad-invocation")
	c.refused(8, frameOf(8, 21, []byte("x")), dubbo.StatusBadRequest, "dubbo-serialization")
	for id, serialization := range map[int64]byte{5: dubbo.Hessian2, 6: dubbo.Fastjson, 8: dubbo.Hessian2} {
		if got := c.answers[id].Serialization; got != serialization {
			t.Errorf("call %d was refused in serialization %d", id, got)
		}
	}
	if n := m.consumer.report().Stats.Errors["dubbo-bad-invocation"]; n != 2 {
		t.Errorf("%d malformed calls are counted, of two", n)
	}
	oneWay := &dubbo.Frame{Request: true, Serialization: dubbo.Hessian2, ID: 9, Body: make([]byte, 1025)}
	c.say(dubbo.AppendFrame(nil, oneWay))                                        // wants no answer
	c.say(dubbo.AppendFrame(nil, &dubbo.Frame{ID: 3, Body: make([]byte, 5000)})) // an answer to nothing
	c.say(dubbo.AppendFrame(nil, &dubbo.Frame{Request: true, Event: true, TwoWay: true, Body: make([]byte, 5000)}))
	c.wants(id, dubbo.StatusOK, "")
	m.settled()
}

// TestTooManyCalls: past what a connection may have out, calls are refused at
// once.
func TestTooManyCalls(t *testing.T) {
	const most = 4096
	m := newDubboMesh(t, dubboOptions{apps: 1, service: ", max_pending: 10000", provider: ", max_pending: 10000, max_concurrency: 1, max_queue: 10000"})
	m.apps[0].delay = func() time.Duration { return time.Second }
	c := m.caller(egressDubbo)
	for range most + 100 {
		c.hessian("m", "x")
	}
	m.until("refusals", func() bool { return len(c.answers) == 100 })
	m.w.Run(100 * time.Millisecond)
	if len(c.answers) != 100 {
		t.Errorf("%d answers", len(c.answers))
	}
	for _, f := range c.answers {
		if f.Status != dubbo.StatusPoolExhausted || !bytes.Contains(f.Body, []byte("too-many-pipelined: ")) {
			t.Errorf("refused with %d %q", f.Status, f.Body)
		}
	}
	m.clients.Do(func() { c.conn.Close() })
	m.settled()
}

// TestWhatIsNotDubbo closes the connection.
func TestWhatIsNotDubbo(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 1})
	for _, said := range []string{"GET / HTTP/1.1\r\n\r\n", "\xda\xbc", "\xda\xbb\xc2\x00\x00\x00\x00\x00\x00\x00\x00\x01\xff\xff\xff\xff"} {
		if heard := m.wait(m.speak(egressDubbo, said)); heard != "" {
			t.Errorf("answer %q", heard)
		}
	}
	m.settled()
}

// TestSlowConsumers: a connection closes that is idle, and one whose frame does
// not end; a heartbeat shows that a consumer means to stay.
func TestSlowConsumers(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 1, service: ", timeout: 30s", limits: "timeouts: {idle: 10s, header: 1s, body: 2s}"})
	call := frameOf(7, dubbo.Hessian2, hessianCall(demo, "", "", "m", "x"))
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
		before := m.w.Now()
		heard := m.wait(m.speak(egressDubbo, string(c.says)))
		if took := m.w.Now() - before; took < c.lasts || took > c.lasts+3*time.Second/2 {
			t.Errorf("%s: closed after %v", c.name, took)
		}
		if !bytes.Contains([]byte(heard), []byte(c.code)) || (c.code == "") != (heard == "") {
			t.Errorf("%s: heard %q", c.name, heard)
		}
	}
	c := m.caller(egressDubbo)
	m.apps[0].delay = func() time.Duration { return 14 * time.Second }
	c.wants(c.hessian("m", "x"), dubbo.StatusOK, "") // it waits; it is not idle
	for range 5 {
		c.say(dubbo.AppendHeartbeat(nil, dubbo.Hessian2, 1))
		m.w.Run(8 * time.Second)
	}
	if c.ended {
		t.Error("closed in spite of heartbeats")
	}
	m.until("the end", func() bool { return c.ended })
	m.settled()
}

// TestCallerGone: what a consumer that is gone asked for is withdrawn; the
// provider's work stays counted until it is done.
func TestCallerGone(t *testing.T) {
	eachWay(t, func(t *testing.T, direct bool) {
		m := newDubboMesh(t, dubboOptions{direct: direct, apps: 1})
		a := m.apps[0]
		a.delay = func() time.Duration { return time.Second }
		c := m.caller(egressDubbo)
		for range 10 {
			c.hessian("m", "x")
		}
		m.until("the calls", func() bool { return a.busy == 10 })
		m.clients.Do(func() { c.conn.Close() })
		m.w.Run(100 * time.Millisecond)
		if n := m.consumer.proc.Pending(); n != 10 {
			t.Errorf("%d calls are counted, of 10 at the provider", n)
		}
		m.settled()
		if a.dialed != 1 || !a.conns[0].open {
			t.Error("the connection to the provider is lost")
		}
	})
}

// TestDubboDrain: a sidecar that goes down says so, serves what comes until then
// and what is out, whole, and closes.
func TestDubboDrain(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 1, service: ", timeout: 30s"})
	m.w.Options.Cut = 0.5
	m.apps[0].delay = func() time.Duration { return 3 * time.Second }
	m.apps[0].answer = func(f *dubbo.Frame) *dubbo.Frame {
		return &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusOK, Body: make([]byte, 100_000)}
	}
	c, idle := m.caller(egressDubbo), m.caller(egressDubbo)
	first := c.hessian("m", "x")
	m.until("the call", func() bool { return m.apps[0].busy == 1 })
	m.consumer.proc.Drain()
	m.until("the event", func() bool { return len(c.events) > 0 && len(idle.events) > 0 })
	if f := c.events[0]; !dubbo.ReadOnly(f) || !f.Request || f.TwoWay {
		t.Errorf("the event is %+v", f)
	}
	second := c.hessian("m", "x")
	m.until("the close of an idle connection", func() bool { return idle.ended })
	third := c.hessian("m", "x")
	c.wants(third, dubbo.StatusPoolExhausted, "")
	c.wants(first, dubbo.StatusOK, "")
	c.wants(second, dubbo.StatusOK, "")
	m.until("the close", func() bool { return c.ended })
	late := m.caller(egressDubbo) // accepted just before the listener closed
	late.wants(late.hessian("m", "x"), dubbo.StatusOK, "")
	m.until("the close", func() bool { return late.ended })
	m.settled()
}

// TestDubboDrainWaitsForHalfACall: one that has begun to arrive is taken whole.
func TestDubboDrainWaitsForHalfACall(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 1})
	c := m.caller(egressDubbo)
	c.wants(c.hessian("m", "x"), dubbo.StatusOK, "")
	body := hessianCall(demo, "", "", "m", "x")
	c.out[7] = body
	b := frameOf(7, dubbo.Hessian2, body)
	c.say(b[:30])
	m.consumer.proc.Drain()
	m.until("the event", func() bool { return len(c.events) > 0 })
	m.w.Run(3 * time.Second)
	c.say(b[30:])
	c.wants(7, dubbo.StatusOK, "")
	m.until("the close", func() bool { return c.ended })
	m.settled()
}

// TestDubboRetire: consumers of a listener that another process takes over are told to
// go, and get their answers before.
func TestDubboRetire(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 1})
	m.apps[0].delay = func() time.Duration { return 3 * time.Second }
	c, idle := m.caller(egressDubbo), m.caller(egressDubbo)
	id := c.hessian("m", "x")
	m.until("the call", func() bool { return m.apps[0].busy == 1 })
	m.consumer.proc.Retire()
	m.until("the close of an idle connection", func() bool { return idle.ended })
	if len(c.events) != 1 || !dubbo.ReadOnly(c.events[0]) {
		t.Errorf("%d events", len(c.events))
	}
	c.wants(id, dubbo.StatusOK, "")
	m.until("the close", func() bool { return c.ended })
	m.settled()
}

// TestConsumersThatDoNotRead: answers that nobody reads are counted, and end with
// the write timeout.
func TestConsumersThatDoNotRead(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 1, direct: true, limits: "timeouts: {write: 5s}"})
	m.apps[0].answer = func(f *dubbo.Frame) *dubbo.Frame {
		return &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusOK, Body: make([]byte, 1<<20)}
	}
	c := m.caller(egressDubbo)
	c.wants(c.hessian("m", "x"), dubbo.StatusOK, "")
	m.w.Hold(c.conn, true)
	for range 10 {
		c.hessian("m", "x")
	}
	m.until("memory in use", func() bool { return m.consumer.proc.Held() > 5<<20 })
	m.until("the close", func() bool { return m.consumer.report().Stats.Connections == 0 })
	if m.consumer.report().Stats.WriteTimeouts != 1 {
		t.Error("it was not for the write timeout")
	}
	m.settled()
}

// TestDubboUnderMemoryPressure: with memory short, who holds the most is refused,
// and then closed.
func TestDubboUnderMemoryPressure(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 1, direct: true, service: ", max_pending: 5000", limits: "limits: {buffered: 1MiB, message: 256KiB}"})
	m.apps[0].delay = func() time.Duration { return time.Second }
	big, small := m.caller(egressDubbo), m.caller(egressDubbo)
	for range 100 {
		big.hessian("m", string(bytes.Repeat([]byte("x"), 100_000)))
	}
	m.until("refusals", func() bool { return len(big.answers) > 0 || big.ended })
	id := small.hessian("m", "x")
	small.wants(id, dubbo.StatusOK, "")
	for _, f := range big.answers {
		if f.Status != dubbo.StatusOK && f.Status != dubbo.StatusPoolExhausted {
			t.Errorf("status %d", f.Status)
		}
	}
	if big.ended {
		t.Log("the greedy connection was closed")
	}
	m.until("the rest", func() bool { return len(big.out) == 0 || big.ended })
	m.settled()
}

// TestGreedyCallsAreGivenUp: past the hard mark the calls of a connection that hold
// the most are given up, one by one, and the others and the connection go on.
func TestGreedyCallsAreGivenUp(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 2, direct: true, limits: small,
		service: `, idempotent: true, retry: {on: ["5xx"]}, hedge: {budget: 1}, lb: {policy: weighted_round_robin}`})
	// A bad answer is held while a better one may come from elsewhere.
	bad, good := m.apps[0], m.apps[1]
	bad.answer = func(f *dubbo.Frame) *dubbo.Frame {
		size := 100
		if bytes.Contains(f.Body, []byte("greedy")) {
			size = 1 << 20
		}
		return &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusServerError, Body: make([]byte, size)}
	}
	good.delay = func() time.Duration { return time.Second }
	c := m.caller(egressDubbo)
	const each = 16
	var modest, greedy []int64
	for range each {
		modest = append(modest, c.hessian("modest", "x"))
		greedy = append(greedy, c.hessian("greedy", "x"))
	}
	for _, id := range modest {
		c.wants(id, dubbo.StatusOK, "")
	}
	for _, id := range greedy {
		if f := c.await(id); f.Status != dubbo.StatusOK && !bytes.Contains(f.Body, []byte("shed: ")) {
			t.Errorf("status %d, %.100q", f.Status, f.Body)
		}
	}
	m.consumer.bounded()
	m.consumer.gaveUp(each)
	m.settled()
}

// TestNoLeaseOfDubbo: a stream gets no endpoint that speaks Dubbo.
func TestNoLeaseOfDubbo(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 1, direct: true})
	var got *proxy.Failure
	m.consumer.loop.Do(func() {
		m.consumer.proc.Workers()[0].Lease("compute", func(l *proxy.Lease, at proxy.Place, f *proxy.Failure) { got = f })
	})
	m.until("the lease", func() bool { return got != nil })
	if got != proxy.FailUnsupported {
		t.Errorf("got %+v", got)
	}
	m.settled()
}
