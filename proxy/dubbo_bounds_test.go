package proxy_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
)

// TestTooManyCallsToAProvider: past what a connection to a provider may have out,
// whoever they are of, calls are refused at once.
func TestTooManyCallsToAProvider(t *testing.T) {
	const most, more = 4096, 104
	m := newDubboMesh(t, dubboOptions{apps: 1, direct: true, service: ", max_pending: 10000, retry: {on: []}"})
	a := m.apps[0]
	a.delay = func() time.Duration { return time.Second }
	one, other := m.caller(egressDubbo), m.caller(egressDubbo)
	for range (most + more) / 2 {
		one.hessian("m", "x")
		other.hessian("m", "x")
	}
	m.until("the calls", func() bool { return a.busy == most && len(one.answers)+len(other.answers) == more })
	for _, c := range []*caller{one, other} {
		for _, f := range c.answers {
			if f.Status != dubbo.StatusPoolExhausted || !bytes.Contains(f.Body, []byte("connection-full: ")) {
				t.Errorf("refused with %d %q", f.Status, f.Body)
			}
		}
	}
	m.until("the answers", func() bool { return len(one.out)+len(other.out) == 0 })
	m.settled()
}

// TestCallsOfTheGreatestLength: limits.message is the length of what still passes.
func TestCallsOfTheGreatestLength(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 1, limits: "limits: {message: 1KiB}"})
	c := m.caller(egressDubbo)
	sized := func(n int) []byte {
		arg := strings.Repeat("x", 100)
		arg += strings.Repeat("x", n-len(hessianCall(demo, "", "", "m", arg)))
		return hessianCall(demo, "", "", "m", arg)
	}
	c.wants(c.call(dubbo.Hessian2, sized(1024)), dubbo.StatusOK, "")
	c.wants(c.call(dubbo.Hessian2, sized(1025)), dubbo.StatusBadRequest, "")
	m.settled()
}

// TestEventsThatWantNoAnswer get none, from neither side: those that say so, and
// those that are too long for a heartbeat.
func TestEventsThatWantNoAnswer(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 1, direct: true})
	c := m.caller(egressDubbo)
	c.wants(c.hessian("m", "x"), dubbo.StatusOK, "")
	events := dubbo.AppendFrame(nil, &dubbo.Frame{Request: true, Event: true, Serialization: dubbo.Hessian2, ID: 1, Body: []byte("N")})
	events = dubbo.AppendFrame(events, &dubbo.Frame{Request: true, Event: true, TwoWay: true, Serialization: dubbo.Hessian2, ID: 2, Body: make([]byte, 5000)})
	events = dubbo.AppendHeartbeat(events, dubbo.Hessian2, 3)
	provider := m.apps[0].conns[0]
	c.say(events)
	m.apps[0].loop.Do(func() { provider.conn.Write(events) })
	m.until("answers to heartbeats", func() bool { return len(c.events) > 0 && provider.answered > 0 })
	m.w.Run(100 * time.Millisecond)
	if len(c.events) != 1 || c.events[0].ID != 3 || provider.answered != 1 {
		t.Errorf("the consumer got %d answers, the provider %d", len(c.events), provider.answered)
	}
	m.settled()
}

// TestHeartbeatsOfThoseThatDoNotRead are answered no more once much is unread.
func TestHeartbeatsOfThoseThatDoNotRead(t *testing.T) {
	const bound = 512 << 10
	m := newDubboMesh(t, dubboOptions{apps: 1, direct: true})
	c := m.caller(egressDubbo)
	c.wants(c.hessian("m", "x"), dubbo.StatusOK, "")
	a := m.apps[0]
	many := bytes.Repeat(dubbo.AppendHeartbeat(nil, dubbo.Hessian2, 1), 1000)
	for name, say := range map[string]func(){
		"consumer": func() { c.say(many) },
		"provider": func() { a.loop.Do(func() { a.conns[0].conn.Write(many) }) },
	} {
		m.w.Hold(c.conn, true)
		m.w.Hold(a.conns[0].conn, true)
		for range 200 {
			say()
			m.w.Run(time.Millisecond)
		}
		m.w.Run(time.Second)
		if held := m.consumer.proc.Held(); held > bound {
			t.Errorf("%d bytes wait for a %s that does not read", held, name)
		}
		m.w.Hold(c.conn, false)
		m.w.Hold(a.conns[0].conn, false)
		m.settled()
	}
}

