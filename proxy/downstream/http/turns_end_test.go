package http_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

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
			s.say(says)
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
		if s.respond(response(2, "")); !s.Conn.Drained || !strings.Contains(string(s.Conn.Out), "Connection: close\r\n") {
			t.Errorf("%q: closed %t, received %q", says, s.Conn.Drained, s.Conn.Out)
		}
	}
}

// TestShedMakesRoom: a connection that closes since it holds the most gives its memory and its share to the others at once: no other
// connection closes.
func TestShedMakesRoom(t *testing.T) {
	const mib = 1 << 20
	s := newTurns(t, "limits: {message: 4MiB, buffered: 4MiB}") // the hard mark is at 20 MiB: two connections have shares of 8 MiB, three of 5.3
	unread := func(n int) (*proxytest.NullConn, loop.Receiver) {
		s.Open()
		s.say(get("/"))
		s.Conn.Held = n
		s.respond(response(2, ""))
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
	if s.say("POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: 9\r\n\r\nabc"); s.Proc.Held() == before {
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
	s.say("GET / HTTP/1.1\r\nHost: compute\r\nConnection: close\r\n\r\n")
	s.respond(response(2, ""))
	s.Receiver.(loop.Verified).OnUntrusted()
	if !s.Conn.Finished || s.Conn.Drained {
		t.Errorf("finished %t, drained %t", s.Conn.Finished, s.Conn.Drained)
	}
}

// TestUnreadOfTunnel: the response to a CONNECT counts while its client has not read it. It does not count any more once the connection has
// closed, whoever had the connection then.
func TestUnreadOfTunnel(t *testing.T) {
	const http2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	s := newTurns(t, "routes: [{match: {host: compute}, service: compute}]")
	s.Unread = true
	s.say(connectCompute)
	without := int64(len(downstream.Connected))
	before := s.Proc.Held()
	s.lose(nil)
	s.Open()
	s.Unread = false
	s.say(connectCompute)
	if got := before - s.Proc.Held(); got != without {
		t.Errorf("%d bytes count as unread, want %d", got, without)
	}
	s.lose(nil)
	s.Open()
	s.Unread = true
	s.say(connectCompute)
	s.say(http2)
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
	s.say(get("/"))
	before := s.Proc.Held()
	s.Unread = true
	s.respond(interim + "HTTP/1.1 200 OK\r\n") // the head of the response is incomplete
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
	s := newTurns(t, "routes: [{match: {host: compute}, service: compute}, {match: {path: /all}, redirect: {host: other}}]")
	var depths []int
	pcs := make([]uintptr, 200)
	s.OnWrite = func([]byte) { depths = append(depths, runtime.Callers(0, pcs)) }
	s.say(strings.Repeat("GET /none HTTP/1.1\r\nHost: unknown\r\n\r\n", 4))
	if len(depths) != 4 || depths[0] != depths[1] || depths[0] != depths[2] || depths[0] != depths[3] {
		t.Errorf("responses are written at the depths %v of the stack", depths)
	}
}
