package http2_test

import (
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/registry"
)

const get = "\x82\x86\x84\x41\x07compute" // a header block, and that of a POST
const post = "\x83\x86\x84\x41\x07compute"

// turns is a client of a sidecar on the null driver: the test ends the turns of the loop.
type turns struct {
	m        *proxytest.AllocMesh
	p        *proxy.Process
	loop     *proxytest.NullLoop
	c        *proxytest.NullConn // the sidecar's end
	receiver loop.Receiver       // of c
	streams  proxytest.Carrier
	apps     []*proxytest.Peer // the connections to the application
	next     byte              // stream
}

// knownConn is the sidecar's end of a connection whose receiver the test knows.
type knownConn struct {
	*proxytest.NullConn
	of *turns
}

func (c knownConn) SetReceiver(r loop.Receiver) {
	c.of.receiver = r
	c.NullConn.SetReceiver(r)
}

func newTurns(t *testing.T) *turns {
	const app = "10.0.0.1:8080"
	s := &turns{m: proxytest.NewAllocMesh(t, proxytest.AllocMeshOptions{Hops: 1}), next: 1}
	p, accept := s.m.Sidecar(`
listeners: [{name: egress, address: "127.0.0.1:1", protocol: http}]
routes: [{match: {host: compute}, service: compute}]
services: {compute: {discover: static, endpoints: ["192.0.2.9:1"], protocol: http, timeout: 1h}}
timeouts: {body: 30s, idle: 1h, half_close: 5s}
limits: {headers: 600}`)
	p.Update(registry.NewSnapshot("compute", registry.SourceLive, time.Time{}, []registry.Endpoint{{Addr: app, Weight: 1}}))
	appLoop := s.m.Net.Loop()
	s.m.Net.Accept[app] = func() (*proxytest.NullLoop, loop.Receiver) {
		peer := &proxytest.Peer{}
		s.apps = append(s.apps, peer)
		return appLoop, peer
	}
	l, session := accept()
	s.c, _ = s.m.Net.Connect(l, session, nil, nil)
	session.OnOpen(knownConn{s.c, s})
	s.p, s.loop, s.m.Clients = p, l, []*proxytest.NullConn{s.c}
	s.m.Greet()
	s.m.Net.Pump()
	s.c.Out = nil
	return s
}

// begin sends the head of a request.
func (s *turns) begin(block string, flags byte) {
	f := proxytest.Frame(proxytest.FrameHeaders, flags|proxytest.FlagEndHeaders, block)
	f[8], s.next = s.next, s.next+2
	s.c.Deliver(f)
	s.m.Net.Pump()
	s.c.Out = nil
}

// respond delivers bytes of the application to the sidecar.
func (s *turns) respond(says string) { s.apps[0].Conn.(*proxytest.NullConn).Peer.Deliver([]byte(says)) }

func (s *turns) ping() { s.c.Deliver(proxytest.Frame(6, 0, "12345678")) }

// runTo moves the clock of the loop. It returns how many bytes the client got before the end of the turns.
func (s *turns) runTo(at time.Duration) (early int) {
	s.loop.Defer(&loop.Flush{Do: func() { early = len(s.c.Out) }})
	s.loop.RunTo(at)
	return early
}

// TestWritesOfTurn: what concerns the only request of a connection, or none, goes to the client at once. What concerns one of several
// requests goes with all that the turn brings.
func TestWritesOfTurn(t *testing.T) {
	const ok, early = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"
	for name, c := range map[string]struct {
		requests int
		event    func(s *turns)
		atOnce   bool
	}{
		"a PING without a request":            {0, (*turns).ping, true},
		"a PING beside a request":             {1, (*turns).ping, false},
		"the only response":                   {1, func(s *turns) { s.respond(ok) }, true},
		"one of two responses":                {2, func(s *turns) { s.respond(ok) }, false},
		"an interim response":                 {1, func(s *turns) { s.respond(early) }, true},
		"an interim response of two requests": {2, func(s *turns) { s.respond(early) }, false},
		"that the client is not accepted":     {1, func(s *turns) { s.receiver.(loop.Verified).OnUntrusted() }, false},
	} {
		s := newTurns(t)
		for range c.requests {
			s.begin(get, proxytest.FlagEnd)
		}
		c.event(s)
		if atOnce := len(s.c.Out) > 0; atOnce != c.atOnce {
			t.Errorf("%s: at once %t", name, atOnce)
		}
		if s.loop.EndTurn(); len(s.c.Out) == 0 {
			t.Errorf("%s: nothing is written", name)
		}
	}
}

