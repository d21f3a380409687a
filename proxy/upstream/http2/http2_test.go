package http2_test

import (
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// app is an application that speaks HTTP/2.
type app struct {
	m       *proxytest.Mesh
	of      *proxytest.App
	streams int                    // that a connection allows; 0 means the default
	conns   []*proxytest.HTTP2Conn // all that were accepted
	calls   int
	onHead  func(c *proxytest.HTTP2Conn, st *http2.Stream) // of a request whose body follows; nil means nothing
	onCall  func(c *proxytest.HTTP2Conn, st *http2.Stream) // nil means respond
	stop    func()
}

// newMesh returns a mesh whose applications speak HTTP/2.
func newMesh(t *testing.T, n int, service string) (*proxytest.Mesh, []*app) {
	t.Helper()
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: n, OneHop: true, Speaks: "http2", Service: service})
	return m, startApps(m)
}

func startApps(m *proxytest.Mesh) (apps []*app) {
	for _, of := range m.Apps {
		of.Stop()
		a := &app{m: m, of: of}
		a.listen()
		apps = append(apps, a)
	}
	return apps
}

func (a *app) listen() {
	a.stop = a.m.W.Net.Listen(a.of.Addr, a.of.Loop, func() loop.Receiver {
		c := proxytest.NewHTTP2Conn(a.streams, func(c *proxytest.HTTP2Conn, st *http2.Stream) {
			a.calls++
			if a.onCall != nil {
				a.onCall(c, st)
				return
			}
			respond(c, st)
		})
		c.OnHead = a.onHead
		a.conns = append(a.conns, c)
		return c
	})
}

// do sends a request, and awaits its response.
func do(m *proxytest.Mesh) *proxytest.Call {
	c := m.Post(10)
	m.Do(c)
	m.Finish(c)
	return c
}

// open returns the connections that are not closed.
func (a *app) open() []*proxytest.HTTP2Conn {
	return slices.DeleteFunc(slices.Clone(a.conns), func(c *proxytest.HTTP2Conn) bool { return c.Ended })
}

// respond sends what proxytest.App would.
func respond(c *proxytest.HTTP2Conn, st *http2.Stream) {
	nonce := protocol.Find(c.Request.Headers, "x-nonce")
	c.H2.Respond(st, &protocol.Response{
		Status: 200, DeclaredLength: -1, Headers: []protocol.Header{{Name: []byte("x-nonce"), Value: slices.Clone(nonce)}},
		Body: append([]byte("nonce="), nonce...),
	}, nil)
}

// sendBody sends a body of so many bytes behind a head, as windows allow, and ends the response. *left of them are not sent yet.
func (a *app) sendBody(c *proxytest.HTTP2Conn, st *http2.Stream, size int) (left *int) {
	id, body, left, more := st.ID(), make([]byte, size), &size, &loop.Timer{}
	more.Fire = func() {
		if st.ID() != id || c.Ended {
			return
		}
		if *left -= c.H2.Send(st, body[:*left]); *left == 0 {
			c.H2.Finish(st, nil)
		} else {
			a.of.Loop.After(time.Millisecond, more)
		}
		c.Flush()
	}
	more.Fire()
	return left
}

// later responds after d.
func (a *app) later(d time.Duration) func(c *proxytest.HTTP2Conn, st *http2.Stream) {
	return func(c *proxytest.HTTP2Conn, st *http2.Stream) {
		id, nonce := st.ID(), slices.Clone(protocol.Find(c.Request.Headers, "x-nonce"))
		timer := &loop.Timer{}
		timer.Fire = func() {
			if st.ID() != id || c.Ended {
				return
			}
			c.H2.Respond(st, &protocol.Response{
				Status: 200, DeclaredLength: -1, Headers: []protocol.Header{{Name: []byte("x-nonce"), Value: nonce}}, Body: append([]byte("nonce="), nonce...),
			}, nil)
			c.Flush()
		}
		a.of.Loop.After(d, timer)
	}
}

