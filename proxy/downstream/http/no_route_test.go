package http_test

import (
	"strings"
	"testing"

	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestNoRoute checks that a 404 names the host that no route has, and how much of it.
func TestNoRoute(t *testing.T) {
	long := strings.Repeat("a", 256)
	for _, c := range []struct{ request, want string }{
		{"GET /x HTTP/1.1\r\nHost: 127.0.0.1:15001\r\n\r\n", `, whose host is "127.0.0.1:15001"`},
		{"GET http://other/x HTTP/1.1\r\nHost: ignored\r\n\r\n", `, whose host is "other"`},
		{"GET /x HTTP/1.1\r\nHost: " + long + "\r\n\r\n", `, whose host is "` + long + `"`},
		{"GET /x HTTP/1.1\r\nHost: " + long + "b\r\n\r\n", `, whose host begins with "` + long + `"`},
		{"GET /x HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", `, whose host is "[::1]:80"`},
		{"GET /x HTTP/1.1\r\nHost: \r\n\r\n", `, which names no host`},
		{"GET /x HTTP/1.0\r\n\r\n", `, which names no host`},
	} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Match: "match: {host: compute}"})
		p := m.DialAndSend(proxytest.Egress, c.request)
		m.RunUntil("a response", func() bool { return strings.HasSuffix(string(p.Heard), "\n") })
		resp, _, _ := proxytest.DecodeHead(t, p.Heard)
		proxytest.Equal(t, "status", resp.Status, 404)
		_, body, _ := strings.Cut(string(p.Heard), "\r\n\r\n")
		proxytest.Equal(t, "body", body, "no route matches this request"+c.want+"\n")
	}
}
