package http2_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/sim"
)

// TestHandshakeFails: an endpoint that does not speak HTTP/2 counts as unreachable, and the log says why.
func TestHandshakeFails(t *testing.T) {
	closes := func(p *proxytest.Peer, m *proxytest.Mesh) { m.Apps[0].Loop.Do(p.Conn.Close) }
	for _, c := range []struct {
		name, says string
		then       func(p *proxytest.Peer, m *proxytest.Mesh) // nil means nothing
		log        string
	}{
		{"HTTP/1.1", "HTTP/1.1 400 Bad Request\r\n\r\n", nil, "the peer speaks HTTP/1.1, not HTTP/2"},
		{"another protocol", "220 mail.test ESMTP\r\n", nil, "the peer does not speak HTTP/2: http2: "},
		{"closes", "", closes, "the peer closed before it spoke HTTP/2; it may want TLS, or speak HTTP/1.1\""},
		{"resets", "", func(p *proxytest.Peer, m *proxytest.Mesh) { m.W.Faults.Reset(p.Conn) }, "it may want TLS, or speak HTTP/1.1\\n"},
		{"silence", "", nil, "the peer did not begin to speak HTTP/2 within connect_timeout"},
		{"no streams", noStreams, nil, "the peer takes no requests: its SETTINGS allow no stream"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, apps := newMesh(t, 1, "retry: {on: []}")
			a := apps[0]
			a.stop()
			var peers []*proxytest.Peer
			stop := m.W.Net.Listen(a.of.Addr, a.of.Loop, func() loop.Receiver {
				peers = append(peers, &proxytest.Peer{Says: []byte(c.says)})
				return peers[len(peers)-1]
			})
			call := m.Post(10)
			m.Do(call)
			if c.then != nil {
				m.RunUntil("a connection", func() bool { return len(peers) == 1 && len(peers[0].Heard) > 0 })
				c.then(peers[0], m)
			}
			m.Finish(call)
			if call.Code != "upstream-connect" || call.Took > 300*time.Millisecond {
				t.Errorf("status %d %s after %v", call.Status, call.Code, call.Took)
			}
			if text := m.Consumer.LogText.String(); !strings.Contains(text, c.log) {
				t.Errorf("the log has %q", text)
			}
			m.W.Run(time.Second)
			if n := strings.Count(m.Consumer.LogText.String(), "the peer "); n != 1 {
				t.Errorf("the log has %d reasons: %q", n, m.Consumer.LogText.String())
			}
			if !peers[0].Ended {
				t.Error("the connection is open")
			}
			stop()
			a.listen()
			if m.OK(do(m)); len(a.conns) != 1 {
				t.Errorf("%d connections for a request", len(a.conns))
			}
			m.Settled()
		})
	}
}

// TestMalformedInput: a malformed response fails, and its connection goes on. Malformed input that belongs to no response ends the
// connection behind a GOAWAY.
func TestMalformedInput(t *testing.T) {
	for _, c := range []struct {
		says   string
		code   string
		frame  byte // that the endpoint gets
		closed bool
	}{
		{"\x00\x00\x00\x00\x00\x00\x00\x00\x01", "upstream-malformed", 3, false}, // DATA before HEADERS
		{"\x00\x00\x00\x00\x00\x00\x00\x00\x00", "upstream-reset", 7, true},      // DATA of no stream
		// The request is sent again as it was refused, and the endpoint may have it before it knows that the connection closes.
		{frame(frameReset, 0, 1, "\x00\x00\x00\x07") + frame(0, 0, 0, ""), "upstream-reset", 1, true},
	} {
		m, apps := newMesh(t, 1, "")
		a := apps[0]
		a.stop()
		p := &proxytest.Peer{Says: []byte(settings)}
		stop := m.W.Net.Listen(a.of.Addr, a.of.Loop, func() loop.Receiver { return p })
		call := m.Post(10)
		m.Do(call)
		m.W.Run(10 * time.Millisecond)
		before := len(p.Heard)
		a.of.Loop.Do(func() { p.Conn.Write([]byte(c.says)) })
		m.Finish(call)
		if call.Status != 502 || call.Code != c.code {
			t.Errorf("status %d %s, want 502 %s", call.Status, call.Code, c.code)
		}
		m.W.Run(10 * time.Millisecond)
		if said := p.Heard[before:]; p.Ended != c.closed || len(said) < 9 || said[3] != c.frame {
			t.Errorf("the endpoint got %q, closed %t; want %d", said, p.Ended, c.frame)
		}
		if stop(); c.closed {
			a.listen()
			m.OK(do(m))
		}
		m.Settled()
	}
}

