package http_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestIdleWithInput: a connection whose time is up while the loop has not read its input stays open for that. If the input is no request, the
// connection closes a second later. Otherwise the response is the last one.
func TestIdleWithInput(t *testing.T) {
	for says, closes := range map[string]string{"\r\n": "idle", get("/"): "last response", "": "idle"} {
		s := newTurns(t, "timeouts: {idle: 5s}")
		began := s.Loop.Now()
		s.Input = true
		if s.Loop.RunTo(began + 5500*time.Millisecond); s.Conn.Closed {
			t.Errorf("%q: closed with input", says)
		}
		s.Input = false
		if says != "" {
			s.Say(says)
		}
		if closes == "idle" {
			if s.Loop.RunTo(began + 5900*time.Millisecond); s.Conn.Closed {
				t.Errorf("%q: closed before a second has passed", says)
			}
			if s.Loop.RunTo(began + 6100*time.Millisecond); !s.Conn.Drained {
				t.Errorf("%q: the connection stays open", says)
			}
			continue
		}
		if s.Answer(response(2, "")); !s.Conn.Drained || !strings.Contains(string(s.Conn.Out), "Connection: close\r\n") {
			t.Errorf("%q: closed %t, received %q", says, s.Conn.Drained, s.Conn.Out)
		}
	}
}

// TestShedMakesRoom: the connection that holds the most closes, and gives its memory and its share to the others at once. No other
// connection closes.
func TestShedMakesRoom(t *testing.T) {
	const mib = 1 << 20
	s := newTurns(t, "limits: {message: 4MiB, buffered: 4MiB}") // the hard mark is at 20 MiB: two connections have shares of 8 MiB, three of 5.3
	unread := func(n int) (*proxytest.NullConn, loop.Receiver) {
		s.Open()
		s.Say(get("/"))
		s.Conn.Held = n
		s.Answer(response(2, ""))
		return s.Conn, s.Receiver
	}
	s.Lose(nil)
	large, largest := unread(7 * mib)
	small, smaller := unread(mib)
	s.Proc.Charge(10 * mib)
	unread(6 * mib) // with which memory is too full, and which is more than the share of three
	if !large.Closed || small.Closed || s.Conn.Closed || s.stats().Shed != 1 {
		t.Errorf("the largest is closed %t, the others %t and %t, %d in all", large.Closed, small.Closed, s.Conn.Closed, s.stats().Shed)
	}
	before := s.Proc.Held()
	if s.Say("POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: 9\r\n\r\nabc"); s.Proc.Held() == before {
		t.Error("a request of the third connection is refused, which holds no more than the share of two")
	}
	s.Proc.Charge(-10 * mib)
	largest.OnClose(nil)
	smaller.OnClose(nil)
}

// TestFinishedStays: a connection that was finished behind its last response is not closed in another way when its client is no longer
// accepted.
func TestFinishedStays(t *testing.T) {
	s := newTurns(t, "")
	s.Say("GET / HTTP/1.1\r\nHost: compute\r\nConnection: close\r\n\r\n")
	s.Answer(response(2, ""))
	s.Receiver.(loop.Verified).OnUntrusted()
	if !s.Conn.Finished || s.Conn.Drained {
		t.Errorf("finished %t, drained %t", s.Conn.Finished, s.Conn.Drained)
	}
}

// TestUnreadOfTunnel: the response to a CONNECT counts while its client has not read it. It does not count any more once the connection has
// closed, whoever had the connection then.
func TestUnreadOfTunnel(t *testing.T) {
	s := newTurns(t, "routes: [{match: {host: compute}, service: compute}]")
	s.Unread = true
	s.Say(connectCompute)
	want := int64(len(downstream.Connected))
	before := s.Proc.Held()
	s.lose(nil)
	s.Open()
	s.Unread = false
	s.Say(connectCompute)
	if got := before - s.Proc.Held(); got != want {
		t.Errorf("%d bytes count as unread, want %d", got, want)
	}
	s.lose(nil)
	s.Open()
	s.Unread = true
	s.Say(connectCompute)
	s.Say(http2.Preface)
	if !strings.Contains(string(s.Conn.Out), downstream.Connected+"\x00\x00") {
		t.Errorf("received %q, want the settings of HTTP/2 in a tunnel", s.Conn.Out)
	}
	if s.lose(nil); s.Proc.Held() != 0 {
		t.Errorf("%d bytes are held after the end", s.Proc.Held())
	}
}