// TestMultiplexed checks that requests share a connection up to the endpoint's limit, and that others
// follow when it is full.
func TestMultiplexed(t *testing.T) {
	for limit, want := range map[int]int{0: 1, 1000: 1, 100: 3, 10: 30, 2: 128, 1: 128} {
		m, apps := newMesh(t, 1, "")
		apps[0].streams = limit
		apps[0].stop()
		apps[0].listen()
		apps[0].onCall = apps[0].later(50 * time.Millisecond)
		if limit == 0 {
			want = 3 // the server allows 100 then
		}
		calls := m.Crowd(300, 1, 10)
		m.Finish(calls...)
		m.OK(calls...)
		for _, c := range calls {
			if string(c.Body) != "nonce="+c.Nonce {
				t.Fatalf("limit %d: the body is %q", limit, c.Body)
			}
		}
		if n := len(apps[0].conns); n != want {
			t.Errorf("limit %d: %d connections, want %d", limit, n, want)
		}
		m.Settled()
		m.W.Run(20 * time.Second)
		if n := len(apps[0].open()); n != 0 {
			t.Errorf("limit %d: %d idle connections are open", limit, n)
		}
	}
}

// TestGoAway checks that requests which an endpoint has not taken go elsewhere, and that those it
// has taken get their responses.
func TestGoAway(t *testing.T) {
	m, apps := newMesh(t, 1, "")
	a := apps[0]
	a.onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
		if len(a.conns) == 1 && a.calls == 4 {
			c.H2.Drain()
			c.H2.GoAway(http2.NoError) // without waiting for streams under way
		}
		a.later(10*time.Millisecond)(c, st)
	}
	calls := m.Crowd(20, 1, 10)
	m.Finish(calls...)
	m.OK(calls...)
	if len(a.conns) != 2 {
		t.Errorf("%d connections, want 2", len(a.conns))
	}
	m.RunUntil("the end of the first connection", func() bool { return a.conns[0].Ended })
	m.Settled()
}

// TestRefusedStream checks that a refused request is tried again for free, a few times.
func TestRefusedStream(t *testing.T) {
	m, apps := newMesh(t, 1, "retry: {on: [connect]}")
	a := apps[0]
	refuse := 2
	a.onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
		if refuse > 0 {
			refuse--
			c.H2.Reset(st, http2.RefusedStream)
			return
		}
		respond(c, st)
	}
	c := m.Post(10)
	m.Do(c)
	m.Finish(c)
	m.OK(c)
	refuse = 100
	c = m.Post(10)
	m.Do(c)
	m.Finish(c)
	if c.Status != 503 || c.Code != "upstream-refused" || a.calls != 6 {
		t.Errorf("status %d %s after %d calls", c.Status, c.Code, a.calls)
	}
	m.Settled()
}

// TestReset checks that a request which an endpoint has reset is retried only if it may be sent twice.
func TestReset(t *testing.T) {
	m, apps := newMesh(t, 1, "")
	a := apps[0]
	reset := true
	a.onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
		if reset {
			c.H2.Reset(st, http2.InternalError)
			return
		}
		respond(c, st)
	}
	c := m.Post(10)
	m.Do(c)
	m.Finish(c)
	if c.Status != 502 || c.Code != "upstream-reset" || a.calls != 1 || len(a.open()) != 1 {
		t.Errorf("status %d %s after %d calls, %d connections", c.Status, c.Code, a.calls, len(a.open()))
	}
	m.Settled()
}

// TestEndpointsDeadline checks that an endpoint which cancels a request whose time is up is not blamed
// for a reset.
func TestEndpointsDeadline(t *testing.T) {
	// The request and the reset take half a millisecond each.
	for early, want := range map[time.Duration]string{1500 * time.Microsecond: "deadline", 100 * time.Millisecond: "upstream-reset"} {
		m, apps := newMesh(t, 1, "timeout: 1s")
		apps[0].onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
			apps[0].of.Loop.After(time.Second-early, &loop.Timer{Fire: func() { c.H2.Reset(st, http2.Cancel); c.Flush() }})
		}
		c := m.Post(10)
		m.Do(c)
		m.Finish(c)
		if c.Code != want {
			t.Errorf("reset %v before the deadline: %d %s, want %s", early, c.Status, c.Code, want)
		}
		m.Settled()
	}
}

