package http2_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// withhold has an application give no window back while withheld is true. It notes the request that was last.
type withhold struct {
	*app
	withheld bool
	server   *proxytest.HTTP2Conn
	st       *http2.Stream
}

func newWithhold(a *app) *withhold {
	w := &withhold{app: a, withheld: true}
	a.stop()
	a.stop = a.m.W.Net.Listen(a.of.Addr, a.of.Loop, func() loop.Receiver {
		c := proxytest.NewHTTP2Conn(0, func(c *proxytest.HTTP2Conn, st *http2.Stream) {
			if a.calls++; a.onCall != nil {
				a.onCall(c, st)
				return
			}
			respond(c, st)
		})
		c.Withhold = &w.withheld
		c.OnHead = func(c *proxytest.HTTP2Conn, st *http2.Stream) { w.server, w.st = c, st }
		a.conns = append(a.conns, c)
		return c
	})
	return w
}

// give gives n bytes of the window of a stream back.
func (w *withhold) give(server *proxytest.HTTP2Conn, st *http2.Stream, n int) {
	w.of.Loop.Do(func() {
		server.H2.Consumed(st, n)
		server.Flush()
	})
}

// TestUnsentAfterOther: a request that was sent whole before takes no time from a request whose window is closed.
func TestUnsentAfterOther(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Limits: "timeouts: {write: 2s}",
		Service: "timeout: 60s, idle_timeout: 1m, retry: {on: []}"})
	newWithhold(startApps(m)[0])
	m.OK(do(m))
	m.W.Run(1500 * time.Millisecond)
	big := m.Post(300 << 10)
	m.Do(big)
	if m.Finish(big); big.Code != "upstream-reset" || big.Took < 3900*time.Millisecond {
		t.Errorf("status %d %s after %v", big.Status, big.Code, big.Took)
	}
}

// TestSlowEndpoint: a request whose endpoint takes it slowly, a part within each timeouts.write, arrives.
func TestSlowEndpoint(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Limits: "timeouts: {write: 2s}", Service: "timeout: 60s"})
	w := newWithhold(startApps(m)[0])
	big := m.Post(400 << 10)
	m.Do(big)
	for !big.Done && m.W.Now() < 50*time.Second {
		m.W.Run(1500 * time.Millisecond)
		if w.calls == 0 {
			w.give(w.server, w.st, 40<<10)
		}
	}
	if m.OK(big); big.Took < 10*time.Second {
		t.Errorf("it took only %v", big.Took)
	}
	if n := m.Consumer.Report().Stats.WriteTimeouts; n != 0 {
		t.Errorf("%d timeouts of writes", n)
	}
	m.Settled()
}

