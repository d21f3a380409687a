package http_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/registry"
)

// turns is a client of a sidecar on the null driver: the test says what the connection holds, and ends the turns of the loop.
type turns struct {
	m        *proxytest.AllocMesh
	p        *proxy.Process
	accept   func() (*proxytest.NullLoop, loop.Receiver)
	loop     *proxytest.NullLoop
	c        *proxytest.NullConn // the sidecar's end
	receiver loop.Receiver       // of c
	streams  proxytest.Carrier
	apps     []*proxytest.Peer // the connections to the application
	detached int
	to       netip.AddrPort // the original destination; the zero value means that the connection was not redirected
}

// knownConn is the sidecar's end of a connection that can leave its loop.
type knownConn struct {
	*proxytest.NullConn
	of *turns
}

func (c knownConn) Detach() (loop.Socket, error) {
	if c.Held > 0 {
		return nil, loop.ErrDetachBuffered
	}
	if c.Closed {
		return nil, loop.ErrDetachClosed
	}
	c.of.detached++
	return proxytest.PipeSocket{Pipe: &proxytest.Pipe{Loop: c.of.loop}}, nil
}

func (c knownConn) OriginalDst() netip.AddrPort { return c.of.to }

func newTurns(t *testing.T, top string) *turns { return newRedirectedTurns(t, top, netip.AddrPort{}) }

// newRedirectedTurns is newTurns for a connection that was redirected.
func newRedirectedTurns(t *testing.T, top string, to netip.AddrPort) *turns {
	const app = "10.0.0.1:8080"
	s := &turns{m: proxytest.NewAllocMesh(t, proxytest.AllocMeshOptions{Hops: 1}), to: to}
	p, accept := s.m.Sidecar(`
listeners: [{name: egress, address: "127.0.0.1:1", protocol: http}]
routes: [{match: {method: [CONNECT]}, service: compute}, {match: {host: compute, path: /cached}, service: compute, cache: {ttl: 1h}}, {match: {host: compute}, service: compute}]
services: {compute: {discover: static, endpoints: ["192.0.2.9:1"], protocol: http, timeout: 1h}}
` + top)
	p.Update(registry.NewSnapshot("compute", registry.SourceLive, time.Time{}, []registry.Endpoint{{Addr: app, Weight: 1}}))
	p.SetStreams(&s.streams)
	appLoop := s.m.Net.Loop()
	s.m.Net.Accept[app] = func() (*proxytest.NullLoop, loop.Receiver) {
		peer := &proxytest.Peer{}
		s.apps = append(s.apps, peer)
		return appLoop, peer
	}
	s.p, s.accept = p, accept
	s.open()
	return s
}

// open opens a connection in place of the one before.
func (s *turns) open() {
	s.loop, s.receiver = s.accept()
	s.c, _ = s.m.Net.Connect(s.loop, s.receiver, nil, nil)
	s.receiver.OnOpen(knownConn{s.c, s})
	s.m.Net.Pump()
}

// say delivers bytes of the client, and ends the turn.
func (s *turns) say(says string) {
	s.c.Deliver([]byte(says))
	s.m.Net.Pump()
}

// respond delivers bytes of the application to the sidecar, and ends the turn.
func (s *turns) respond(says string) {
	s.apps[len(s.apps)-1].Conn.(*proxytest.NullConn).Peer.Deliver([]byte(says))
	s.m.Net.Pump()
}

// served returns how many requests have reached the application.
func (s *turns) served() (n int) {
	for _, p := range s.apps {
		n += strings.Count(string(p.Heard), " HTTP/1.1\r\n")
	}
	return n
}

