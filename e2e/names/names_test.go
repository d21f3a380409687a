package names

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/e2e/harness/h2"
	"github.com/remora-proxy/remora/internal/must"
)

// spellings are names as clients may write them, and the route that has to take each.
var spellings = []struct{ authority, route string }{
	{"admin.test", "admin"},
	{"ADMIN.Test", "admin"},
	{"admin.test:80", "admin"},
	{"admin.test:443", "admin"},
	{"admin.test:8080", "admin"},
	{"admin.test.", "admin"},
	{"admin.test.:80", "admin"},
	{"Admin.Test.:8080", "admin"},
	{"%61dmin.test", "admin"},
	{"admin%2Etest%2e", "admin"},
	{"admin.test..", "other"}, // no name
	{"x-admin.test", "other"},
	{"a.shop.test", "shop"},
	{"A.SHOP.TEST.:80", "shop"},
	{"a.b.shop.test.", "shop"},
	{"shop.test.", "other"},
	{"[::1]", "six"},
	{"[::1]:80", "six"},
	{"[0:0:0:0:0:0:0:1]:80", "six"},
	{"[0000::1]", "six"},
	{"[2001:db8::a]", "other"},
	{"127.0.0.1", "four"},
	{"127.0.0.1.", "four"},
	{"[::ffff:127.0.0.1]", "four"},
	{"[::FFFF:7F00:1]:80", "four"},
	{"127.0.0.2", "other"},
}

// nameApp says the route that a request has taken, and its Host.
func nameApp(t *testing.T) string {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s", r.Header.Get("X-Route"), r.Host)
	}))
	t.Cleanup(app.Close)
	return app.Listener.Addr().String()
}

// namesVia are the ways by which a name comes to a sidecar.
var namesVia = map[string]func(t *testing.T, egress, authority, path string) string{
	"origin-form": func(t *testing.T, egress, authority, path string) string {
		return exchanged(t, harness.DialPlain(t, egress), "GET "+path+" HTTP/1.1\r\nHost: "+authority+"\r\n\r\n")
	},
	"absolute-form": func(t *testing.T, egress, authority, path string) string {
		return exchanged(t, harness.DialPlain(t, egress), "GET http://"+authority+path+" HTTP/1.1\r\nHost: else\r\n\r\n")
	},
	"a tunnel": func(t *testing.T, egress, authority, path string) string {
		target := authority
		if i := strings.LastIndexByte(authority, ':'); i < strings.LastIndexByte(authority, ']') || i < 0 {
			target += ":80"
		}
		s, status := harness.ConnectTo(t, egress, target, "")
		if status != 200 {
			return fmt.Sprint(status)
		}
		return exchanged(t, s, "GET "+path+" HTTP/1.1\r\nHost: "+authority+"\r\n\r\n")
	},
	"HTTP/2": func(t *testing.T, egress, authority, path string) string {
		return exchangedHTTP2(t, egress, ":method", "GET", ":scheme", "http", ":path", path, ":authority", authority)
	},
}

// exchanged sends a request and returns the status, and the body of a 200.
func exchanged(t *testing.T, s *harness.PlainSocket, request string) string {
	t.Helper()
	s.Say("", []byte(request)...)
	resp, err := http.ReadResponse(s.In, nil)
	if err != nil {
		return err.Error()
	}
	return harness.StatusAndBody(resp.StatusCode, resp.Body)
}

func exchangedHTTP2(t *testing.T, egress string, fields ...string) string {
	t.Helper()
	nc := must.Dial(t, "tcp", egress)
	defer nc.Close()
	p := h2.NewPeer(nc)
	go p.Listen()
	p.Send(h2.Hello(), h2.Heads(1, h2.EndStream, h2.Block(fields...)))
	if err := p.Until("the response", func(h *h2.Heard) bool { return h.Stream(1).Ended || h.Stream(1).Reset }); err != nil {
		t.Fatal(err)
	}
	p.Mu.Lock()
	defer p.Mu.Unlock()
	s := p.Heard.Stream(1)
	if s.Reset {
		return "reset " + s.Code.String()
	}
	if status := s.Field(":status"); status != "200" {
		return status
	}
	return "200 " + string(s.Body)
}