// TestUntrusted: an endpoint that is not trusted any more responds to what it has, within timeouts.drain. Later requests take a new
// connection.
func TestUntrusted(t *testing.T) {
	newMesh := func(t *testing.T) (*proxytest.Mesh, *proxytest.Dialler, *app) {
		m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2",
			Limits: "timeouts: {drain: 2s}", Service: "timeout: 10s, connect_timeout: 5s, retry: {on: []}"})
		return m, d, startApps(m)[0]
	}
	t.Run("idle", func(t *testing.T) {
		m, d, a := newMesh(t)
		m.OK(do(m))
		d.Distrust(m.Consumer.Loop, 0)
		m.RunUntil("the end of the connection", func() bool { return a.conns[0].Ended })
		m.OK(do(m))
		m.Settled()
	})
	for name, c := range map[string]struct {
		takes time.Duration
		code  string
		ends  time.Duration // of the connection
	}{"busy": {takes: time.Second, ends: time.Second}, "busy for too long": {5 * time.Second, "upstream-reset", 2 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			m, d, a := newMesh(t)
			a.onCall = a.later(c.takes)
			call := m.Post(10)
			m.Do(call)
			m.RunUntil("the request", func() bool { return a.calls == 1 })
			d.Distrust(m.Consumer.Loop, 0)
			since := m.W.Now()
			a.onCall = nil
			m.OK(do(m))
			if len(a.conns) != 2 {
				t.Errorf("%d connections", len(a.conns))
			}
			m.Finish(call)
			m.RunUntil("the end of the connection", func() bool { return a.conns[0].Ended })
			if call.Code != c.code || m.W.Now()-since > c.ends+100*time.Millisecond || a.conns[1].Ended {
				t.Errorf("status %d %s, closed after %v", call.Status, call.Code, m.W.Now()-since)
			}
			m.Settled()
		})
	}
	t.Run("not open yet", func(t *testing.T) {
		m, d, a := newMesh(t)
		a.stop()
		p := &proxytest.Peer{}
		m.W.Net.Listen(a.of.Addr, a.of.Loop, func() loop.Receiver { return p })
		call := m.Post(10)
		m.Do(call)
		m.RunUntil("the preface", func() bool { return len(p.Heard) > 0 })
		d.Distrust(m.Consumer.Loop, 0)
		m.Finish(call)
		if call.Code != "upstream-connect" || call.Took > time.Second {
			t.Errorf("status %d %s after %v", call.Status, call.Code, call.Took)
		}
		m.Settled()
	})
}

// TestShedLargest: a connection drops the largest of its incomplete responses, unless all are small. Streams and requests that
// were withdrawn are not among them.
func TestShedLargest(t *testing.T) {
	m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Service: "timeout: 60s, retry: {on: []}"})
	a := startApps(m)[0]
	sizes := map[string]int{"/small": shard.LeastShed / 2, "/large": shard.LeastShed + 10<<10, "/largest": 2 * shard.LeastShed}
	a.onCall = func(server *proxytest.HTTP2Conn, st *http2.Stream) {
		size := sizes[string(server.Request.Path)]
		server.H2.ResponseHead(st, &protocol.Response{Status: 200, DeclaredLength: int64(size + 1)})
		left := make([]byte, size)
		more := &loop.Timer{}
		more.Fire = func() {
			left = left[server.H2.Send(st, left):]
			if server.Flush(); len(left) > 0 {
				a.of.Loop.After(time.Millisecond, more)
			}
		}
		more.Fire()
	}
	calls := map[string]*proxytest.Call{}
	for path := range sizes {
		calls[path] = m.Get(path)
		m.Do(calls[path])
	}
	m.W.Run(100 * time.Millisecond)
	holder := d.Receivers[0].(shard.Holder)
	for _, path := range []string{"/largest", "/large", ""} {
		dropped := false
		m.Consumer.Loop.Do(func() { dropped = holder.ShedLargest() })
		m.W.Run(10 * time.Millisecond)
		if dropped != (path != "") || dropped && (calls[path].Status != 503 || calls[path].Code != "shed") {
			t.Errorf("%q: dropped %t, %+v", path, dropped, calls[path])
		}
	}
	if a.conns[0].Ended || !slices.Equal(a.conns[0].Resets, []http2.Code{http2.Cancel, http2.Cancel}) || calls["/small"].Done {
		t.Errorf("the application got resets %v, closed %t", a.conns[0].Resets, a.conns[0].Ended)
	}
	m.Consumer.Loop.Do(holder.CloseNow)
	m.Finish(calls["/small"])
	if calls["/small"].Code != "upstream-reset" {
		t.Errorf("after the close: %+v", calls["/small"])
	}
	m.RunUntil("the end of the connection", func() bool { return a.conns[0].Ended })
	m.Settled()
}

