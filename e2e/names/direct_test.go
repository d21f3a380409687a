package names

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

// TestNamesDirect: no spelling of a name goes round its routes and rules to the host itself, by any way
// to a proxy. A host without rules may be reached directly. Nothing reaches the application that its
// rules refuse.
func TestNamesDirect(t *testing.T) {
	var reached atomic.Int32
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/secret" {
			reached.Add(1)
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s%s%s", r.Header.Get("X-Route"), r.Host, body, r.Trailer.Get("X-Sum"))
	}))
	defer app.Close()
	addr := app.Listener.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	egress := harness.FreeAddrs(t, 1)[0]
	harness.Start(t, fmt.Sprintf(`
timeouts: {detect: 1m}
listeners: [{name: egress, address: %q, protocol: http, unrouted: direct, direct: {allow: [127.0.0.0/8]}}]
routes:
  - {match: {host: localhost, path: /open}, service: app, request_headers: {set: {x-route: local}}, allow: {rules: [{path: [/open]}]}}
  - {match: {host: localhost, method: [DELETE]}, service: app, request_headers: {set: {x-route: local}}, allow: {rules: [{path: [/open]}]}}
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}`, egress, addr)).Ready()
	for _, name := range []string{"localhost", "LOCALHOST", "localhost.", "%6cocalhost", "localhost%2e"} {
		authority := name + ":" + port
		absolute := func(method, path string) string {
			return exchanged(t, harness.DialPlain(t, egress), method+" http://"+authority+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
		}
		within := func(first, method, path string) string {
			s, status := harness.ConnectTo(t, egress, authority, "")
			if status != 200 {
				return fmt.Sprint(status)
			}
			return exchanged(t, s, first+method+" "+path+" HTTP/1.1\r\nHost: "+authority+"\r\n\r\n")
		}
		for way, got := range map[string][2]string{
			"absolute-form":                        {absolute("GET", "/open"), "200 local " + authority},
			"absolute-form of another path":        {absolute("GET", "/secret"), "404"},
			"absolute-form of a refused path":      {absolute("DELETE", "/secret"), "403"},
			"a tunnel":                             {within("", "GET", "/open"), "200 local " + authority},
			"a tunnel, another path":               {within("", "GET", "/secret"), "404"},
			"a tunnel, a refused path":             {within("", "DELETE", "/secret"), "403"},
			"a tunnel, behind an empty line":       {within("\r\n", "DELETE", "/secret"), "403"},
			"a tunnel, behind several of them":     {within("\r\n\r\n\r\n", "DELETE", "/secret"), "400"},
			"a tunnel, behind a line feed":         {within("\n", "DELETE", "/secret"), "400"},
			"a tunnel, behind what is no HTTP":     {within("\x00\r\n", "DELETE", "/secret"), "EOF"},
			"a tunnel, behind what looks like TLS": {within("\x16\x03\x01\x02\x00\x01", "DELETE", "/secret"), "malformed"},
			"a tunnel, behind the start of TLS":    {within("\x16\x03\x01", "DELETE", "/secret"), "EOF"},
			"a WebSocket":                          {exchanged(t, harness.DialPlain(t, egress), "GET http://"+authority+"/secret HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n"), "404"},
		} {
			if got[0] != got[1] && !(got[1] == "EOF" && strings.Contains(got[0], "EOF")) && !(got[1] == "malformed" && strings.Contains(got[0], "malformed")) {
				t.Errorf("%s by %s: %q, want %q", name, way, got[0], got[1])
			}
		}
	}
	for _, authority := range []string{addr, "127.0.0.1.:" + port, "[::ffff:127.0.0.1]:" + port, "[::FFFF:7f00:1]:" + port} {
		for says, want := range map[string]string{
			"DELETE /secret HTTP/1.1\r\nHost: localhost\r\n\r\n":                           "403",
			"\r\nDELETE /secret HTTP/1.1\r\nHost: LOCALHOST.\r\n\r\n":                      "403",
			"DELETE http://localhost/secret HTTP/1.1\r\nHost: x\r\n\r\n":                   "403",
			"GET /secret HTTP/1.1\r\nHost: localhost:" + port + "\r\n\r\n":                 "404",
			"GET  /secret HTTP/1.1\r\nHost: localhost\r\n\r\n":                             "400",
			strings.Repeat("\r\n", 33) + "GET /secret HTTP/1.1\r\nHost: localhost\r\n\r\n": "400",
			"GET /free HTTP/1.1\r\nHost: other\r\n\r\n":                                    "200  other",
			"POST /free HTTP/1.1\r\nHost: other\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nb\r\n0\r\nX-Sum: 1\r\n\r\n": "200  otherb1",
			"POST /free HTTP/1.1\r\nHost: other\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n":                                                                                "200  other",
		} {
			s, status := harness.ConnectTo(t, egress, authority, "")
			if status != 200 {
				t.Fatalf("CONNECT %s: %d", authority, status)
			}
			if got := exchanged(t, s, says); got != want {
				t.Errorf("%q within a tunnel to %s: %q, want %q", says, authority, got, want)
			}
		}
	}
	if n := reached.Load(); n > 0 {
		t.Errorf("%d requests have gone round the rules", n)
	}
	for _, authority := range []string{addr, "127.0.0.1.:" + port, "[::ffff:127.0.0.1]:" + port, "[::FFFF:7f00:1]:" + port} {
		got := exchanged(t, harness.DialPlain(t, egress), "GET http://"+authority+"/free HTTP/1.1\r\nHost: x\r\n\r\n")
		if want := "200  " + authority; got != want {
			t.Errorf("%s: %q, want %q", authority, got, want)
		}
	}
}