// TestStaleConnection checks that a request is sent again if the connection on which it went was idle
// and turns out to be closed, but only one that may be sent twice.
func TestStaleConnection(t *testing.T) {
	for _, idempotent := range []bool{true, false} {
		m, apps := newMesh(t, 1, "retry: {on: [connect]}")
		first := m.Get("/")
		m.Do(first)
		m.Finish(first)
		m.W.Run(100 * time.Millisecond)
		apps[0].onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
			apps[0].onCall = nil
			m.W.At(m.W.Now(), func() { m.W.Faults.Reset(c.Conn) })
		}
		c := m.Get("/")
		if !idempotent {
			c = m.Post(10)
		}
		m.Do(c)
		m.Finish(c)
		if idempotent {
			m.OK(c)
		} else if c.Code != "upstream-reset" {
			t.Errorf("status %d %s", c.Status, c.Code)
		}
		m.Settled()
	}
}

// TestLosersLinger checks that the attempt which lost against a hedge is reset, and counts as load of
// its endpoint until that has read the reset.
func TestLosersLinger(t *testing.T) {
	for _, frozen := range []bool{false, true} {
		m, apps := newMesh(t, 2, "idempotent: true, timeout: 3s, hedge: {mode: on, delay: 20ms, budget: 1}")
		slow := -1
		for i, a := range apps {
			a.onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
				if slow < 0 {
					slow = i
				}
				if slow != i {
					respond(c, st)
					return
				}
				if frozen {
					m.W.At(m.W.Now(), func() { m.W.Faults.Pause(a.of.Loop, 10*time.Second) })
				}
			}
		}
		c := m.Get("/")
		m.Do(c)
		m.Finish(c)
		m.OK(c)
		m.W.Run(100 * time.Millisecond)
		pending := m.Consumer.Report().Services[0].Endpoints[slow].Pending
		if frozen != (pending == 1) {
			t.Errorf("frozen %t: %d pending at the slow endpoint", frozen, pending)
		}
		if resets := apps[slow].conns[0].Resets; !frozen && !slices.Equal(resets, []http2.Code{http2.Cancel}) {
			t.Errorf("resets %v", resets)
		}
		m.W.Run(14 * time.Second) // a frozen application answers long after the deadline
		m.Settled()
		m.OK(do(m))
	}
}

// TestSilentEndpoint checks that a connection with a request closes when its endpoint responds to
// no PING, and stays open while it does.
func TestSilentEndpoint(t *testing.T) {
	for _, frozen := range []bool{false, true} {
		m, apps := newMesh(t, 1, "timeout: 100s")
		apps[0].onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
			if frozen {
				m.W.At(m.W.Now(), func() { m.W.Faults.Pause(apps[0].of.Loop, time.Hour) })
			}
			apps[0].later(90*time.Second)(c, st)
		}
		c := m.Post(10)
		m.Do(c)
		m.Finish(c)
		if !frozen {
			m.OK(c)
		} else if c.Code != "upstream-reset" || c.Took > 31*time.Second {
			t.Errorf("status %d %s after %v", c.Status, c.Code, c.Took)
		}
		m.Settled()
	}
}