// TestNames: a name takes its route and meets its rules however it is spelled, over each protocol, with
// one sidecar and with two, and the application gets it as it came.
func TestNames(t *testing.T) {
	app, ingress := nameApp(t), harness.FreeAddrs(t, 1)[0]
	harness.Start(t, fmt.Sprintf(`
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}`, ingress, app)).Ready()
	for sidecars, endpoint := range map[int]string{1: fmt.Sprintf("%q], protocol: http", app), 2: fmt.Sprintf("%q], protocol: link", ingress)} {
		egress := harness.FreeAddrs(t, 1)[0]
		harness.Start(t, fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http}]
routes:
  - {match: {host: Admin.test}, service: app, request_headers: {set: {x-route: admin}}, allow: {rules: [{path: [/open]}]}}
  - {match: {host: "*.shop.test."}, service: app, request_headers: {set: {x-route: shop}}}
  - {match: {host: "[::0:1]"}, service: app, request_headers: {set: {x-route: six}}}
  - {match: {host: 127.0.0.1.}, service: app, request_headers: {set: {x-route: four}}}
  - {service: app, request_headers: {set: {x-route: other}}}
services: {app: {discover: static, endpoints: [%s, connect_timeout: 15s, timeout: 2m}}`, egress, endpoint)).Ready()
		for way, ask := range namesVia {
			for _, c := range spellings {
				if got, want := ask(t, egress, c.authority, "/open"), "200 "+c.route+" "+c.authority; got != want {
					t.Errorf("%d sidecars, %s, %s: %q, want %q", sidecars, way, c.authority, got, want)
				}
				if got := ask(t, egress, c.authority, "/secret"); c.route == "admin" && got != "403" {
					t.Errorf("%d sidecars, %s, %s/secret: %q, want 403", sidecars, way, c.authority, got)
				}
			}
		}
	}
}

// TestNamesWithoutRoute: only names that no route has get 404. A name without a host has none.
func TestNamesWithoutRoute(t *testing.T) {
	app, egress := nameApp(t), harness.FreeAddrs(t, 1)[0]
	harness.Start(t, fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http}]
routes:
  - {match: {host: admin.test}, service: app, request_headers: {set: {x-route: admin}}}
  - {match: {host: "*.shop.test"}, service: app, request_headers: {set: {x-route: shop}}}
  - {match: {host: "[::1]"}, service: app, request_headers: {set: {x-route: six}}}
  - {match: {host: 127.0.0.1}, service: app, request_headers: {set: {x-route: four}}}
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}`, egress, app)).Ready()
	for way, ask := range namesVia {
		for _, c := range spellings {
			want := "200 " + c.route + " " + c.authority
			if c.route == "other" {
				want = "404"
			}
			if got := ask(t, egress, c.authority, "/"); got != want {
				t.Errorf("%s, %s: %q, want %q", way, c.authority, got, want)
			}
		}
	}
	for request, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: \r\n\r\n":                            "404",
		"GET / HTTP/1.0\r\n\r\n":                                      "404",
		"GET / HTTP/1.1\r\nHost: .\r\n\r\n":                           "404",
		"GET / HTTP/1.1\r\nHost: [fe80::1%25eth0]\r\n\r\n":            "400", // a zone means something only on this host
		"GET http:///x HTTP/1.1\r\nHost: admin.test\r\n\r\n":          "400",
		"GET http://:80/x HTTP/1.1\r\nHost: admin.test\r\n\r\n":       "400",
		"GET https://admin.test/ HTTP/1.1\r\nHost: a\r\n\r\n":         "400", // the connection is not secured
		"GET http://admin.test./ HTTP/1.1\r\nHost: shop.test\r\n\r\n": "200 admin admin.test.",
	} {
		if got := exchanged(t, harness.DialPlain(t, egress), request); got != want {
			t.Errorf("%q: %q, want %q", request, got, want)
		}
	}
}