// TestUnreadInterim: an interim response counts while its client has not read it, and its client loses the connection after timeouts.write.
func TestUnreadInterim(t *testing.T) {
	const interim = "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"
	s := newTurns(t, "timeouts: {write: 10s}")
	s.Say(get("/"))
	before := s.Proc.Held()
	s.Unread = true
	s.Answer(interim + "HTTP/1.1 200 OK\r\n") // the head of the response is incomplete
	held := s.Proc.Held()
	s.Unread = false
	if s.Conn.Held != len(interim) || held < before+int64(len(interim)) {
		t.Errorf("%d bytes are unread, %d are held, %d before", s.Conn.Held, held, before)
	}
	if s.Loop.RunTo(s.Loop.Now() + 11*time.Second); !s.Conn.Closed {
		t.Error("the connection stays open")
	}
}

// TestTurnsEndFirst: a request that gets its response at once is over before the next one of its connection begins. Otherwise as many
// requests as a client sends in a row would take the stack.
func TestTurnsEndFirst(t *testing.T) {
	s := newTurns(t, "routes: [{match: {host: compute}, service: compute}]")
	var depths []int
	pcs := make([]uintptr, 200)
	s.OnWrite = func([]byte) { depths = append(depths, runtime.Callers(0, pcs)) }
	s.Say(strings.Repeat("GET /none HTTP/1.1\r\nHost: unknown\r\n\r\n", 4))
	if len(depths) != 4 || depths[0] != depths[1] || depths[0] != depths[2] || depths[0] != depths[3] {
		t.Errorf("responses are written at the depths %v of the stack", depths)
	}
}

// TestDrippingTunnel: a client that sends the first request line in a tunnel byte by byte has no more than timeouts.header, if no stream may
// come of it.
func TestDrippingTunnel(t *testing.T) {
	s := newTurns(t, "timeouts: {header: 10s}\nroutes: [{match: {host: compute}, service: compute}]")
	s.Say(connectCompute)
	began := s.Loop.Now()
	for i := range 12 {
		if s.Loop.RunTo(began + time.Duration(i)*time.Second); s.Conn.Closed {
			break
		}
		s.Say("GET /long/path"[i : i+1])
	}
	if took := s.Loop.Now() - began; !s.Conn.Closed || took < 10*time.Second || !strings.Contains(string(s.Conn.Out), "header-timeout") {
		t.Errorf("closed %t after %v, received %q", s.Conn.Closed, took, s.Conn.Out)
	}
}

// TestBufferOfHTTP2: the memory of the first read of HTTP/2 is kept for others.
func TestBufferOfHTTP2(t *testing.T) {
	s := newTurns(t, "")
	s.Say(http2.Preface + strings.Repeat("\x00", 12_000)) // no frame of HTTP/2
	if s.Proc.Kept() == 0 || !s.Conn.Closed {
		t.Errorf("%d bytes are kept, closed %t", s.Proc.Kept(), s.Conn.Closed)
	}
}

// secured is a connection with a handshake of TLS, in which the client has chosen HTTP/2.
type secured struct{ loop.Conn }

func (secured) Protocol() string { return "h2" }

// securedReceiver is a receiver whose connection is secured.
type securedReceiver struct{ loop.Receiver }

func (r securedReceiver) OnOpen(c loop.Conn) { r.Receiver.OnOpen(secured{c}) }

// TestHTTP2ByHandshake: a client that has chosen HTTP/2 in the handshake of TLS is served so from the start, and counts as one connection.
func TestHTTP2ByHandshake(t *testing.T) {
	var codec http2.Conn
	codec.InitClient(&http2.Options{Buffers: &protocol.Buffers{}}, sender{})
	codec.Request(&protocol.Request{Method: []byte("GET"), Path: []byte("/1"), Authority: []byte("compute")}, "https", nil)
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Listener: "tls: {cert: c, key: k}"})
	const at = "10.0.0.1:16000"
	listener := m.Consumer.Proc.Generation().Listener("egress")
	m.W.Net.Listen(at, m.Consumer.Loop, func() loop.Receiver { return securedReceiver{listener.Accept(m.Consumer.Proc.Workers()[0])} })
	silent, p := m.DialAndSend(at, ""), m.DialAndSend(at, string(codec.Output(1<<16)))
	m.RunUntil("the request", func() bool { return m.Apps[0].Served == 1 })
	m.W.Run(time.Second)
	if n := m.Consumer.Connections(); n != 2 || !strings.HasPrefix(string(silent.Heard), "\x00\x00") || !strings.HasPrefix(string(p.Heard), "\x00\x00") {
		t.Errorf("%d connections are counted; heard %q and %q, want settings of HTTP/2", n, silent.Heard, p.Heard)
	}
	m.Consumer.Proc.Drain()
	m.RunUntilClosed(p)
	m.Settled()
}
