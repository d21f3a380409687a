package http2_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestResponseHeadWithoutMemory: while memory is full, an endpoint's long heads are refused before they
// take memory. The connection goes on.
func TestResponseHeadWithoutMemory(t *testing.T) {
	m, apps := newMesh(t, 1, "")
	a := apps[0]
	long := protocol.Header{Name: []byte("a"), Value: []byte(strings.Repeat("x", 3900))}
	var heads int
	a.onCall = func(c *proxytest.HTTP2Conn, st *http2.Stream) {
		nonce := slices.Clone(protocol.Find(c.Request.Headers, "x-nonce"))
		res := &protocol.Response{Status: 200, DeclaredLength: -1, Body: append([]byte("nonce="), nonce...)}
		res.Headers = append(res.Headers, protocol.Header{Name: []byte("x-nonce"), Value: nonce})
		for range heads {
			res.Headers = append(res.Headers, long)
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
	heads = 16
	call(200)
	m.Consumer.Proc.Hold(1 << 30)
	call(503)
	heads = 1 // a head that shedding would leave
	call(200)
	m.Consumer.Proc.Hold(-1 << 30)
	heads = 16
	call(200)
	if len(a.conns) != 1 {
		t.Errorf("%d connections", len(a.conns))
	}
	m.Settled()
}
