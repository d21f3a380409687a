package http2_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// neverIndexed returns the headers that are never indexed and begin with x-, as text.
func neverIndexed(hs []protocol.Header) string {
	var found []string
	for _, h := range hs {
		if h.NeverIndexed && strings.HasPrefix(string(h.Name), "x-") {
			found = append(found, h.String())
		}
	}
	return strings.Join(found, ", ")
}

// TestNeverIndexed: fields that a client or an application does not want to be indexed reach the other one like this, through one
// sidecar and through two.
func TestNeverIndexed(t *testing.T) {
	for _, oneHop := range []bool{true, false} {
		t.Run(fmt.Sprint("one hop ", oneHop), func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: oneHop, Speaks: "http2"})
			var got []string
			m.Apps[0].ServeHTTP2(func(c *proxytest.HTTP2Conn, st *http2.Stream) {
				got = append(got, fmt.Sprint(c.Request.NeverIndexed, " ", neverIndexed(c.Request.Headers)))
				res := &protocol.Response{Status: 200, DeclaredLength: -1, Headers: request("", "", 0, "x-open: 1", "x-answer: 2").Headers}
				res.Headers[1].NeverIndexed = true
				c.H2.Respond(st, res, nil)
			})
			client := dial(m, 0)
			for i := range 6 { // each value comes often enough to be indexed
				req := request("POST", "/a", 10, "x-open: 1", "x-token: 2", "accept: a/b")
				secret := i%2 == 1
				req.NeverIndexed, req.Headers[1].NeverIndexed, req.Headers[2].NeverIndexed = secret, secret, secret
				reply := client.send(req)
				client.await(reply)
				want := "false "
				if secret {
					want = "true x-token: 2"
				}
				if len(got) != i+1 || got[i] != want {
					t.Errorf("request %d: %q, want %q", i, got, want)
				}
				if s := neverIndexed(reply.Headers); s != "x-answer: 2" {
					t.Errorf("response %d: %q", i, s)
				}
			}
			m.Settled()
		})
	}
}
