package http_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// events is the beginning of a response that is a stream.
const events = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"

// TestStreamWaitsForReader: a response that is a stream counts as held while its client has not read all that came before. Then it leaves, and
// counts as one connection that left, and as no memory.
func TestStreamWaitsForReader(t *testing.T) {
	const first = 5000 // bytes of the stream
	s := newTurns(t, "")
	s.Say(get("/"))
	s.Apps[0].Conn.(*proxytest.NullConn).Peer.Socket = proxytest.PipeSocket{Pipe: &proxytest.Pipe{}}
	s.Conn.Held = 300
	s.Answer(events + strings.Repeat("y", first))
	if held := s.Proc.Held(); s.Detached != 0 || s.Conn.Room == nil || s.Conn.Left != 0 || held != first {
		t.Fatalf("%d connections have left, waits %t until %d bytes are left, %d bytes are held", s.Detached, s.Conn.Room != nil, s.Conn.Left, held)
	}
	s.Conn.Held = 0
	s.Conn.Room.Do()
	s.Mesh.Net.Pump()
	if held := s.Proc.Held(); held != 0 || s.Detached != 1 || len(s.Streams.Responses) != 1 {
		t.Errorf("%d connections have left, %d with a response, %d bytes are held", s.Detached, len(s.Streams.Responses), held)
	}
	if n := s.stats().Handoffs[stats.HandoffAnswer]; n != 1 {
		t.Errorf("%d responses are counted that left", n)
	}
}

// TestPassWaitsForReader: a connection that waits to go on to its original destination counts the memory of its input once, and no other memory.
func TestPassWaitsForReader(t *testing.T) {
	const more = 3000
	head := "GET / HTTP/1.1\r\nHost: other\r\n\r\n"
	s := newRedirectedTurns(t, "", netip.MustParseAddrPort(proxytest.OriginalDst))
	s.Say(get("/"))
	before := s.Proc.Held()
	s.Say(head + strings.Repeat("x", more))
	if got := s.Proc.Held() - before; got != int64(len(head)+more) {
		t.Errorf("%d bytes are held of %d", got, len(head)+more)
	}
	s.Answer(response(2, ""))
	if len(s.Streams.Passed) != 1 || s.Proc.Held() != 0 {
		t.Errorf("%d connections passed, %d bytes are held", len(s.Streams.Passed), s.Proc.Held())
	}
}

// TestSlowHeadThenHandoff: a connection whose last head came in two reads waits to leave the loop for as long as it takes: only the head has to be
// there in time.
func TestSlowHeadThenHandoff(t *testing.T) {
	elsewhere := netip.MustParseAddrPort(proxytest.OriginalDst)
	for name, c := range map[string]struct {
		to            netip.AddrPort
		before, first string
		then          string
	}{
		"a request":    {before: get("/"), first: "CONNECT db:5432 HTTP/1.1\r\n", then: "Host: db:5432\r\n\r\n"},
		"a connection": {to: elsewhere, before: get("/"), first: "GET / HTTP/1.1\r\n", then: "Host: other\r\n\r\n"},
		"a tunnel":     {before: connectCompute, first: "\x16\x03", then: "\x01\x02\x00\x01"},
	} {
		s := newRedirectedTurns(t, "timeouts: {header: 5s, detect: 5s}", c.to)
		s.Unread = true
		s.Say(c.before)
		s.Say(c.first)
		s.Say(c.then)
		if s.Loop.RunTo(s.Loop.Now() + 9*time.Second); s.Detached != 0 || s.Conn.Closed {
			t.Errorf("%s: left %d times, closed %t, received %q", name, s.Detached, s.Conn.Closed, s.Conn.Out)
			continue
		}
		if len(s.Apps) > 0 {
			s.Answer(response(2, ""))
		}
		if s.Conn.Room != nil {
			s.Conn.Held = 0
			s.Conn.Room.Do()
			s.Mesh.Net.Pump()
		}
		if len(s.Streams.Requests)+len(s.Streams.Passed) != 1 {
			t.Errorf("%s: %d requests, %d connections left; received %q", name, len(s.Streams.Requests), len(s.Streams.Passed), s.Conn.Out)
		}
	}
}

// TestTunnelOpensBehindResponse: what came behind a CONNECT is decoded once the CONNECT has its response, and takes as much memory then as what
// comes through an open tunnel.
func TestTunnelOpensBehindResponse(t *testing.T) {
	part := "POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: 9000\r\n\r\n" + strings.Repeat("x", 7000)
	held := func(early bool) int64 {
		s := newTurns(t, "routes: [{match: {host: compute}, service: compute}]")
		s.Say(get("/"))
		if early {
			s.Say(connectCompute + part)
			s.Answer(response(2, ""))
		} else {
			s.Answer(response(2, ""))
			s.Say(connectCompute)
			s.Say(part)
		}
		if !strings.HasSuffix(string(s.Conn.Out), downstream.Connected) {
			t.Errorf("early %t: received %q", early, s.Conn.Out)
		}
		return s.Proc.Held()
	}
	if early, late := held(true), held(false); early != late || late < 7000 {
		t.Errorf("%d bytes are held of a request that came with the CONNECT, %d of a later one", early, late)
	}
}

// TestFirstReadOverShare: while memory is short, a client whose first read alone is more than its share is refused at once.
func TestFirstReadOverShare(t *testing.T) {
	for size, refused := range map[int]bool{4000: false, 14_000: true} {
		s := newTurns(t, "limits: {message: 16KiB, buffered: 1MiB}")
		var others []loop.Receiver
		for range 31 { // the share of 32 connections is 8 KiB
			others = append(others, s.Receiver)
			s.Open()
		}
		s.Proc.Charge(2 << 20)
		s.Say(fmt.Sprintf("POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: 16000\r\n\r\n%s", strings.Repeat("x", size)))
		if got := strings.Contains(string(s.Conn.Out), "overloaded"); got != refused {
			t.Errorf("%d bytes: refused %t", size, got)
		}
		s.Proc.Charge(-2 << 20)
		for _, r := range others {
			r.OnClose(nil)
		}
	}
}

// TestLongestBody: a body of any length that can be counted leaves the loop as a stream.
func TestLongestBody(t *testing.T) {
	for length, leaves := range map[int64]bool{1 << 62: true, 1<<62 + 1: false} {
		s := newTurns(t, proxytest.SmallMessages)
		s.Say(fmt.Sprintf("POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: %d\r\n\r\nhello", length))
		if (len(s.Streams.Requests) == 1) != leaves || strings.Contains(string(s.Conn.Out), "message-too-large") == leaves {
			t.Errorf("%d bytes: %d requests left, received %q", length, len(s.Streams.Requests), s.Conn.Out)
		}
	}
}