// TestHalfFramesAreCounted against limits.buffered, while they are here.
func TestHalfFramesAreCounted(t *testing.T) {
	const size = 100_000
	m := newDubboMesh(t, dubboOptions{apps: 1, direct: true, service: ", retry: {on: []}"})
	a := m.apps[0]
	a.answer = never
	var asked int64
	a.seen = func(f *dubbo.Frame) { asked = f.ID }
	c := m.caller(egressDubbo)
	id := c.hessian("m", "x")
	m.until("the call", func() bool { return asked != 0 })
	answer := dubbo.AppendFrame(nil, &dubbo.Frame{Serialization: dubbo.Hessian2, Status: dubbo.StatusOK, ID: asked, Body: make([]byte, size)})
	a.loop.Do(func() { a.conns[0].conn.Write(answer[:size/2]) })
	m.until("half an answer", func() bool { return m.consumer.proc.Held() >= size/2 })
	m.w.Reset(a.conns[0].conn)
	c.wants(id, dubbo.StatusServerError, "")
	m.settled()
	c.say(frameOf(7, dubbo.Hessian2, make([]byte, size))[:size/2])
	m.until("half a call", func() bool { return m.consumer.proc.Held() >= size/2 })
	m.clients.Do(func() { c.conn.Close() })
	m.settled()
}

// TestCallsWhileMemoryIsShort: of a connection that is over its share big calls are not
// received, small ones pass.
func TestCallsWhileMemoryIsShort(t *testing.T) {
	const big = 140_000
	m := newDubboMesh(t, dubboOptions{apps: 1, direct: true, limits: "limits: {buffered: 1MiB, message: 256KiB}"})
	a := m.apps[0]
	a.answer = never
	c := m.caller(egressDubbo)
	for len(c.answers) == 0 {
		c.hessian("m", strings.Repeat("x", big))
		m.w.Run(10 * time.Millisecond)
	}
	before, served := m.consumer.proc.Held(), a.served
	b := frameOf(1, dubbo.Hessian2, hessianCall(demo, "", "", "m", strings.Repeat("x", big)))
	c.out[1] = b
	c.say(b[:big/2])
	m.w.Run(10 * time.Millisecond)
	if held := m.consumer.proc.Held() - before; held > 100 {
		t.Errorf("%d bytes of a call that is refused are held", held)
	}
	c.say(b[big/2:])
	c.wants(1, dubbo.StatusPoolExhausted, "")
	c.hessian("m", "small")
	m.until("the small call", func() bool { return a.served == served+1 })
	m.settled()
}

// TestCallsThatArriveWhileMemoryRunsShort are refused when they are big, though they
// had begun before.
func TestCallsThatArriveWhileMemoryRunsShort(t *testing.T) {
	const big = 140_000
	m := newDubboMesh(t, dubboOptions{apps: 1, direct: true, limits: "limits: {buffered: 1MiB, message: 256KiB}"})
	a := m.apps[0]
	a.answer = never
	c, other := m.caller(egressDubbo), m.caller(egressDubbo)
	for range 6 {
		c.hessian("m", strings.Repeat("x", big))
	}
	b := frameOf(1, dubbo.Hessian2, hessianCall(demo, "", "", "m", strings.Repeat("x", big)))
	c.out[1] = b
	c.say(b[:big/2])
	m.until("half a call", func() bool { return m.consumer.proc.Held() > 13*big/2 })
	for range 3 {
		other.hessian("m", strings.Repeat("x", big))
	}
	m.until("the calls of another", func() bool { return a.served == 9 })
	c.say(b[big/2:])
	c.wants(1, dubbo.StatusPoolExhausted, "")
	m.settled()
}