// TestLostConnection: requests take another connection once a request has reached its deadline at an endpoint that was silent. An
// endpoint that responds to other requests keeps its connection.
func TestLostConnection(t *testing.T) {
	for _, silent := range []bool{false, true} {
		m, apps := newMesh(t, 1, "timeout: 3s")
		m.OK(do(m))
		first := apps[0].conns[0]
		apps[0].onCall = func(*proxytest.HTTP2Conn, *http2.Stream) { apps[0].onCall = nil }
		if silent {
			m.W.Faults.PauseReading(first.Conn, true)
		}
		late := m.Post(10)
		m.Do(late)
		m.W.Run(2500 * time.Millisecond)
		if !silent {
			m.OK(do(m))
		}
		m.Finish(late)
		if late.Code != "deadline" {
			t.Errorf("status %d %s", late.Status, late.Code)
		}
		apps[0].onCall = nil
		m.OK(do(m))
		if n := len(apps[0].conns); (n == 2) != silent {
			t.Errorf("silent %t: %d connections", silent, n)
		}
		m.W.Faults.PauseReading(first.Conn, false)
		m.W.Run(time.Second)
		if first.Ended != silent {
			t.Errorf("silent %t: the connection has closed: %t", silent, first.Ended)
		}
		m.Settled()
	}
}

// TestClosedWindow checks that a request for which the endpoint opens no window is withdrawn after timeouts.write,
// and that others on the connection go on.
func TestClosedWindow(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Limits: "timeouts: {write: 2s}", Service: "timeout: 60s"})
	a := startApps(m)[0]
	a.stop()
	withheld := true
	a.stop = m.W.Net.Listen(a.of.Addr, a.of.Loop, func() loop.Receiver {
		c := proxytest.NewHTTP2Conn(0, respond)
		c.Withhold = &withheld
		a.conns = append(a.conns, c)
		return c
	})
	big := m.Post(300 << 10)
	m.Do(big)
	m.W.Run(time.Second)
	if n := m.Consumer.Proc.Held(); n < 300<<10 || n > 600<<10 {
		t.Errorf("%d KiB held: the body must count once", n>>10)
	}
	small := m.Post(10)
	m.Do(small)
	m.Finish(big, small)
	m.OK(small)
	if big.Code != "upstream-reset" || big.Took < 2*time.Second || big.Took > 5*time.Second {
		t.Errorf("status %d %s after %v", big.Status, big.Code, big.Took)
	}
	if n := len(a.open()); n != 1 || len(a.conns) != 1 {
		t.Errorf("%d connections open of %d", n, len(a.conns))
	}
	withheld = false
	big = m.Post(300 << 10)
	m.Do(big)
	m.Finish(big)
	m.OK(big)
	m.Settled()
}

// TestRetired checks that an endpoint that has left the service serves what it has, and that its
// connections close then.
func TestRetired(t *testing.T) {
	m, apps := newMesh(t, 2, "lb: {policy: weighted_round_robin}")
	for _, a := range apps {
		a.onCall = a.later(500 * time.Millisecond)
	}
	calls := m.Crowd(10, 1, 10)
	m.W.Run(100 * time.Millisecond)
	m.Consumer.Update("compute", m.Endpoint(1))
	m.Finish(calls...)
	m.OK(calls...)
	m.W.Run(100 * time.Millisecond)
	if gone, kept := len(apps[0].open()), len(apps[1].open()); gone != 0 || kept != 1 {
		t.Errorf("%d connections to the endpoint that left, %d to the other", gone, kept)
	}
	m.Consumer.Update("compute", m.Endpoint(0))
	m.W.Run(100 * time.Millisecond)
	if n := len(apps[1].open()); n != 0 {
		t.Errorf("%d idle connections to an endpoint that left", n)
	}
	m.Settled()
}

// TestCallerLeaves checks that the requests of callers that disconnect are reset.
func TestCallerLeaves(t *testing.T) {
	m, apps := newMesh(t, 1, "")
	a := apps[0]
	a.onCall = func(*proxytest.HTTP2Conn, *http2.Stream) {}
	var clients []*proxytest.Client
	for range 10 {
		clients = append(clients, m.Do(m.Post(10)))
	}
	m.W.Run(50 * time.Millisecond)
	for _, c := range clients {
		c.Leave()
	}
	m.W.Run(50 * time.Millisecond)
	if n := len(a.conns[0].Resets); n != 10 {
		t.Errorf("%d resets for 10 callers that left", n)
	}
	m.Settled()
}