// TestDialsRefused: requests for which the driver refuses a dial wait for room on a connection that is open, or for the driver, which
// is asked seldom. Without an open connection they fail, and the endpoint is not blamed.
func TestDialsRefused(t *testing.T) {
	const ms = time.Millisecond
	newMesh := func(t *testing.T, room int) (*proxytest.Mesh, *proxytest.Dialler, *app) {
		m, d := proxytest.DiallingMesh(t, room, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Service: "timeout: 30s, outlier: {consecutive: 1}"})
		a := startApps(m)[0]
		a.streams = 1
		a.stop()
		a.listen()
		return m, d, a
	}
	t.Run("no connection", func(t *testing.T) {
		m, d, _ := newMesh(t, 1)
		d.Dialling = 1 // for another endpoint
		calls := m.Burst(10, 10)
		m.Finish(calls...)
		if n := proxytest.CountCodes(calls); n["too-many-dials"] != len(calls) {
			t.Errorf("responses %v", n)
		}
		d.Dialling = 0
		m.OK(do(m))
		m.Settled()
	})
	t.Run("a busy connection", func(t *testing.T) {
		m, d, a := newMesh(t, 1)
		a.onCall = a.later(50 * time.Millisecond)
		first := m.Post(10)
		m.Do(first)
		m.RunUntil("a connection", func() bool { return a.calls == 1 })
		d.Dialling = 1
		var served []string
		a.onCall = func(server *proxytest.HTTP2Conn, st *http2.Stream) {
			served = append(served, string(protocol.Find(server.Request.Headers, "x-nonce")))
			respond(server, st)
		}
		calls, sent := []*proxytest.Call{first}, []string(nil)
		for range 3 {
			c := m.Post(10)
			m.Do(c)
			calls, sent = append(calls, c), append(sent, c.Nonce)
			m.W.Run(time.Millisecond)
		}
		m.Finish(calls...)
		m.OK(calls...)
		if !slices.Equal(served, sent) {
			t.Errorf("requests %s were served in the order %s", sent, served)
		}
		if len(a.conns) != 1 || d.Refused == 0 || d.Refused > 10 {
			t.Errorf("%d connections, %d dials refused", len(a.conns), d.Refused)
		}
		m.Settled()
	})
	t.Run("room again", func(t *testing.T) {
		m, d, a := newMesh(t, 1)
		a.onCall = a.later(20 * time.Second)
		busy := m.Post(10)
		m.Do(busy)
		m.RunUntil("a connection", func() bool { return a.calls == 1 })
		a.onCall = nil
		d.Dialling = 1
		calls, began := m.Burst(30, 10), m.W.Now()
		m.W.Run(10 * ms)
		first := d.Refused
		for _, c := range []struct {
			after time.Duration
			want  int
		}{{15 * ms, 0}, {30 * ms, 1}, {55 * ms, 1}, {70 * ms, 2}, {135 * ms, 2}, {150 * ms, 3}} { // after 20, 60 and 140 ms
			m.W.Run(began + c.after - m.W.Now())
			if n := d.Refused - first; n != c.want {
				t.Errorf("%d more dials are refused after %v, want %d", n, c.after, c.want)
			}
		}
		m.W.Run(began + time.Second - m.W.Now())
		before := d.Refused
		m.W.Run(4 * time.Second)
		if n := d.Refused - before; n < 45 || n > 55 {
			t.Errorf("%d dials refused within 4 s, want one in 80 ms", n)
		}
		d.Dialling = 0
		since := m.W.Now()
		m.Finish(calls...)
		m.OK(calls...)
		if took := m.W.Now() - since; took > 150*time.Millisecond {
			t.Errorf("response %v after there was room", took)
		}
		for _, e := range m.Consumer.Report().Services[0].Endpoints {
			if e.Ejected {
				t.Error("the endpoint is ejected")
			}
		}
		m.Finish(busy)
		m.Settled()
	})
	t.Run("room again, for many at once", func(t *testing.T) {
		m, d, a := newMesh(t, 1)
		a.onCall = a.later(5 * time.Second)
		calls := m.Burst(1, 10)
		m.RunUntil("a connection", func() bool { return a.calls == 1 })
		d.Dialling = 1
		calls = append(calls, m.Burst(30, 10)...)
		m.W.Run(time.Second)
		d.MaxDials = 0
		if m.W.Run(150 * time.Millisecond); a.calls != len(calls) {
			t.Errorf("%d of %d requests have a connection", a.calls, len(calls))
		}
		m.Finish(calls...)
		m.OK(calls...)
		m.Settled()
	})
	t.Run("room before the pause ends", func(t *testing.T) {
		m, d, a := newMesh(t, 2)
		// The dials under way end before the pause of 20 ms does. The refused dial is repeated then, and is under way when the pause ends.
		m.W.Net.SetPaths(func(from, to string) sim.Path {
			p := sim.DefaultPaths(from, to)
			p.Latency = 6 * ms
			return p
		})
		a.onCall = a.later(5 * time.Second)
		calls := m.Burst(1, 10)
		m.RunUntil("a connection", func() bool { return a.calls == 1 })
		calls = append(calls, m.Burst(3, 10)...)
		m.W.Run(time.Second)
		if d.Refused != 1 || d.Dials != len(calls) {
			t.Errorf("%d dials, and %d refused, for %d requests", d.Dials, d.Refused, len(calls))
		}
		m.Finish(calls...)
		m.OK(calls...)
		m.Settled()
	})
	t.Run("room again, and the endpoint refuses", func(t *testing.T) {
		m, d, a := newMesh(t, 1)
		a.onCall = a.later(20 * time.Second)
		busy := m.Post(10)
		m.Do(busy)
		m.RunUntil("a connection", func() bool { return a.calls == 1 })
		d.Dialling = 1
		calls := m.Burst(3, 10)
		m.W.Run(time.Second)
		a.stop()
		d.Dialling = 0
		m.W.Run(200 * time.Millisecond)
		if n := proxytest.CountCodes(calls); n["upstream-connect"] != len(calls) {
			t.Errorf("responses %v", n)
		}
		m.OK(busy)
		m.Settled()
	})
	t.Run("the callers leave", func(t *testing.T) {
		m, d, a := newMesh(t, 1)
		a.onCall = a.later(20 * time.Second)
		busy := m.Post(10)
		m.Do(busy)
		m.RunUntil("a connection", func() bool { return a.calls == 1 })
		d.Dialling = 1
		var clients []*proxytest.Client
		for range 10 {
			clients = append(clients, m.Do(m.Post(10)))
		}
		m.W.Run(50 * time.Millisecond)
		for _, c := range clients {
			c.Leave()
		}
		m.W.Run(100 * time.Millisecond)
		before := d.Refused
		m.W.Run(time.Second)
		if d.Refused != before {
			t.Errorf("%d dials without a caller", d.Refused-before)
		}
		d.Dialling, a.onCall = 0, nil
		if m.OK(do(m)); len(a.conns) != 2 || busy.Done {
			t.Errorf("with room, %d connections for a request beside one that takes long", len(a.conns))
		}
		m.Finish(busy)
		m.Settled()
	})
}