// TestAuthorityAndHost: over HTTP/2 both fields may name one host in two ways, and not two hosts. The
// scheme decides nothing else.
func TestAuthorityAndHost(t *testing.T) {
	app, egress := nameApp(t), harness.FreeAddrs(t, 1)[0]
	harness.Start(t, fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{match: {host: admin.test}, service: app, request_headers: {set: {x-route: admin}}}]
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}`, egress, app)).Ready()
	for _, c := range []struct{ scheme, authority, host, want string }{
		{"http", "admin.test", "", "200 admin admin.test"},
		{"https", "admin.test", "", "200 admin admin.test"},
		{"http", "", "admin.test.", "200 admin admin.test."},
		{"http", "admin.test", "ADMIN.test", "200 admin admin.test"},
		{"http", "admin.test", "admin.test.", "200 admin admin.test"},
		{"http", "admin.test:80", "admin.test", "200 admin admin.test:80"},
		{"https", "admin.test", "admin.test:443", "200 admin admin.test"},
		{"http", "admin.test", "admin.test:443", "reset PROTOCOL_ERROR"},
		{"https", "admin.test", "admin.test:80", "reset PROTOCOL_ERROR"},
		{"http", "admin.test", "other.test", "reset PROTOCOL_ERROR"},
		{"http", "admin.test", "admin.test..", "reset PROTOCOL_ERROR"},
	} {
		fields := []string{":method", "GET", ":scheme", c.scheme, ":path", "/"}
		if c.authority != "" {
			fields = append(fields, ":authority", c.authority)
		}
		if c.host != "" {
			fields = append(fields, "host", c.host)
		}
		if got := exchangedHTTP2(t, egress, fields...); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestNamesInCache: a stored response is for requests whose Host is spelled the same, but for case, since
// the application sees it and may respond otherwise to another spelling. What a request changes is
// invalid under every spelling.
func TestNamesInCache(t *testing.T) {
	var n atomic.Int32
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%d for %s", n.Add(1), r.Host)
	}))
	defer app.Close()
	egress := harness.FreeAddrs(t, 1)[0]
	harness.Start(t, fmt.Sprintf(`
loops: 1
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{match: {host: a.test}, service: app, cache: {ttl: 1h}}]
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}`, egress, app.Listener.Addr())).Ready()
	ask := func(method, authority, target string) string {
		return exchanged(t, harness.DialPlain(t, egress), method+" "+target+" HTTP/1.1\r\nHost: "+authority+"\r\n\r\n")
	}
	for _, c := range []struct{ method, authority, target, want string }{
		{"GET", "a.test", "/", "200 1 for a.test"},
		{"GET", "A.test", "/", "200 1 for a.test"},
		{"GET", "else", "http://a.test/", "200 1 for a.test"},
		{"GET", "a.test.", "/", "200 2 for a.test."},
		{"GET", "A.TEST.", "/", "200 2 for a.test."},
		{"GET", "a.test:80", "/", "200 3 for a.test:80"},
		{"GET", "a.test:8080", "/", "200 4 for a.test:8080"},
		{"GET", "a.test", "/", "200 1 for a.test"},
		{"DELETE", "a.test.:80", "/", "200 5 for a.test.:80"}, // all but the other port
		{"GET", "a.test", "/", "200 6 for a.test"},
		{"GET", "a.test.", "/", "200 7 for a.test."},
		{"GET", "a.test:80", "/", "200 8 for a.test:80"},
		{"GET", "a.test:8080", "/", "200 4 for a.test:8080"},
	} {
		if got := ask(c.method, c.authority, c.target); got != c.want {
			t.Errorf("%s %s at %s: %q, want %q", c.method, c.target, c.authority, got, c.want)
		}
	}
}