// TestGoesAwayAtOnce checks that an endpoint which sends GOAWAY to each new connection counts as one that can't be
// connected to, and is not dialled without pause.
func TestGoesAwayAtOnce(t *testing.T) {
	m, apps := newMesh(t, 1, "")
	a := apps[0]
	a.stop()
	a.stop = m.W.Net.Listen(a.of.Addr, a.of.Loop, func() loop.Receiver {
		c := proxytest.NewHTTP2Conn(0, respond)
		c.H2.Drain()
		c.H2.GoAway(http2.NoError)
		a.conns = append(a.conns, c)
		return c
	})
	calls := m.Burst(10, 10)
	m.Finish(calls...)
	if n := proxytest.CountCodes(calls); n["upstream-connect"]+n["upstream-goaway"] != len(calls) || len(a.conns) > 40 {
		t.Errorf("responses %v, %d connections", n, len(a.conns))
	}
	m.Settled()
}

// TestSilentIdleConnection checks that a connection which the sidecar closes itself, since its endpoint is silent, is
// not stale: the request goes to another endpoint.
func TestSilentIdleConnection(t *testing.T) {
	m, apps := newMesh(t, 2, "timeout: 60s")
	warm := m.Crowd(20, 1, 10)
	m.Finish(warm...)
	m.W.Run(100 * time.Millisecond)
	frozen := -1
	for i, a := range apps {
		a.calls = 0
		a.onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
			if frozen < 0 {
				frozen = i
				m.W.At(m.W.Now(), func() { m.W.Faults.Pause(a.of.Loop, time.Hour) })
				return
			}
			respond(c, st)
		}
	}
	before := m.Consumer.Stats("compute").RetriesPaid
	c := m.Get("/")
	m.Do(c)
	m.Finish(c)
	m.OK(c)
	if frozen < 0 || apps[frozen].calls != 1 || apps[1-frozen].calls != 1 {
		t.Errorf("%d and %d calls", apps[0].calls, apps[1].calls)
	}
	if n, paid := m.Consumer.Report().Stats.Replays, m.Consumer.Stats("compute").RetriesPaid-before; n != 0 || paid != 1 {
		t.Errorf("%d replays, %d paid retries; want 0 and 1", n, paid)
	}
}

// TestGoAwayAfterResponseBegan checks that a request to which an endpoint responds already has been processed, although
// the endpoint says that it was not: a POST is not sent again.
func TestGoAwayAfterResponseBegan(t *testing.T) {
	goAway := "\x00\x00\x08\x07\x00\x00\x00\x00\x00" + "\x00\x00\x00\x01" + "\x00\x00\x00\x00" // only stream 1 was processed
	for name, begin := range map[string]func(c *proxytest.HTTP2Conn, st *http2.Stream){
		"interim": func(c *proxytest.HTTP2Conn, st *http2.Stream) {
			c.H2.Interim(st, &protocol.Response{Status: 103})
		},
		"head": func(c *proxytest.HTTP2Conn, st *http2.Stream) {
			c.H2.ResponseHead(st, &protocol.Response{Status: 200, DeclaredLength: 10})
		},
		"body": func(c *proxytest.HTTP2Conn, st *http2.Stream) {
			c.H2.ResponseHead(st, &protocol.Response{Status: 200, DeclaredLength: 10})
			c.H2.Send(st, []byte("x"))
		},
		"nothing": func(*proxytest.HTTP2Conn, *http2.Stream) {},
	} {
		m, apps := newMesh(t, 2, "lb: {policy: weighted_round_robin}")
		m.WarmUp(4)
		calls := 0
		for _, a := range apps {
			a.onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
				if calls++; calls > 1 {
					respond(c, st)
					return
				}
				begin(c, st)
				c.Flush()
				c.Conn.Write([]byte(goAway))
			}
		}
		c := m.Post(10)
		m.Do(c)
		m.Finish(c)
		if name == "nothing" {
			m.OK(c)
		} else if c.Status != 502 || c.Code != "upstream-reset" || calls != 1 {
			t.Errorf("%s: status %d %s, %d executions", name, c.Status, c.Code, calls)
		}
		m.Settled()
	}
}
