package http_test

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// newTurns returns a client whose request the sidecar has sent, and the sidecar's end of the connection to the application. That connection
// can leave its loop.
func newTurns(t *testing.T, top, says string) (*proxytest.Turns, *proxytest.NullConn) {
	t.Helper()
	s := proxytest.NewTurns(t, top, netip.AddrPort{})
	s.Proc.SetStreams(&s.Streams)
	s.Open()
	s.Say(says)
	c := s.Apps[0].Conn.(*proxytest.NullConn).Peer
	c.Socket = proxytest.PipeSocket{Pipe: &proxytest.Pipe{}}
	return s, c
}

// post returns a request with a body of n bytes.
func post(n int) string {
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: %d\r\n\r\n%s", n, strings.Repeat("x", n))
}

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// TestWritesOfRequest: a request takes one write. A long body is not copied for that.
func TestWritesOfRequest(t *testing.T) {
	for size, parts := range map[int]int{0: 0, 1: 0, 1000: 0, http1.WriteTogether + 1: 1, 1 << 20: 1} {
		s, c := newTurns(t, "", post(size))
		if c.Writes != 1 || c.Parts != parts {
			t.Errorf("%d bytes take %d writes, %d of them in parts", size, c.Writes, c.Parts)
		}
		if s.Answer(ok); !strings.HasSuffix(string(s.Conn.Out), "\r\n\r\nok") {
			t.Errorf("%d bytes: received %q", size, s.Conn.Out)
		}
	}
}

// unsent makes the client send a second request. The last bytes of the request, as many as left says, wait in the sidecar.
func unsent(t *testing.T, request string, left int) (*proxytest.Turns, *proxytest.NullConn) {
	t.Helper()
	s, c := newTurns(t, "", post(0))
	s.Answer(ok)
	s.Conn.Out = s.Conn.Out[:0]
	before := s.Proc.Held()
	c.Held = left
	s.Say(request)
	if len(s.Apps) != 1 || s.Proc.Held() < before+int64(left) {
		t.Fatalf("%d connections, %d bytes are held", len(s.Apps), s.Proc.Held())
	}
	return s, c
}

// TestIdleConnectionLost: a connection may be idle before all of its request is sent. The rest of the request does not count any more once
// the connection is lost.
func TestIdleConnectionLost(t *testing.T) {
	s, c := unsent(t, post(0), 1000)
	c.Held = 0
	s.Answer(ok)
	if c.Closed || !strings.HasSuffix(string(s.Conn.Out), "\r\n\r\nok") {
		t.Errorf("closed %t, received %q", c.Closed, s.Conn.Out)
	}
	if c.Lose(); s.Proc.Held() != 0 {
		t.Errorf("%d bytes are held", s.Proc.Held())
	}
}

// TestStaleConnectionUnsent: a stale connection may be lost before all of its request is sent. The rest of the request does not count any
// more once the request is sent on another connection.
func TestStaleConnectionUnsent(t *testing.T) {
	s, c := unsent(t, proxytest.GetHead, 1000)
	before := s.Proc.Held()
	c.LoseFor(io.EOF)
	s.Mesh.Net.Pump()
	if held := s.Proc.Held(); len(s.Apps) != 2 || held > before-1000 {
		t.Errorf("%d connections, %d bytes are held, %d before", len(s.Apps), held, before)
	}
	if s.Answer(ok); !strings.HasSuffix(string(s.Conn.Out), "\r\n\r\nok") || s.Proc.Held() != 0 {
		t.Errorf("%d bytes are held, received %q", s.Proc.Held(), s.Conn.Out)
	}
}

// TestStreamBehindUnsent: a response that is a stream waits until all of its request is sent. The rest of the request does not count any
// more once the connection has left its loop, or is lost.
func TestStreamBehindUnsent(t *testing.T) {
	for name, leaves := range map[string]bool{"sent": true, "lost": false} {
		s, c := unsent(t, post(0), 1000)
		s.Answer("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nfirst")
		if c.Room == nil || c.Left != 0 || len(s.Streams.Responses) != 0 {
			t.Fatalf("%s: waits %t until %d bytes are left, %d responses left", name, c.Room != nil, c.Left, len(s.Streams.Responses))
		}
		if !leaves {
			c.Lose()
		}
		c.Held = 0
		c.Room.Do()
		s.Mesh.Net.Pump()
		if got := len(s.Streams.Responses) == 1; got != leaves || s.Proc.Held() != 0 {
			t.Errorf("%s: %d responses left, %d bytes are held", name, len(s.Streams.Responses), s.Proc.Held())
		}
	}
}