// TestWritesOfTimers: requests that time out together get their responses together, as soon as their time is over. The only one does not
// wait for the end of the turn.
func TestWritesOfTimers(t *testing.T) {
	for requests := range 3 {
		s := newTurns(t)
		for range requests {
			s.begin(post, 0)
		}
		began, writes := s.loop.Now(), s.c.Writes
		if s.runTo(began + 30*time.Second - time.Millisecond); len(s.c.Out) > 0 {
			t.Errorf("%d requests: a response before the time", requests)
		}
		early := s.runTo(began + 30*time.Second + time.Millisecond)
		if early > 0 != (requests == 1) || s.c.Writes-writes != min(1, requests) || strings.Count(string(s.c.Out), "body-timeout") != requests {
			t.Errorf("%d requests: %d bytes early, %d writes, %q", requests, early, s.c.Writes-writes, s.c.Out)
		}
	}
}

// TestKeepalive: a client that is silent while it waits for a response gets a PING, with the other frames of the turn. If nothing is
// heard until the next one is due, the connection and its requests end at once.
func TestKeepalive(t *testing.T) {
	for _, hears := range []bool{true, false} {
		s := newTurns(t)
		s.begin(get, proxytest.FlagEnd)
		began := s.loop.Now()
		s.runTo(began + 99*time.Second)
		if len(s.c.Out) != 0 {
			t.Errorf("%q after 99 s", s.c.Out)
		}
		if early := s.runTo(began + 101*time.Second); early > 0 || len(s.c.Out) != proxytest.FrameHead+8 || s.c.Out[3] != 6 {
			t.Errorf("%d bytes early, %q", early, s.c.Out)
		}
		if hears {
			s.ping()
		}
		s.runTo(began + 149*time.Second)
		if s.c.Closed || s.p.Held() == 0 {
			t.Errorf("closed %t, %d bytes are held", s.c.Closed, s.p.Held())
		}
		s.runTo(began + 151*time.Second)
		if s.c.Closed == hears || s.p.Held() > 0 != hears {
			t.Errorf("a client that is heard %t: closed %t, %d bytes are held", hears, s.c.Closed, s.p.Held())
		}
	}
}

// TestSilentHalfClose: a connection whose client has ended its side, and whose response does not come in timeouts.half_close, ends at once with
// its request.
func TestSilentHalfClose(t *testing.T) {
	s := newTurns(t)
	s.begin(get, proxytest.FlagEnd)
	began := s.loop.Now()
	if stays := s.receiver.(loop.HalfCloser).OnEnd(); !stays {
		t.Error("the connection ends with a request in flight")
	}
	s.runTo(began + 4*time.Second)
	if s.c.Closed || s.p.Held() == 0 {
		t.Errorf("closed %t, %d bytes are held", s.c.Closed, s.p.Held())
	}
	s.runTo(began + 6*time.Second)
	if !s.c.Closed || s.p.Held() != 0 {
		t.Errorf("closed %t, %d bytes are held behind the time", s.c.Closed, s.p.Held())
	}
}

// TestPieceOfStream: what the goroutine of a stream writes goes to the client at once, also beside other requests.
func TestPieceOfStream(t *testing.T) {
	s := newTurns(t)
	s.p.SetStreams(&s.streams)
	s.begin(post, 0)
	s.begin(get, proxytest.FlagEnd)
	s.runTo(s.loop.Now() + time.Second)
	if len(s.streams.Sockets) != 1 || len(s.c.Out) != 0 {
		t.Fatalf("%d streams, %q", len(s.streams.Sockets), s.c.Out)
	}
	_, _ = s.streams.Sockets[0].Write([]byte("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"))
	early := 0
	s.loop.Defer(&loop.Flush{Do: func() { early = len(s.c.Out) }})
	if s.loop.EndTurn(); early == 0 || early != len(s.c.Out) {
		t.Errorf("%d bytes come at once, of %d", early, len(s.c.Out))
	}
}

// TestOutputWaits: frames wait while the client has left more than mux.MaxOutbound bytes unread, and go on once it has room.
func TestOutputWaits(t *testing.T) {
	for unread, waits := range map[int]bool{mux.MaxOutbound: false, mux.MaxOutbound + 1: true} {
		s := newTurns(t)
		s.c.Held = unread
		s.ping()
		s.loop.EndTurn()
		if len(s.c.Out) == 0 != waits || s.c.Room != nil != waits {
			t.Fatalf("%d bytes unread: %d bytes are written, awaits room %t", unread, len(s.c.Out), s.c.Room != nil)
		}
		if !waits {
			continue
		}
		s.c.Held = s.c.Left
		if s.c.Room.Do(); s.c.Left != mux.MaxOutbound || len(s.c.Out) == 0 {
			t.Errorf("with %d bytes unread %d bytes are written", s.c.Left, len(s.c.Out))
		}
	}
}