func get(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: compute\r\n\r\n" }

// response returns one with a body of n bytes.
func response(n int, headers string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s", headers, n, strings.Repeat("y", n))
}

const (
	unreadBound = 256 << 10 // more bytes that the client has left unread make the next request wait
	pieceBound  = 64 << 10  // and the next piece of a long response
)

// TestSlowReader: a request behind a response that its client reads slowly begins once no more than so much of the response is left. One that
// leaves the loop waits for all of it.
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
		{get("/"), unreadBound, false, 0, 0, 1},
		{get("/"), unreadBound + 1, true, unreadBound, 0, 1},
		{connect, 0, false, 0, 1, 0},
		{connect, 1, true, 0, 1, 0},
	} {
		s := newTurns(t, "")
		s.c.Held = c.unread
		s.say(c.says)
		if waits := s.detached+s.served() == 0; waits != c.waits || waits != (s.c.Room != nil) {
			t.Errorf("%.10s with %d bytes unread: waits %t, for room %t", c.says, c.unread, waits, s.c.Room != nil)
			continue
		}
		if c.waits {
			if s.c.Left != c.left {
				t.Errorf("%.10s with %d bytes unread: goes on with %d", c.says, c.unread, s.c.Left)
			}
			s.c.Held = c.left
			s.c.Room.Do()
			s.m.Net.Pump()
		}
		if s.detached != c.leaves || s.served() != c.got {
			t.Errorf("%.10s with %d bytes unread: %d leave, %d requests are served", c.says, c.unread, s.detached, s.served())
		}
	}
}

// TestInterimOfSlowReader: an interim response is left out while its client reads slowly.
func TestInterimOfSlowReader(t *testing.T) {
	for unread, comes := range map[int]bool{unreadBound: true, unreadBound + 1: false} {
		s := newTurns(t, "")
		s.say(get("/"))
		s.c.Held = unread
		if s.respond("HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"); strings.HasPrefix(string(s.c.Out), "HTTP/1.1 103 ") != comes {
			t.Errorf("with %d bytes unread the client gets %q", unread, s.c.Out)
		}
		if s.respond(response(2, "")); !strings.Contains(string(s.c.Out), "HTTP/1.1 200 OK\r\n") {
			t.Errorf("with %d bytes unread the client gets %q", unread, s.c.Out)
		}
	}
}

// TestPieces: a long response that the sidecar keeps goes to a client in pieces, each once the client has left little of those before unread. A
// request behind it comes then.
func TestPieces(t *testing.T) {
	const piece = 256 << 10
	for size, writes := range map[int]int{piece: 1, piece + 1: 3, 2 * piece: 3} {
		s := newTurns(t, "")
		s.say(get("/cached"))
		s.respond(response(size, ""))
		s.c.Out = s.c.Out[:0]
		before := s.c.Writes
		if s.say(get("/cached")); s.c.Writes-before != writes || !strings.HasSuffix(string(s.c.Out), strings.Repeat("y", size)) {
			t.Errorf("%d bytes come in %d writes, want %d", size, s.c.Writes-before, writes)
		}
	}
	for _, unread := range []int{pieceBound, pieceBound + 1} {
		s := newTurns(t, "timeouts: {write: 10s}")
		s.say(get("/cached"))
		s.respond(response(2*piece, ""))
		s.c.Out, s.c.Held = s.c.Out[:0], unread
		s.say(get("/cached") + get("/next"))
		body := strings.Count(string(s.c.Out), "y")
		if waits := unread > pieceBound; waits != (s.c.Room != nil) || body > 0 == waits || waits && s.c.Left != pieceBound {
			t.Errorf("with %d bytes unread %d bytes of the body come, waits %t for %d", unread, body, s.c.Room != nil, s.c.Left)
		}
		s.c.Held = 0
		if s.c.Room != nil {
			s.c.Room.Do()
			s.m.Net.Pump()
		}
		if body := strings.Count(string(s.c.Out), "y"); body != 2*piece || s.served() != 2 {
			t.Errorf("%d bytes come in the end, %d requests are served", body, s.served())
		}
	}
}

// TestPiecesUnread: a client that reads nothing of a long response for timeouts.write loses its connection, also before a piece was left unread.
func TestPiecesUnread(t *testing.T) {
	s := newTurns(t, "timeouts: {write: 10s}")
	s.say(get("/cached"))
	s.respond(response(1<<20, ""))
	s.c.Out, s.c.Held = s.c.Out[:0], pieceBound+1
	s.say(get("/cached"))
	began := s.loop.Now()
	if s.loop.RunTo(began + 9*time.Second); s.c.Closed {
		t.Error("the connection closes before the time")
	}
	if s.loop.RunTo(began + 11*time.Second); !s.c.Closed {
		t.Error("the connection stays open")
	}
}