// TestUnsentAttempts: a request whose window is closed is withdrawn after two checks, one in each timeouts.write, also after a
// request of which a part was sent was cancelled, was abandoned by its caller, or has got its response early.
func TestUnsentAttempts(t *testing.T) {
	for name, before := range map[string]func(m *proxytest.Mesh, w [2]*withhold) (first int){
		"nothing before": func(*proxytest.Mesh, [2]*withhold) int { return 0 },
		"cancelled": func(m *proxytest.Mesh, w [2]*withhold) int {
			big := m.Post(300 << 10)
			m.Do(big)
			m.RunUntil("an attempt", func() bool { return w[0].server != nil || w[1].server != nil })
			first := 0
			if w[0].server == nil {
				first = 1
			}
			w[1-first].withheld = false
			m.OK(big)
			w[1-first].withheld = true
			m.W.Run(10 * time.Millisecond)
			if got := w[first].conns[0].Resets; len(got) != 1 || got[0] != http2.Cancel {
				m.T.Errorf("the slow application got resets %v", got)
			}
			return first
		},
		"abandoned": func(m *proxytest.Mesh, w [2]*withhold) int {
			m.Consumer.Update("compute", m.Endpoint(0))
			client := m.Do(m.Post(300 << 10))
			m.W.Run(10 * time.Millisecond)
			client.Leave()
			m.W.Run(10 * time.Millisecond)
			return 0
		},
		"lingering": func(m *proxytest.Mesh, w [2]*withhold) int {
			first := -1
			for i := range w {
				w[i].onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
					if first >= 0 {
						respond(c, st)
					}
					first = i
				}
			}
			get := m.Get("/")
			m.Do(get)
			m.RunUntil("an attempt", func() bool { return first >= 0 })
			w[0].onCall, w[1].onCall = nil, nil
			m.W.Faults.Pause(w[first].of.Loop, 20*time.Second)
			m.OK(get)
			return first
		},
		"a stream": func(m *proxytest.Mesh, w [2]*withhold) int {
			m.Consumer.Update("compute", m.Endpoint(0))
			m.Do(m.Post(300 << 10))
			m.W.Run(10 * time.Millisecond)
			w[0].of.Loop.Do(func() {
				w[0].server.H2.ResponseHead(w[0].st, &protocol.Response{Status: 200, DeclaredLength: -1})
				w[0].server.H2.Send(w[0].st, []byte("first"))
				w[0].server.Flush()
			})
			return 0
		},
		"early response": func(m *proxytest.Mesh, w [2]*withhold) int {
			m.Consumer.Update("compute", m.Endpoint(0))
			big := m.Post(300 << 10)
			m.Do(big)
			m.W.Run(10 * time.Millisecond)
			w[0].of.Loop.Do(func() {
				respond(w[0].server, w[0].st)
				w[0].server.Flush()
			})
			m.OK(big)
			m.W.Run(10 * time.Millisecond)
			if got := w[0].conns[0].Resets; len(got) != 1 || got[0] != http2.Cancel {
				m.T.Errorf("the application that has responded early got resets %v", got)
			}
			return 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, carrier, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 2, OneHop: true, Speaks: "http2", Limits: "timeouts: {write: 2s}", Match: messages,
				Service: "idempotent: true, timeout: 60s, idle_timeout: 1m, retry: {on: []}, hedge: {mode: on, delay: 20ms, budget: 1}"})
			var w [2]*withhold
			for i, a := range startApps(m) {
				w[i] = newWithhold(a)
			}
			first := before(m, w)
			m.Consumer.Update("compute", m.Endpoint(first))
			m.W.Run(5 * time.Second)
			big := m.Post(300 << 10)
			m.Do(big)
			if m.Finish(big); big.Code != "upstream-reset" || big.Took < 3900*time.Millisecond || big.Took > 4100*time.Millisecond {
				t.Errorf("status %d %s after %v, want a reset after 4 s", big.Status, big.Code, big.Took)
			}
			m.W.Run(10 * time.Millisecond)
			for _, p := range carrier.Pipes {
				if p.Closed != nil {
					t.Errorf("the stream has ended: %v", p.Closed)
				}
			}
			if n := len(w[first].open()); n != 1 || len(w[first].conns) != 1 {
				t.Errorf("%d connections are open of %d", n, len(w[first].conns))
			}
			if n := m.Consumer.Report().Stats.WriteTimeouts; n != 1 {
				t.Errorf("%d timeouts of writes are counted", n)
			}
			proxytest.CheckStreamsSettled(m, carrier)
		})
	}
}

// TestUnsentBesideOthers: a request whose window is closed is withdrawn. A request that was sent before it goes on, and so does a
// request that is sent slowly.
func TestUnsentBesideOthers(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Limits: "timeouts: {write: 2s}",
		Service: "timeout: 60s, retry: {on: []}"})
	w := newWithhold(startApps(m)[0])
	w.onCall = w.later(15 * time.Second)
	sent := m.Post(10)
	m.Do(sent)
	m.W.Run(100 * time.Millisecond)
	w.st = nil
	slow := m.Post(200 << 10)
	m.Do(slow)
	m.RunUntil("the slow request", func() bool { return w.st != nil })
	server, st := w.server, w.st
	nonce := string(protocol.Find(server.Request.Headers, "x-nonce"))
	w.onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) { // of the slow request
		c.H2.Respond(st, &protocol.Response{Status: 200, DeclaredLength: -1, Headers: []protocol.Header{field("x-nonce", nonce)}}, nil)
	}
	closed := m.Post(200 << 10)
	m.Do(closed)
	for range 4 {
		m.W.Run(1500 * time.Millisecond)
		w.give(server, st, 20<<10)
	}
	if closed.Code != "upstream-reset" || closed.Took < 3900*time.Millisecond || closed.Took > 4100*time.Millisecond || sent.Done || slow.Done {
		t.Errorf("status %d %s after %v, want a reset after 4 s; the others have ended: %t, %t", closed.Status, closed.Code, closed.Took, sent.Done, slow.Done)
	}
	w.withheld = false
	w.give(server, st, 100<<10)
	m.Finish(sent, slow)
	m.OK(sent, slow)
	m.Settled()
}
