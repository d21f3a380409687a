package http_test

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// turns is a client of HTTP/1.1.
type turns struct{ *proxytest.Turns }

func newTurns(t *testing.T, top string) turns {
	t.Helper()
	return newRedirectedTurns(t, top, netip.AddrPort{})
}

// newRedirectedTurns is newTurns for a connection that was redirected.
func newRedirectedTurns(t *testing.T, top string, to netip.AddrPort) turns {
	t.Helper()
	s := turns{proxytest.NewTurns(t, top, to)}
	s.Proc.SetStreams(&s.Streams)
	s.Open()
	t.Cleanup(func() { s.checkNext(t) })
	return s
}

// checkNext ends the connection of a test, and checks that nothing of it is left for the next connection: that has some requests at a
// time, which get their own responses.
func (s turns) checkNext(t *testing.T) {
	t.Helper()
	s.OnWrite, s.Input, s.Unread = nil, false, false
	s.lose(nil)
	before := s.Proc.Held() // the responses of a cache
	s.Open()
	s.Say(get("/next1") + get("/next2") + get("/next3") + get("/next4"))
	for i := 1; i <= 4 && len(s.Apps) > 0; i++ {
		if heard := string(s.Apps[0].Heard); strings.Count(heard, "GET /") != i || !strings.Contains(heard, fmt.Sprintf("GET /next%d ", i)) {
			t.Errorf("request %d of the next connection: the application gets %q", i, heard)
		}
		s.Answer(response(i, ""))
	}
	if n, bodies := strings.Count(string(s.Conn.Out), "HTTP/1.1 200 OK"), strings.Count(string(s.Conn.Out), "y"); n != 4 || bodies != 1+2+3+4 {
		t.Errorf("the next connection gets %q", s.Conn.Out)
	}
	s.lose(nil)
	if pending, held := s.Proc.Pending(), s.Proc.Held(); pending != 0 || held != before {
		t.Errorf("%d requests, %d bytes are left of the next connection, %d before", pending, held, before)
	}
	if n := s.stats().Connections; n != 0 {
		t.Errorf("%d connections are counted after the last", n)
	}
}

// lose ends the connection with err, its streams, and the connections to the application, and waits until nobody awaits anything of them.
func (s turns) lose(err error) {
	s.Lose(err)
	for _, p := range s.Apps {
		if c := p.Conn.(*proxytest.NullConn).Peer; c != nil && !c.Closed {
			c.Lose()
		}
	}
	for _, a := range s.Streams.Responses {
		a.Source.Close()
	}
	s.Apps, s.Streams.Responses = nil, nil
	s.Mesh.Net.Pump()
	s.Loop.RunTo(s.Loop.Now() + time.Minute) // the start of the process is over, and a timer of the free list has fired once more
}

// stats returns the counts of the sidecar's loop.
func (s turns) stats() stats.WorkerStats {
	return s.Proc.Workers()[0].Report(stats.Forecasts).Stats
}

// served returns how many requests have reached the application.
func (s turns) served() (n int) {
	for _, p := range s.Apps {
		n += strings.Count(string(p.Heard), " HTTP/1.1\r\n")
	}
	return n
}

