package link_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestForgedHeaders: of the sidecar's own headers a peer may send those that sidecars do. No other reaches the
// application, in any spelling, nor in a trailer.
func TestForgedHeaders(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	got := ""
	m.Apps[0].OnRequest = func(req *protocol.Request) {
		for _, list := range [][]protocol.Header{req.Headers, req.Trailers} {
			for _, h := range list {
				got += strings.ToLower(string(h.Name)) + " "
			}
		}
	}
	headers := func(names ...string) (hs []protocol.Header) {
		for _, name := range names {
			hs = append(hs, protocol.Header{Name: []byte(name), Value: []byte("1")})
		}
		return hs
	}
	w, p := m.DialLink()
	w.Request(1, &protocol.Request{
		Service: []byte("local"), Method: []byte("POST"), Path: []byte("/"), Authority: []byte("local"), Body: []byte("x"),
		Headers: headers("x-kept", "x-remora-attempt", "X-Remora-Class", "x_remora_class", "x-remora_error", "x-remora-idempotent", "x-remora-priority",
			"x-remora-mirror", "x-remora-new"),
		Trailers: headers("x-sum", "x-remora-class", "x_remora_class", "x-remora-mirror"),
	}, time.Minute, nil)
	m.Clients.Do(func() { p.Conn.Write(w.Append(nil, 1<<20)) })
	m.RunUntil("a response", func() bool { return m.Apps[0].Served == 1 })
	if want := "x-kept x-remora-mirror "; !strings.HasPrefix(got, want) || strings.Contains(got, "class") || strings.Contains(got, "x-remora-e") {
		t.Errorf("the application got %q", got)
	}
	m.Settled()
}

// TestForgedTrailers: none of the sidecar's own headers reaches an application as a trailer.
func TestForgedTrailers(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Speaks: "http2"})
	var got string
	m.Apps[0].ServeHTTP2(func(c *proxytest.HTTP2Conn, st *http2.Stream) {
		got = fmt.Sprint(c.Request.Trailers)
		c.H2.Respond(st, &protocol.Response{Status: 200, DeclaredLength: -1}, nil)
	})
	w, p := m.DialLink()
	w.Request(1, &protocol.Request{
		Service: []byte("local"), Method: []byte("POST"), Path: []byte("/"), Authority: []byte("local"), Body: []byte("x"),
		Trailers: []protocol.Header{
			{Name: []byte("x-sum"), Value: []byte("1")}, {Name: []byte("x-remora-class"), Value: []byte("1")},
			{Name: []byte("x_remora_class"), Value: []byte("1")},
		},
	}, time.Minute, nil)
	send(m, p, w)
	checkFrames(t, "the peer", p, "response 1 200")
	proxytest.Equal(t, "trailers", got, "[x-sum: 1]")
	m.Settled()
}
