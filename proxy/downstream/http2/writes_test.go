package http2_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

const (
	get  = "\x82\x86\x84\x41\x07compute" // the header block of a GET
	post = "\x83\x86\x84\x41\x07compute" // that of a POST
)

// turns is a client of HTTP/2, with a connection that has begun.
type turns struct {
	*proxytest.Turns
	next byte // stream
}

func newTurns(t *testing.T) *turns {
	t.Helper()
	s := &turns{proxytest.NewTurns(t, "timeouts: {body: 30s, idle: 1h, half_close: 5s}\nlimits: {headers: 600}", netip.AddrPort{}), 1}
	s.Open()
	s.Mesh.Greet()
	s.Mesh.Net.Pump()
	s.Conn.Out = nil
	return s
}

// begin sends the head of a request.
func (s *turns) begin(block string, flags byte) {
	f := proxytest.Frame(proxytest.FrameHeaders, flags|proxytest.FlagEndHeaders, block)
	f[8], s.next = s.next, s.next+2
	s.Conn.Deliver(f)
	s.Mesh.Net.Pump()
	s.Conn.Out = nil
}

func (s *turns) ping() { s.Conn.Deliver(proxytest.Frame(proxytest.FramePing, 0, "12345678")) }

// runTo moves the clock of the loop. It returns how many bytes the client got before the end of the turn that had them.
func (s *turns) runTo(at time.Duration) (early int) {
	for s.Loop.Due(at) {
		before := len(s.Conn.Out)
		s.Loop.Defer(&loop.Flush{Do: func() { early += len(s.Conn.Out) - before }})
		s.Loop.NextTurn()
	}
	s.Loop.RunTo(at)
	return early
}

// TestWriteAtOnce: what concerns the only request of a connection, or none, goes to the client at once. What concerns one of several
// requests goes with all that the turn brings.
func TestWriteAtOnce(t *testing.T) {
	const ok, early = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"
	for name, c := range map[string]struct {
		requests int
		event    func(s *turns)
		atOnce   bool
	}{
		"a PING without a request":            {0, (*turns).ping, true},
		"a PING beside a request":             {1, (*turns).ping, false},
		"the only response":                   {1, func(s *turns) { s.Respond(ok) }, true},
		"one of two responses":                {2, func(s *turns) { s.Respond(ok) }, false},
		"an interim response":                 {1, func(s *turns) { s.Respond(early) }, true},
		"an interim response of two requests": {2, func(s *turns) { s.Respond(early) }, false},
		"the end of trust in the client":      {1, func(s *turns) { s.Receiver.(loop.Verified).OnUntrusted() }, false},
	} {
		s := newTurns(t)
		for range c.requests {
			s.begin(get, proxytest.FlagEnd)
		}
		c.event(s)
		if atOnce := len(s.Conn.Out) > 0; atOnce != c.atOnce {
			t.Errorf("%s: at once %t", name, atOnce)
		}
		if s.Loop.EndTurn(); len(s.Conn.Out) == 0 {
			t.Errorf("%s: nothing is written", name)
		}
	}
}

// TestTimedOutTogether: requests that time out together get their responses together, as soon as their time is over. The only one does not
// wait for the end of the turn.
func TestTimedOutTogether(t *testing.T) {
	for _, requests := range []int{1, 2} {
		s := newTurns(t)
		for range requests {
			s.begin(post, 0)
		}
		began, writes := s.Loop.Now(), s.Conn.Writes
		if s.runTo(began + 30*time.Second - time.Millisecond); len(s.Conn.Out) > 0 {
			t.Errorf("%d requests: a response before the time", requests)
		}
		early := s.runTo(began + 30*time.Second + time.Millisecond)
		if early > 0 != (requests == 1) || s.Conn.Writes-writes != 1 || strings.Count(string(s.Conn.Out), "body-timeout") != requests {
			t.Errorf("%d requests: %d bytes early, %d writes, %q", requests, early, s.Conn.Writes-writes, s.Conn.Out)
		}
	}
}