// TestKeptInput: what follows a request that waits to leave the loop may be as long as limits.message.
func TestKeptInput(t *testing.T) {
	const most = 64 << 10 // of proxytest.SmallMessages
	for _, more := range []int{0, 1} {
		s := newTurns(t, proxytest.SmallMessages)
		s.say(get("/"))
		s.say("CONNECT db:5432 HTTP/1.1\r\nHost: db:5432\r\n\r\n")
		s.say(strings.Repeat("x", most-1))
		s.say(strings.Repeat("x", 1+more))
		s.respond(response(2, ""))
		if s.detached != 1-more || strings.Contains(string(s.c.Out), "message-too-large") != (more > 0) {
			t.Errorf("%d bytes: %d connections left, %q", most+more, s.detached, s.c.Out)
		}
	}
}

// TestLeaves: what leaves the loop is not counted any more, at once.
func TestLeaves(t *testing.T) {
	more := strings.Repeat("x", 30_000)
	for name, c := range map[string]struct{ to, says string }{
		"a request":    {"", "CONNECT db:5432 HTTP/1.1\r\nHost: db:5432\r\n\r\n"},
		"a connection": {proxytest.OriginalDst, "GET / HTTP/1.1\r\nHost: other\r\n\r\n"},
	} {
		to, _ := netip.ParseAddrPort(c.to)
		s := newRedirectedTurns(t, "", to)
		s.say(get("/"))
		s.say(c.says + more)
		before := s.p.Held()
		s.respond(response(2, ""))
		if held := s.p.Held(); before < 30_000 || held != 0 || s.detached != 1 || len(s.streams.Requests)+len(s.streams.Passed) != 1 {
			t.Errorf("%s: %d connections left, %d bytes were held and %d are", name, s.detached, before, held)
		}
	}
}

// TestHalfClosed: a client that has ended its side waits for its response for timeouts.half_close, and longer as long as it has a response to read. With
// 0 it has left.
func TestHalfClosed(t *testing.T) {
	for _, c := range []struct {
		top    string
		unread int
		stays  bool
		closed bool // after 11 s
	}{
		{"timeouts: {half_close: 10s}", 0, true, true},
		{"timeouts: {half_close: 10s}", 1, true, false},
		{"timeouts: {half_close: 0}", 0, false, false}, // the loop closes it
	} {
		s := newTurns(t, c.top)
		s.say(get("/"))
		began := s.loop.Now()
		s.c.Held = c.unread
		if stays := s.receiver.(loop.HalfCloser).OnEnd(); stays != c.stays {
			t.Errorf("%s: stays %t", c.top, stays)
			continue
		}
		if s.loop.RunTo(began + 9*time.Second); s.c.Closed {
			t.Errorf("%s: closed before the time", c.top)
		}
		if s.loop.RunTo(began + 11*time.Second); s.c.Closed != c.closed || s.p.Held() == 0 != c.closed {
			t.Errorf("%s with %d bytes unread: closed %t, %d bytes are held", c.top, c.unread, s.c.Closed, s.p.Held())
		}
	}
	for _, part := range []string{"GET / HTTP/1.1\r\nx: ", "POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: 50000\r\n\r\n"} {
		s := newTurns(t, "timeouts: {half_close: 10s}")
		s.say(get("/") + part + strings.Repeat("x", 40_000)) // the second request will never be complete
		before := s.p.Held()
		s.receiver.(loop.HalfCloser).OnEnd()
		if held := s.p.Held(); before < 40_000 || held > 10_000 {
			t.Errorf("%.10q: %d bytes are held behind the end, %d before", part, held, before)
		}
		if s.respond(response(2, "")); !s.c.Finished || !strings.HasSuffix(string(s.c.Out), "\r\n\r\nyy") || s.p.Held() != 0 {
			t.Errorf("%.10q: finished %t, %d bytes are held, received %q", part, s.c.Finished, s.p.Held(), s.c.Out)
		}
		s.open() // nothing of that is left for the next requests
		s.say(get("/a") + get("/b"))
		s.respond(response(2, ""))
		s.respond(response(2, ""))
		if n := strings.Count(string(s.c.Out), "HTTP/1.1 200 OK"); n != 2 || s.p.Held() != 0 {
			t.Errorf("%.10q: %d responses on the next connection, %d bytes are held", part, n, s.p.Held())
		}
	}
	for _, first := range []bool{true, false} { // of two responses comes
		s := newTurns(t, "timeouts: {half_close: 10s}")
		s.say(get("/") + get("/"))
		began := s.loop.Now()
		s.receiver.(loop.HalfCloser).OnEnd()
		if s.loop.RunTo(began + 5*time.Second); first {
			s.respond(response(2, ""))
		}
		if s.loop.RunTo(began + 11*time.Second); s.c.Closed == first {
			t.Errorf("the first response comes %t: closed %t after 11 s", first, s.c.Closed)
		}
		if s.loop.RunTo(began + 21*time.Second); !s.c.Closed {
			t.Errorf("the first response comes %t: the connection stays open", first)
		}
	}
	s := newTurns(t, "") // that has its response
	s.say(get("/"))
	s.respond(response(2, ""))
	s.c.Held = 1
	if stays := s.receiver.(loop.HalfCloser).OnEnd(); !stays || !s.c.Closed { // closed by Drain
		t.Errorf("with a byte unread: stays %t, drains %t", stays, s.c.Closed)
	}
}