func get(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: compute\r\n\r\n" }

// response returns one with a body of n bytes.
func response(n int, headers string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s", headers, n, strings.Repeat("y", n))
}

// Of turn.go.
const (
	maxUnread    = 256 << 10 // more bytes that the client has left unread make the next request wait
	pieceSize    = 256 << 10 // a longer response that is shared is sent in pieces
	unreadPieces = 64 << 10  // more bytes that the client has left unread make the next piece wait
)

// TestSlowReader: a request behind a response that its client reads slowly begins once at most 256 KiB of the response are unread. A request that
// leaves the loop waits until all of the response is read.
func TestSlowReader(t *testing.T) {
	const connect = "CONNECT db:5432 HTTP/1.1\r\nHost: db:5432\r\n\r\nhello"
	for _, c := range []struct {
		says        string
		unread      int
		waits       bool
		left        int // with which it goes on
		leaves, got int // connections that leave, and requests of the application, in the end
	}{
		{get("/"), 0, false, 0, 0, 1},
		{get("/"), maxUnread, false, 0, 0, 1},
		{get("/"), maxUnread + 1, true, maxUnread, 0, 1},
		{connect, 0, false, 0, 1, 0},
		{connect, 1, true, 0, 1, 0},
	} {
		s := newTurns(t, "")
		s.Conn.Held = c.unread
		s.Say(c.says)
		if waits := s.Detached+s.served() == 0; waits != c.waits || waits != (s.Conn.Room != nil) {
			t.Errorf("%.10s with %d bytes unread: waits %t, for room %t", c.says, c.unread, waits, s.Conn.Room != nil)
			continue
		}
		if c.waits {
			if s.Conn.Left != c.left {
				t.Errorf("%.10s with %d bytes unread: goes on with %d", c.says, c.unread, s.Conn.Left)
			}
			s.Conn.Held = c.left
			s.Conn.Room.Do()
			s.Mesh.Net.Pump()
		}
		if s.Detached != c.leaves || s.served() != c.got {
			t.Errorf("%.10s with %d bytes unread: %d leave, %d requests are served", c.says, c.unread, s.Detached, s.served())
		}
	}
}

// TestTimeOfSlowReader: a request that waits until its client has read earlier responses has all of its time then.
func TestTimeOfSlowReader(t *testing.T) {
	s := newTurns(t, "")
	s.Conn.Held = maxUnread + 1
	s.Say("GET / HTTP/1.1\r\nHost: compute\r\nX-Remora-Timeout-Ms: 2000\r\n\r\n")
	s.Loop.RunTo(s.Loop.Now() + 3*time.Second)
	s.Conn.Held = 0
	s.Conn.Room.Do()
	s.Mesh.Net.Pump()
	if s.served() != 1 {
		t.Fatalf("the request is not served: %q", s.Conn.Out)
	}
	if s.Answer(response(2, "")); !strings.HasPrefix(string(s.Conn.Out), "HTTP/1.1 200 ") {
		t.Errorf("received %q", s.Conn.Out)
	}
}

// TestInterimOfSlowReader: an interim response is left out while its client reads slowly.
func TestInterimOfSlowReader(t *testing.T) {
	for unread, comes := range map[int]bool{maxUnread: true, maxUnread + 1: false} {
		s := newTurns(t, "")
		s.Say(get("/"))
		s.Conn.Held = unread
		if s.Answer("HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"); strings.HasPrefix(string(s.Conn.Out), "HTTP/1.1 103 ") != comes {
			t.Errorf("with %d bytes unread the client gets %q", unread, s.Conn.Out)
		}
		if s.Answer(response(2, "")); !strings.Contains(string(s.Conn.Out), "HTTP/1.1 200 OK\r\n") {
			t.Errorf("with %d bytes unread the client gets %q", unread, s.Conn.Out)
		}
	}
}

// TestPieces: a long response from the cache goes to a client in pieces. Each piece waits until at most 64 KiB of the pieces before are unread. The
// next request is served behind the last piece.
func TestPieces(t *testing.T) {
	// A write is a call of the kernel: a response of one piece takes one with its head.
	for size, writes := range map[int]int{pieceSize: 1, pieceSize + 1: 3, 2 * pieceSize: 3} {
		s := newTurns(t, "")
		s.Say(get("/cached"))
		s.Answer(response(size, ""))
		s.Conn.Out = s.Conn.Out[:0]
		before := s.Conn.Writes
		if s.Say(get("/cached")); s.Conn.Writes-before != writes || !strings.HasSuffix(string(s.Conn.Out), strings.Repeat("y", size)) {
			t.Errorf("%d bytes come in %d writes, want %d", size, s.Conn.Writes-before, writes)
		}
	}
	for _, unread := range []int{unreadPieces, unreadPieces + 1} {
		s := newTurns(t, "timeouts: {write: 10s}")
		s.Say(get("/cached"))
		s.Answer(response(2*pieceSize, ""))
		s.Conn.Out, s.Conn.Held = s.Conn.Out[:0], unread
		s.Say(get("/cached") + get("/next"))
		body := strings.Count(string(s.Conn.Out), "y")
		waits := s.Conn.Room != nil
		if waits != (unread > unreadPieces) || waits == (body > 0) {
			t.Errorf("with %d bytes unread %d bytes of the body come, waits %t", unread, body, waits)
		}
		if waits && s.Conn.Left != unreadPieces {
			t.Errorf("the next piece comes with %d bytes unread", s.Conn.Left)
		}
		s.Conn.Held = 0
		if waits {
			s.Conn.Room.Do()
			s.Mesh.Net.Pump()
		}
		if body := strings.Count(string(s.Conn.Out), "y"); body != 2*pieceSize || s.served() != 2 {
			t.Errorf("%d bytes come in the end, %d requests are served", body, s.served())
		}
	}
}

// TestPiecesUnread: a client that reads nothing for timeouts.write loses its connection while the first piece of a long response waits.
func TestPiecesUnread(t *testing.T) {
	s := newTurns(t, "timeouts: {write: 10s}")
	s.Say(get("/cached"))
	s.Answer(response(1<<20, ""))
	s.Conn.Out, s.Conn.Held = s.Conn.Out[:0], unreadPieces+1
	s.Say(get("/cached"))
	began := s.Loop.Now()
	if s.Loop.RunTo(began + 9*time.Second); s.Conn.Closed {
		t.Error("the connection closes before the time")
	}
	if s.Loop.RunTo(began + 11*time.Second); !s.Conn.Closed {
		t.Error("the connection stays open")
	}
}

// TestInputBehindHandoff: what follows a request that waits to leave the loop may be as long as limits.message.
func TestInputBehindHandoff(t *testing.T) {
	const most = 64 << 10 // of proxytest.SmallMessages
	for _, more := range []int{0, 1} {
		s := newTurns(t, proxytest.SmallMessages)
		s.Say(get("/"))
		s.Say("CONNECT db:5432 HTTP/1.1\r\nHost: db:5432\r\n\r\n")
		s.Say(strings.Repeat("x", most-1))
		s.Say(strings.Repeat("x", 1+more))
		s.Answer(response(2, ""))
		if s.Detached != 1-more || strings.Contains(string(s.Conn.Out), "message-too-large") != (more > 0) {
			t.Errorf("%d bytes: %d connections left, %q", most+more, s.Detached, s.Conn.Out)
		}
	}
}

// TestHandoffFreesMemory: the bytes of a request or connection are not counted from the moment that it leaves the loop.
func TestHandoffFreesMemory(t *testing.T) {
	more := strings.Repeat("x", 30_000)
	for name, c := range map[string]struct {
		to   netip.AddrPort
		says string
	}{
		"a request":    {says: "CONNECT db:5432 HTTP/1.1\r\nHost: db:5432\r\n\r\n"},
		"a connection": {netip.MustParseAddrPort(proxytest.OriginalDst), "GET / HTTP/1.1\r\nHost: other\r\n\r\n"},
	} {
		s := newRedirectedTurns(t, "", c.to)
		s.Say(get("/"))
		s.Say(c.says + more)
		before := s.Proc.Held()
		s.Answer(response(2, ""))
		if held := s.Proc.Held(); before < 30_000 || held != 0 || s.Detached != 1 || len(s.Streams.Requests)+len(s.Streams.Passed) != 1 {
			t.Errorf("%s: %d connections left, %d bytes were held and %d are", name, s.Detached, before, held)
		}
	}
}

// TestHalfClosed: a client that has ended its side waits for its response for timeouts.half_close. Then the connection closes, and its memory
// is free in the same turn. A client that still has bytes to read may wait longer. With half_close of 0 the connection does not stay.
func TestHalfClosed(t *testing.T) {
	for unread, closes := range map[int]bool{0: true, 1: false} {
		s := newTurns(t, "timeouts: {half_close: 10s}")
		s.Say(get("/"))
		began := s.Loop.Now()
		s.Conn.Held = unread
		if stays := s.Receiver.(loop.HalfCloser).OnEnd(); !stays {
			t.Fatalf("with %d bytes unread the connection does not stay", unread)
		}
		if s.Loop.RunTo(began + 9*time.Second); s.Conn.Closed {
			t.Errorf("with %d bytes unread: closed before the time", unread)
		}
		if s.Loop.RunTo(began + 11*time.Second); s.Conn.Closed != closes || closes && s.Proc.Held() > 0 {
			t.Errorf("with %d bytes unread: closed %t, %d bytes are held", unread, s.Conn.Closed, s.Proc.Held())
		}
	}
	s := newTurns(t, "timeouts: {half_close: 0}")
	s.Say(get("/"))
	if s.Receiver.(loop.HalfCloser).OnEnd() {
		t.Error("the connection stays with half_close of 0")
	}
}

// TestIncompleteHalfClosed: what a client has sent of a request that its end cuts off takes no memory any more. The response to the request
// before comes, and nothing is left for the next connection.
func TestIncompleteHalfClosed(t *testing.T) {
	for _, part := range []string{"GET / HTTP/1.1\r\nx: ", "POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: 50000\r\n\r\n"} {
		s := newTurns(t, "timeouts: {half_close: 10s}")
		s.Say(get("/") + part + strings.Repeat("x", 40_000)) // the second request will never be complete
		before := s.Proc.Held()
		s.Receiver.(loop.HalfCloser).OnEnd()
		if held := s.Proc.Held(); before < 40_000 || held > 10_000 {
			t.Errorf("%.10q: %d bytes are held behind the end, %d before", part, held, before)
		}
		if s.Answer(response(2, "")); !s.Conn.Finished || !strings.HasSuffix(string(s.Conn.Out), "\r\n\r\nyy") || s.Proc.Held() != 0 {
			t.Errorf("%.10q: finished %t, %d bytes are held, received %q", part, s.Conn.Finished, s.Proc.Held(), s.Conn.Out)
		}
	}
}

// TestHalfClosedPipeline: a client that has ended its side may wait anew for timeouts.half_close for each response that follows another.
func TestHalfClosedPipeline(t *testing.T) {
	for _, first := range []bool{true, false} { // of two responses comes
		s := newTurns(t, "timeouts: {half_close: 10s}")
		s.Say(get("/") + get("/"))
		began := s.Loop.Now()
		s.Receiver.(loop.HalfCloser).OnEnd()
		if s.Loop.RunTo(began + 5*time.Second); first {
			s.Answer(response(2, ""))
		}
		if s.Loop.RunTo(began + 11*time.Second); s.Conn.Closed == first {
			t.Errorf("the first response comes %t: closed %t after 11 s", first, s.Conn.Closed)
		}
		if s.Loop.RunTo(began + 21*time.Second); !s.Conn.Closed {
			t.Errorf("the first response comes %t: the connection stays open", first)
		}
	}
}

// TestUnreadHalfClosed: a client that has its last response, and ends its side before it has read all of that, gets the rest.
func TestUnreadHalfClosed(t *testing.T) {
	s := newTurns(t, "")
	s.Say(get("/"))
	s.Answer(response(2, ""))
	s.Conn.Held = 1
	if stays := s.Receiver.(loop.HalfCloser).OnEnd(); !stays || !s.Conn.Drained {
		t.Errorf("with a byte unread: stays %t, drains %t", stays, s.Conn.Drained)
	}
}

// TestConnectionLeavesNothing: nothing is left of a connection that its client closes, whatever the session waits for: no request, no timer, no
// counted byte, and no reference.
func TestConnectionLeavesNothing(t *testing.T) {
	errLost := errors.New("lost")
	ended := make(map[string]weak.Pointer[byte])
	var all []turns
	for name, says := range map[string]string{
		"nothing":                   "",
		"an empty line":             "\r\n",
		"a head":                    "GET / HTTP/1.1\r\n",
		"a body":                    "POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: 9\r\n\r\nabc",
		"a request":                 get("/"),
		"requests, one in part":     get("/") + get("/") + "GET / HT",
		"a handoff":                 get("/") + "CONNECT db:5432 HTTP/1.1\r\nHost: db:5432\r\n\r\nhello",
		"a tunnel":                  connectCompute,
		"a request in a tunnel":     connectCompute + get("/"),
		"a body that is awaited":    get("/") + "POST / HTTP/1.1\r\nHost: compute\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n",
		"nonsense":                  "nonsense\r\n\r\n",
		"nonsense behind a request": get("/") + "nonsense\r\n\r\n",
		"too many requests":         strings.Repeat(get("/"), 40),
	} {
		s := newTurns(t, "timeouts: {idle: 1h}")
		s.lose(errLost)
		before := s.Loop.Timers() // that serve all connections
		s.Open()
		s.Say(says)
		s.lose(errLost)
		if pending, held := s.Proc.Pending(), s.Proc.Held(); pending != 0 || held != 0 {
			t.Errorf("%s: %d requests, %d bytes are left", name, pending, held)
		}
		ended[name] = weak.Make((*byte)(reflect.ValueOf(s.Receiver).UnsafePointer()))
		all = append(all, s)
		s.Open()
		s.Mesh.Net.ForgetClosed()
		if after := s.Loop.Timers(); after != before {
			t.Errorf("%s: %d timers, %d behind a connection without a request", name, after, before)
		}
	}
	runtime.GC()
	for name, s := range ended {
		if s.Value() != nil {
			t.Errorf("%s: the session that has ended is still referenced", name)
		}
	}
	runtime.KeepAlive(all)
}

// TestEndOfSlowReader: nothing is left of a connection that closes while its client reads slowly, and the room that it gets then begins no request.
func TestEndOfSlowReader(t *testing.T) {
	s := newTurns(t, "")
	s.Say(get("/") + get("/"))
	s.Conn.Held = maxUnread + 1
	if s.Answer(response(2, "")); s.Proc.Held() < maxUnread || s.Conn.Room == nil {
		t.Errorf("%d bytes are held, waits for room %t", s.Proc.Held(), s.Conn.Room != nil)
	}
	s.Lose(nil)
	s.Conn.Room.Do()
	s.Mesh.Net.Pump()
	if s.Proc.Held() != 0 || s.served() != 1 {
		t.Errorf("%d bytes are held, %d requests are served", s.Proc.Held(), s.served())
	}
}

// TestInputTakesMemoryOnce: an empty line behind a request takes no memory. A whole request takes memory once.
func TestInputTakesMemoryOnce(t *testing.T) {
	for blank, holds := range map[string]bool{"\r": false, "\r\n": false, "G": true, "\r\nG": true} {
		s := newTurns(t, "")
		if s.Say(blank); s.Proc.Held() > 0 != holds {
			t.Errorf("%q: %d bytes are held", blank, s.Proc.Held())
		}
	}
	held := func(n int) int {
		s := newTurns(t, "")
		s.Say(fmt.Sprintf("POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: %05d\r\n\r\n%s", n, strings.Repeat("x", n)))
		return int(s.Proc.Held())
	}
	least := held(10)
	if more := held(300); more != least+290 {
		t.Errorf("%d bytes are held of a body of 300 bytes, %d of one of 10", more, least)
	}
	for _, n := range []int{12_000, 40_000} {
		if long := held(n); long > 2*n {
			t.Errorf("%d bytes are held of a body of %d", long, n)
		}
	}
}