// TestCancelUnsent: a request that was not sent yet, since the endpoint does not read, does not linger when it is withdrawn.
func TestCancelUnsent(t *testing.T) {
	m, apps := newMesh(t, 1, "timeout: 60s, idle_timeout: 5s")
	a := apps[0]
	m.OK(do(m))
	m.W.Faults.PauseReading(a.conns[0].Conn, true)
	long := "X: " + strings.Repeat("x", 20<<10)
	var clients []*proxytest.Client
	for range 50 { // more than the connection takes
		clients = append(clients, m.Do(m.Get("/", long)))
		m.W.Run(time.Millisecond)
	}
	pending := func() int { return m.Consumer.Report().Services[0].Endpoints[0].Pending }
	for _, i := range []int{49, 0} { // the first request was sent
		clients[i].Leave()
		m.W.Run(10 * time.Millisecond)
		if n := pending(); n != 49 {
			t.Errorf("%d requests are pending after the caller of %d has left, want 49", n, i)
		}
	}
	m.W.Faults.PauseReading(a.conns[0].Conn, false)
	m.Settled()
	if m.W.Run(10 * time.Second); len(a.open()) != 0 {
		t.Error("the connection is open after its idle timeout")
	}
}

// TestGoAwayWhileIdle: a connection without a request closes when the endpoint wants that, and the log tells the reason, if there is one.
// The next request takes another connection.
func TestGoAwayWhileIdle(t *testing.T) {
	for _, code := range []http2.Code{http2.NoError, http2.EnhanceYourCalm} {
		m, apps := newMesh(t, 1, "retry: {on: []}")
		a := apps[0]
		m.OK(do(m))
		a.of.Loop.Do(func() {
			a.conns[0].H2.GoAway(code)
			a.conns[0].Flush()
		})
		m.W.Run(10 * time.Millisecond)
		if !a.conns[0].Ended {
			t.Errorf("code %d: the connection is open", code)
		}
		if told := strings.Contains(m.Consumer.LogText.String(), "the endpoint closes the connection"); told != (code != http2.NoError) {
			t.Errorf("code %d: the log has %q", code, m.Consumer.LogText.String())
		}
		m.OK(do(m))
		if n := len(a.conns); n != 2 {
			t.Errorf("code %d: %d connections", code, n)
		}
		m.Settled()
	}
}