// TestEndOfConnection: nothing is left of a connection that its client closes, whatever the session waits for.
func TestEndOfConnection(t *testing.T) {
	errLost := errors.New("lost")
	for name, says := range map[string]string{
		"a request":         "",
		"an empty line":     "\r\n",
		"a head":            "GET / HTTP/1.1\r\n",
		"a body":            "POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: 9\r\n\r\nabc",
		"a response":        get("/"),
		"responses":         get("/") + get("/") + "GET / HT",
		"a handoff":         get("/") + "CONNECT db:5432 HTTP/1.1\r\nHost: db:5432\r\n\r\nhello",
		"a tunnel":          connectCompute,
		"the next request":  connectCompute + get("/"),
		"a 100 Continue":    get("/") + "POST / HTTP/1.1\r\nHost: compute\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n",
		"a refusal's end":   "nonsense\r\n\r\n",
		"a refusal behind":  get("/") + "nonsense\r\n\r\n",
		"too many requests": strings.Repeat(get("/"), 40),
	} {
		s := newTurns(t, "timeouts: {idle: 1h}")
		s.loop.RunTo(s.loop.Now() + 2*time.Second) // what the start of a process needs
		before := s.loop.Timers()
		s.say(says)
		s.c.Closed = true
		s.receiver.OnClose(errLost)
		for _, p := range s.apps { // the application does what it wants
			p.Conn.(*proxytest.NullConn).Peer.Lose()
		}
		s.loop.RunTo(s.loop.Now() + time.Minute) // a timer of the free list fires once more
		if pending, held := s.p.Pending(), s.p.Held(); pending != 0 || held != 0 {
			t.Errorf("%s: %d requests, %d bytes are left", name, pending, held)
		}
		if after := s.loop.Timers(); after > before {
			t.Errorf("%s: %d timers, %d before", name, after, before)
		}
	}
}

// TestEndOfSlowReader: nothing is left of a connection that closes while its client reads slowly, and the room that it gets then begins no request.
func TestEndOfSlowReader(t *testing.T) {
	s := newTurns(t, "")
	s.say(get("/") + get("/"))
	s.c.Held = unreadBound + 1
	if s.respond(response(2, "")); s.p.Held() < unreadBound || s.c.Room == nil {
		t.Errorf("%d bytes are held, waits for room %t", s.p.Held(), s.c.Room != nil)
	}
	s.c.Closed = true
	s.receiver.OnClose(nil)
	s.c.Room.Do()
	s.m.Net.Pump()
	if s.p.Held() != 0 || s.served() != 1 {
		t.Errorf("%d bytes are held, %d requests are served", s.p.Held(), s.served())
	}
}

// TestHeldInput: an empty line behind a request takes no memory. A whole request, and its body, take it once.
func TestHeldInput(t *testing.T) {
	for blank, holds := range map[string]bool{"\r": false, "\r\n": false, "G": true, "\r\nG": true} {
		s := newTurns(t, "")
		if s.say(blank); s.p.Held() > 0 != holds {
			t.Errorf("%q: %d bytes are held", blank, s.p.Held())
		}
	}
	held := func(n int) int {
		s := newTurns(t, "")
		s.say(fmt.Sprintf("POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: %05d\r\n\r\n%s", n, strings.Repeat("x", n)))
		return int(s.p.Held())
	}
	least := held(10)
	if more := held(300); more != least+290 {
		t.Errorf("%d bytes are held of a body of 300 bytes, %d of one of 10", more, least)
	}
	if long := held(40_000); long > 2*40_000 {
		t.Errorf("%d bytes are held of a body of 40000", long)
	}
}