// TestEndpointsThatGoWithoutAnAnswer: the connection to an endpoint that has left
// closes when the last call on it has come to its deadline, or was withdrawn before
// it could be sent.
func TestEndpointsThatGoWithoutAnAnswer(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 1, direct: true, service: ", timeout: 10s"})
	a := m.apps[0]
	a.answer = never
	c := m.caller(egressDubbo)
	id := c.hessian("m", "x")
	m.until("the call", func() bool { return a.busy == 1 })
	m.consumer.update("compute")
	c.wants(id, dubbo.StatusServerTimeout, "")
	m.w.Run(10 * time.Millisecond)
	if a.conns[0].open {
		t.Error("the connection outlives the last deadline")
	}
	m.settled()

	m = newDubboMesh(t, dubboOptions{apps: 1, direct: true, service: ", timeout: 10s"})
	a = m.apps[0]
	c = m.caller(egressDubbo)
	c.wants(c.hessian("m", "x"), dubbo.StatusOK, "")
	a.deaf = true // a connection that is not proven sends no calls
	a.loop.Do(func() { a.conns[0].conn.Write(dubbo.AppendReadOnly(nil, dubbo.Hessian2)) })
	m.until("the end of the connection", func() bool { return !a.conns[0].open })
	c.hessian("m", "x")
	m.until("another connection", func() bool { return a.dialed == 2 })
	m.w.Run(10 * time.Millisecond)
	m.consumer.update("compute")
	m.clients.Do(func() { c.conn.Close() })
	m.w.Run(100 * time.Millisecond)
	if a.conns[1].open {
		t.Error("the connection outlives its last call")
	}
	m.settled()
}

// TestConnectionsLeaveNothing: no timer outlives its connection.
func TestConnectionsLeaveNothing(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 1, direct: true})
	c := m.caller(egressDubbo)
	c.wants(c.hessian("m", "x"), dubbo.StatusOK, "")
	m.consumer.update("compute")
	m.consumer.proc.Drain()
	m.until("the event", func() bool { return len(c.events) > 0 })
	m.clients.Do(func() { c.conn.Close() })
	m.w.Run(100 * time.Millisecond)
	if left := m.w.Leftovers(); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
}

// TestConnectionsThatAreCut: a consumer that reads nothing of what is too much to
// hold loses its connection, and its calls are given up at once.
func TestConnectionsThatAreCut(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 1, direct: true, limits: small, service: ", timeout: 5m"})
	m.apps[0].answer = func(f *dubbo.Frame) *dubbo.Frame {
		if bytes.Contains(f.Body, []byte("never")) {
			return nil
		}
		return &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusOK, Body: make([]byte, 1<<20)}
	}
	c := m.caller(egressDubbo)
	c.wants(c.hessian("m", "x"), dubbo.StatusOK, "")
	m.w.Hold(c.conn, true)
	c.hessian("never", "x")
	for range 10 {
		c.hessian("m", "x")
	}
	m.until("the cut", func() bool { return m.consumer.shed() == 1 })
	if n := m.consumer.proc.Pending(); n != 0 {
		t.Errorf("%d calls are waited for, for nobody", n)
	}
	m.w.Hold(c.conn, false)
	m.settled()
}

// TestAnswersInUnknownSerializations can't be passed on as the caller's.
func TestAnswersInUnknownSerializations(t *testing.T) {
	eachWay(t, func(t *testing.T, direct bool) {
		m := newDubboMesh(t, dubboOptions{direct: direct, apps: 1})
		m.apps[0].answer = func(*dubbo.Frame) *dubbo.Frame {
			return &dubbo.Frame{Serialization: 21, Status: dubbo.StatusOK, Body: []byte("x")}
		}
		c := m.caller(egressDubbo)
		c.wants(c.hessian("m", "x"), dubbo.StatusBadResponse, "")
		m.settled()
	})
}