// TestLimitRises: a request that waits for room is sent once the endpoint allows more streams.
func TestLimitRises(t *testing.T) {
	allows := func(n byte) string { return frame(frameSettings, 0, 0, "\x00\x03\x00\x00\x00"+string(rune(n))) }
	m, d := proxytest.DiallingMesh(t, 1, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Service: "timeout: 3s"})
	p := &proxytest.Peer{Says: []byte(allows(1))}
	m.Apps[0].Stop()
	m.W.Net.Listen(m.Apps[0].Addr, m.Apps[0].Loop, func() loop.Receiver { return p })
	calls := m.Burst(1, 10)
	m.W.Run(10 * time.Millisecond)
	d.Dialling = 1 // so that no connection follows
	calls = append(calls, m.Burst(3, 10)...)
	for n := 1; n <= 3; n++ {
		m.Apps[0].Loop.Do(func() { p.Conn.Write([]byte(allows(byte(n)))) })
		m.W.Run(10 * time.Millisecond)
		if got := len(headsOf(p.Heard)); got != n {
			t.Errorf("the endpoint allows %d streams, and has got %d requests", n, got)
		}
	}
	m.Finish(calls...)
	m.Settled()
}

// TestLostBeforeSent: of the requests on a connection that is lost, those that were not sent, since the endpoint did not read, go to
// another connection. They are neither retries nor replays. Those that were sent fail, unless they may be sent twice.
func TestLostBeforeSent(t *testing.T) {
	for _, c := range []struct {
		idempotent, malformed bool // malformed: a frame ends the connection, and not the endpoint
	}{
		{false, false}, {true, false}, {false, true},
	} {
		m, apps := newMesh(t, 1, "timeout: 60s, retry: {on: [connect]}")
		a := apps[0]
		for range 100 {
			m.OK(do(m)) // earns tokens for replays
		}
		m.W.Run(100 * time.Millisecond)
		calls := flood(m, a.conns[0].Conn, 50, c.idempotent)
		before := m.Consumer.Report().Stats.Replays
		if c.malformed {
			a.of.Loop.Do(func() { a.conns[0].Conn.Write([]byte(frame(framePing, 0, 0, "short"))) })
		} else {
			m.W.Faults.Reset(a.conns[0].Conn)
		}
		m.Finish(calls...)
		codes, replays := proxytest.CountCodes(calls), int(m.Consumer.Report().Stats.Replays-before)
		sent := codes["upstream-reset"] + replays
		if codes[""]+codes["upstream-reset"] != len(calls) || sent < 10 || sent > 40 || (replays > 0) != c.idempotent {
			t.Errorf("%+v: responses %v, %d replays", c, codes, replays)
		}
		m.W.Run(10 * time.Millisecond)
		if c.idempotent {
			m.W.Run(time.Second) // until the new connection has sent what was sent once more
		}
		if n := m.Consumer.Proc.Buffered(); n > 64<<10 { // which are not counted at once
			t.Errorf("%d bytes are counted without a connection", n)
		}
		m.Settled()
	}
}

