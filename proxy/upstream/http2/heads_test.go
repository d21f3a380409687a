package http2_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestTablesCount: what connections remember of the heads of responses counts in limits.buffered, also while nothing is sent.
func TestTablesCount(t *testing.T) {
	const connections, size = 60, 3000
	m, apps := newMesh(t, 1, "timeout: 10s")
	a := apps[0]
	a.stop()
	var peers []*proxytest.Peer
	m.W.Net.Listen(a.of.Addr, a.of.Loop, func() loop.Receiver {
		peers = append(peers, &proxytest.Peer{Says: []byte(frame(frameSettings, 0, 0, "\x00\x03\x00\x00\x00\x01"))}) // one stream
		return peers[len(peers)-1]
	})
	calls := m.Burst(connections, 10)
	m.RunUntil("all connections", func() bool { return len(peers) == connections })
	m.W.Run(100 * time.Millisecond)
	head := "\x88" + "\x40\x01a\x7f\xb9\x16" + strings.Repeat("x", size) // status 200, and a field to remember
	a.of.Loop.Do(func() {
		for _, p := range peers {
			p.Conn.Write([]byte(frame(proxytest.FrameHeaders, proxytest.FlagEndHeaders|proxytest.FlagEnd, 1, head)))
		}
	})
	for _, call := range calls {
		call.Nonce = "" // and so is that of the response
	}
	m.OK(calls...)
	m.Settled()
	if n := m.Consumer.Proc.Buffered(); n < connections*size/2 { // a part is not counted at once
		t.Errorf("%d bytes are counted for fields of %d", n, connections*size)
	}
}

// TestResponseFieldsWithoutMemory: while memory is full, an endpoint's long heads and trailers are refused
// before they take memory. The connection goes on.
func TestResponseFieldsWithoutMemory(t *testing.T) {
	for name, add := range map[string]func(*protocol.Response, protocol.Header){
		"head":     func(res *protocol.Response, h protocol.Header) { res.Headers = append(res.Headers, h) },
		"trailers": func(res *protocol.Response, h protocol.Header) { res.Trailers = append(res.Trailers, h) },
	} {
		t.Run(name, func(t *testing.T) { testFieldsWithoutMemory(t, add) })
	}
}

func testFieldsWithoutMemory(t *testing.T, add func(*protocol.Response, protocol.Header)) {
	m, apps := newMesh(t, 1, "")
	a := apps[0]
	long := protocol.Header{Name: []byte("a"), Value: []byte(strings.Repeat("x", 3900))}
	var fields, body int
	a.onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
		nonce := slices.Clone(protocol.Find(c.Request.Headers, "x-nonce"))
		res := &protocol.Response{Status: 200, DeclaredLength: -1, Body: make([]byte, body)}
		res.Headers = append(res.Headers, protocol.Header{Name: []byte("x-nonce"), Value: nonce})
		for range fields {
			add(res, long)
		}
		c.H2.Respond(st, res, nil)
	}
	call := func(status int) {
		t.Helper()
		c := m.Post(10)
		m.Do(c)
		if m.Finish(c); c.Status != status {
			t.Errorf("%d %s, want %d", c.Status, c.Code, status)
		}
	}
	fields = 16
	call(200)
	m.Consumer.Proc.Charge(1 << 30)
	call(503)
	fields = 1 // what shedding would leave
	call(200)
	body = 20_000 // whose buffer has room for them
	call(200)
	m.Consumer.Proc.Charge(-1 << 30)
	fields = 16
	call(200)
	if len(a.conns) != 1 {
		t.Errorf("%d connections", len(a.conns))
	}
	m.Settled()
}

// TestLostWithinHead: the memory of a head that has not arrived whole is free for others once its connection is lost.
func TestLostWithinHead(t *testing.T) {
	const size = 15_000
	m, apps := newMesh(t, 1, "timeout: 10s, retry: {on: []}")
	a := apps[0]
	a.stop()
	p := &proxytest.Peer{Says: []byte(settings)}
	m.W.Net.Listen(a.of.Addr, a.of.Loop, func() loop.Receiver { return p })
	call := m.Post(10)
	m.Do(call)
	m.W.Run(10 * time.Millisecond)
	part := "\x88" + "\x00\x01a\x7f\xe1\xd3\x03" + strings.Repeat("x", size) // status 200, and the beginning of a field of 60,000 bytes
	a.of.Loop.Do(func() {
		p.Conn.Write([]byte(frame(proxytest.FrameHeaders, 0, 1, part) + frame(frameContinuation, 0, 1, strings.Repeat("x", size))))
	})
	m.W.Run(10 * time.Millisecond)
	before := m.Consumer.Proc.Kept()
	m.W.Faults.Reset(p.Conn)
	m.Finish(call)
	if n := m.Consumer.Proc.Kept() - before; call.Code != "upstream-reset" || n < 2*size {
		t.Errorf("status %d %s, %d bytes more are free for others, want %d or more", call.Status, call.Code, n, 2*size)
	}
	m.Settled()
}

// TestTrailersBehindBody: if the trailers do not fit behind a body, both move to a larger buffer, and the one before is free for others.
func TestTrailersBehindBody(t *testing.T) {
	const small, large = 18 << 10, 36 << 10 // buffers
	m, apps := newMesh(t, 1, "")
	apps[0].onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
		respondWith(c, st, protocol.Response{Status: 200, DeclaredLength: -1, Body: make([]byte, small-1000),
			Trailers: []protocol.Header{field("a", strings.Repeat("x", 3000))}})
	}
	call := do(m)
	if m.OK(call); len(call.Body) != small-1000 || len(call.Trailers) != 1 || len(call.Trailers[0].Value) != 3000 {
		t.Errorf("%d bytes have arrived, and %d trailers", len(call.Body), len(call.Trailers))
	}
	if n := m.Consumer.Proc.Kept(); n != small+large {
		t.Errorf("%d bytes are free for others, want %d", n, small+large)
	}
	m.Settled()
}
