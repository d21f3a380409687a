package http2_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

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
	var fields int
	a.onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
		nonce := slices.Clone(protocol.Find(c.Request.Headers, "x-nonce"))
		res := &protocol.Response{Status: 200, DeclaredLength: -1, Body: append([]byte("nonce="), nonce...)}
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
	m.Consumer.Proc.Charge(-1 << 30)
	fields = 16
	call(200)
	if len(a.conns) != 1 {
		t.Errorf("%d connections", len(a.conns))
	}
	m.Settled()
}