// flood sends so many requests to an endpoint that reads no more of conn: more than the connection takes.
func flood(m *proxytest.Mesh, conn loop.Conn, n int, idempotent bool) (calls []*proxytest.Call) {
	m.W.Faults.PauseReading(conn, true)
	long := "X: " + strings.Repeat("x", 20<<10)
	for range n {
		c := m.Post(0, long)
		if idempotent {
			c = m.Get("/", long)
		}
		m.Do(c)
		m.W.Run(time.Millisecond)
		calls = append(calls, c)
	}
	return calls
}

// fullLoop is a loop whose connections say that so many bytes wait to be written.
type fullLoop struct {
	loop.Loop
	waiting int
}

func (l *fullLoop) Dial(addr string, timeout time.Duration, r loop.Receiver) {
	l.Loop.Dial(addr, timeout, fullReceiver{r, l})
}

type fullReceiver struct {
	loop.Receiver
	l *fullLoop
}

func (r fullReceiver) OnOpen(c loop.Conn) { r.Receiver.OnOpen(fullConn{c, r.l}) }

type fullConn struct {
	loop.Conn
	l *fullLoop
}

func (c fullConn) Buffered() int              { return c.l.waiting }
func (c fullConn) AwaitRoom(int, *loop.Flush) {} // there will be none

// TestFullOutbound: requests, and the GOAWAY of a connection that closes, are written while at most mux.MaxOutbound bytes wait.
func TestFullOutbound(t *testing.T) {
	for more, written := range []bool{true, false} {
		l := &fullLoop{}
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Service: "timeout: 1s, retry: {on: []}",
			Dialler: func(of loop.Loop) loop.Loop {
				l.Loop = of
				return l
			}})
		a := startApps(m)[0]
		a.stop()
		var peers []*proxytest.Peer
		m.W.Net.Listen(a.of.Addr, a.of.Loop, func() loop.Receiver {
			peers = append(peers, &proxytest.Peer{Says: []byte(settings)})
			return peers[len(peers)-1]
		})
		first, second := m.Post(10), m.Post(10)
		m.Do(first)
		m.W.Run(10 * time.Millisecond)
		l.waiting = mux.MaxOutbound + more
		m.Do(second)
		m.W.Run(10 * time.Millisecond)
		p := peers[0]
		if n := len(headsOf(p.Heard)); (n == 2) != written {
			t.Errorf("%d bytes more: the endpoint got %d requests", more, n)
		}
		a.of.Loop.Do(func() { p.Conn.Write([]byte(frame(0, 0, 0, ""))) }) // malformed
		m.W.Run(10 * time.Millisecond)
		last := byte(0)
		proxytest.EachFrame(p.Heard[len(http2.Preface):], func(f []byte) { last = f[3] })
		if !p.Ended || (last == frameGoAway) != written {
			t.Errorf("%d bytes more: the connection has closed: %t, behind frame %d", more, p.Ended, last)
		}
		l.waiting = 0
		m.Finish(first, second)
		m.Settled()
	}
}

// TestLateAfterFreeze: an endpoint that reads again gets none of the requests that were not sent before their deadline.
func TestLateAfterFreeze(t *testing.T) {
	m, apps := newMesh(t, 1, "timeout: 3s, retry: {on: [connect]}")
	a := apps[0]
	m.OK(do(m))
	m.W.Run(100 * time.Millisecond)
	before := a.calls
	m.Finish(flood(m, a.conns[0].Conn, 200, false)...)
	m.W.Run(time.Second)
	m.W.Faults.PauseReading(a.conns[0].Conn, false)
	m.W.Run(time.Second)
	if n := a.calls - before; n < 50 || n > 150 {
		t.Errorf("the endpoint got %d requests", n)
	}
}