// TestMemoryOfLongResponses: the memory of a long response serves the next one.
func TestMemoryOfLongResponses(t *testing.T) {
	const size = 100_000
	says := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("y", size))
	s, _ := newTurns(t, "", post(0))
	s.Answer(says)
	kept := s.Proc.Kept()
	for range 2 {
		s.Say(post(0))
		s.Answer(says)
	}
	if n := s.Proc.Kept(); n != kept || n == 0 || n > 2*size {
		t.Errorf("%d bytes are kept after the first response, %d after the third", kept, n)
	}
	if n := strings.Count(string(s.Conn.Out), "y"); n != 3*size {
		t.Errorf("%d bytes came", n)
	}
}

// TestShortResponseForNobody: a connection on which a short response comes for a client that has gone serves the next request.
func TestShortResponseForNobody(t *testing.T) {
	s, c := newTurns(t, "", post(0))
	s.Answer(ok[:len(ok)-1])
	s.Lose(nil)
	s.Mesh.Net.Pump()
	if c.Closed {
		t.Error("the connection is closed before the response is complete")
	}
	if s.Answer(ok[len(ok)-1:]); s.Proc.Held() != 0 {
		t.Errorf("%d bytes are held", s.Proc.Held())
	}
	s.Open()
	s.Say(post(0))
	if s.Answer(ok); len(s.Apps) != 1 || !strings.HasSuffix(string(s.Conn.Out), "\r\n\r\nok") {
		t.Errorf("%d connections, received %q", len(s.Apps), s.Conn.Out)
	}
}

// TestSurplus: a connection closes if more comes on it than the response, in however many parts.
func TestSurplus(t *testing.T) {
	const half = 9000
	more := strings.Repeat("m", half-4) + "\r\n\r\n" + strings.Repeat("m", half) // long enough that the read is split after the first empty line
	for _, says := range [][]string{
		{ok + "mm"},
		{ok[:len(ok)-4], "\r\nok" + more}, // the head ends between two reads
		{"HTTP/1.1 204 No Content\r\n", "\r\n" + more},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + more},
	} {
		s, c := newTurns(t, "", post(0))
		for _, part := range says {
			s.Answer(part)
		}
		if !c.Closed || strings.Contains(string(s.Conn.Out), "mm") {
			t.Errorf("%.50q: closed %t, received %.200q", says, c.Closed, s.Conn.Out)
		}
	}
}

// TestPauseOfNextResponse: a response without a length is a stream if it is not complete after a tenth of a second. Each response of a
// connection has that time.
func TestPauseOfNextResponse(t *testing.T) {
	const begins, ends = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nyy\r\n", "2\r\nyy\r\n0\r\n\r\n"
	s, _ := newTurns(t, "", post(0))
	for i := range 3 {
		s.Answer(begins)
		s.Loop.RunTo(s.Loop.Now() + 70*time.Millisecond)
		if s.Answer(ends); strings.Count(string(s.Conn.Out), "y") != 4*(i+1) || len(s.Streams.Responses) != 0 {
			t.Errorf("response %d: %d left as streams, received %q", i, len(s.Streams.Responses), s.Conn.Out)
		}
		s.Say(post(0))
	}
	s.Answer(begins)
	if s.Loop.RunTo(s.Loop.Now() + 110*time.Millisecond); len(s.Streams.Responses) != 1 {
		t.Error("a response that is not complete is no stream")
	}
}

// TestFirstKept: while nothing is known of a server, a request that may not be sent twice takes a connection only if that has been idle for at
// most a second.
func TestFirstKept(t *testing.T) {
	for idle, connections := range map[time.Duration]int{time.Second: 1, time.Second + 1: 2} {
		s, _ := newTurns(t, "", post(0))
		since := s.Loop.Now()
		s.Answer(ok)
		s.Loop.RunTo(since + idle)
		if s.Say(post(0)); len(s.Apps) != connections {
			t.Errorf("%d connections after one was idle for %v, want %d", len(s.Apps), idle, connections)
		}
	}
}