// TestKeepalive: a PING to a client that is silent goes with the other frames of the turn. If nothing is heard until the next PING is due, the
// connection closes, and its memory is free in the same turn.
func TestKeepalive(t *testing.T) {
	for _, hears := range []bool{true, false} {
		s := newTurns(t)
		s.begin(get, proxytest.FlagEnd)
		began := s.Loop.Now()
		s.runTo(began + 99*time.Second)
		if len(s.Conn.Out) != 0 {
			t.Errorf("%q after 99 s", s.Conn.Out)
		}
		if early := s.runTo(began + 101*time.Second); early > 0 || len(s.Conn.Out) != proxytest.FrameHead+8 || s.Conn.Out[3] != proxytest.FramePing {
			t.Errorf("%d bytes early, %q", early, s.Conn.Out)
		}
		if hears {
			s.ping()
		}
		s.runTo(began + 149*time.Second)
		if s.Conn.Closed || s.Proc.Held() == 0 {
			t.Errorf("closed %t, %d bytes are held", s.Conn.Closed, s.Proc.Held())
		}
		s.runTo(began + 151*time.Second)
		if s.Conn.Closed == hears || s.Proc.Held() > 0 != hears {
			t.Errorf("a client that is heard %t: closed %t, %d bytes are held", hears, s.Conn.Closed, s.Proc.Held())
		}
	}
}

// TestSilentHalfClose: when timeouts.half_close is over for a connection whose client has ended its side, its memory is free in the same turn.
func TestSilentHalfClose(t *testing.T) {
	s := newTurns(t)
	s.begin(get, proxytest.FlagEnd)
	began := s.Loop.Now()
	if stays := s.Receiver.(loop.HalfCloser).OnEnd(); !stays {
		t.Error("the connection ends with a request in flight")
	}
	s.runTo(began + 4*time.Second)
	if s.Conn.Closed || s.Proc.Held() == 0 {
		t.Errorf("closed %t, %d bytes are held", s.Conn.Closed, s.Proc.Held())
	}
	s.runTo(began + 6*time.Second)
	if !s.Conn.Closed || s.Proc.Held() != 0 {
		t.Errorf("closed %t, %d bytes are held behind the time", s.Conn.Closed, s.Proc.Held())
	}
}

// TestPieceOfStream: what the goroutine of a stream writes goes to the client at once, also beside other requests.
func TestPieceOfStream(t *testing.T) {
	s := newTurns(t)
	s.Proc.SetStreams(&s.Streams)
	s.begin(post, 0)
	s.begin(get, proxytest.FlagEnd)
	s.runTo(s.Loop.Now() + time.Second)
	if len(s.Streams.Sockets) != 1 || len(s.Conn.Out) != 0 {
		t.Fatalf("%d streams, %q", len(s.Streams.Sockets), s.Conn.Out)
	}
	_, _ = s.Streams.Sockets[0].Write([]byte("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"))
	early := 0
	s.Loop.Defer(&loop.Flush{Do: func() { early = len(s.Conn.Out) }})
	if s.Loop.EndTurn(); early == 0 || early != len(s.Conn.Out) {
		t.Errorf("%d bytes come at once, of %d", early, len(s.Conn.Out))
	}
}

// TestFramesAwaitRoom: frames wait while the client has left more than mux.MaxOutbound bytes unread, and go on once it has room.
func TestFramesAwaitRoom(t *testing.T) {
	for unread, waits := range map[int]bool{mux.MaxOutbound: false, mux.MaxOutbound + 1: true} {
		s := newTurns(t)
		s.Conn.Held = unread
		s.ping()
		s.Loop.EndTurn()
		if len(s.Conn.Out) == 0 != waits || s.Conn.Room != nil != waits {
			t.Fatalf("%d bytes unread: %d bytes are written, awaits room %t", unread, len(s.Conn.Out), s.Conn.Room != nil)
		}
		if !waits {
			continue
		}
		s.Conn.Held = s.Conn.Left
		if s.Conn.Room.Do(); s.Conn.Left != mux.MaxOutbound || len(s.Conn.Out) == 0 {
			t.Errorf("with %d bytes unread %d bytes are written", s.Conn.Left, len(s.Conn.Out))
		}
	}
}