// TestNotStale: a request is not sent once more if its connection was not idle before, or if the endpoint has said something since,
// or if the sidecar has closed it, since the endpoint takes nothing any more.
func TestNotStale(t *testing.T) {
	t.Run("new", func(t *testing.T) {
		m, apps := newMesh(t, 1, "idempotent: true, retry: {on: [connect]}")
		apps[0].onCall = func(c *proxytest.HTTP2Conn, _ *http2.Stream) {
			m.W.At(m.W.Now(), func() { m.W.Faults.Reset(c.Conn) })
		}
		call := m.Get("/")
		m.Do(call)
		if m.Finish(call); call.Code != "upstream-reset" || apps[0].calls != 1 || m.Consumer.Report().Stats.Replays != 0 {
			t.Errorf("status %d %s after %d calls", call.Status, call.Code, apps[0].calls)
		}
		m.Settled()
	})
	t.Run("heard", func(t *testing.T) {
		m, apps := newMesh(t, 1, "idempotent: true, retry: {on: [connect]}")
		m.WarmUp(100) // earns tokens for replays
		m.W.Run(100 * time.Millisecond)
		before := apps[0].calls
		apps[0].onCall = func(c *proxytest.HTTP2Conn, _ *http2.Stream) {
			c.Conn.Write([]byte(frame(framePing, 0, 0, "12345678")))
			m.W.At(m.W.Now()+10*time.Millisecond, func() { m.W.Faults.Reset(c.Conn) })
		}
		call := m.Get("/")
		m.Do(call)
		if m.Finish(call); call.Code != "upstream-reset" || apps[0].calls != before+1 || m.Consumer.Report().Stats.Replays != 0 {
			t.Errorf("status %d %s after %d calls", call.Status, call.Code, apps[0].calls-before)
		}
		m.Settled()
	})
	t.Run("closed by the sidecar", func(t *testing.T) {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Limits: "timeouts: {write: 1s}",
			Service: "timeout: 20s, idempotent: true, retry: {on: [connect]}"})
		a := startApps(m)[0]
		m.WarmUp(100) // earns tokens for replays
		m.W.Run(100 * time.Millisecond)
		m.W.Faults.PauseReading(a.conns[0].Conn, true)
		var calls []*proxytest.Call
		for range 50 { // more than the connection takes
			calls = append(calls, m.Get("/", "X: "+strings.Repeat("x", 20<<10)))
			m.Do(calls[len(calls)-1])
			m.W.Run(time.Millisecond)
		}
		m.Finish(calls...)
		n := proxytest.CountCodes(calls)
		if replays := m.Consumer.Report().Stats.Replays; n["upstream-reset"] < 10 || n["upstream-reset"]+n[""] != len(calls) || replays != 0 {
			t.Errorf("responses %v, %d replays", n, replays)
		}
		m.Settled()
	})
}

// TestRoomOfWithdrawn: a request that waits for room gets that of one that is withdrawn since the endpoint opens no window.
func TestRoomOfWithdrawn(t *testing.T) {
	m, d := proxytest.DiallingMesh(t, 1, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Limits: "timeouts: {write: 2s}",
		Service: "timeout: 20s, retry: {on: []}"})
	a := startApps(m)[0]
	a.stop()
	withheld := true
	m.W.Net.Listen(a.of.Addr, a.of.Loop, func() loop.Receiver {
		c := proxytest.NewHTTP2Conn(1, respond)
		c.Withhold = &withheld
		return c
	})
	big := m.Post(300 << 10)
	m.Do(big)
	m.W.Run(100 * time.Millisecond)
	d.Dialling = 1 // so that no connection follows
	small := m.Post(10)
	m.Do(small)
	m.Finish(big, small)
	if m.OK(small); big.Code != "upstream-reset" || small.Took > 4*time.Second {
		t.Errorf("status %d %s after %v; the other request took %v", big.Status, big.Code, big.Took, small.Took)
	}
	m.Settled()
}
