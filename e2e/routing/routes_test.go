package routing

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
)

// newHeaderServer starts a server that responds with the host, the target and the headers that
// it got, one to a line, and with a long line after them if the query asks for it. It switches
// protocols if a request does.
func newHeaderServer(t *testing.T) *httptest.Server {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		lines := []string{"target: " + r.Host + r.URL.RequestURI()}
		for name, values := range r.Header {
			for _, v := range values {
				lines = append(lines, strings.ToLower(name)+": "+v)
			}
		}
		slices.Sort(lines)
		w.Header().Set("X-Internal", "secret")
		w.Header().Set("Server", "app")
		if r.Header.Get("Upgrade") != "" {
			w.Header().Set("X-Got", strings.Join(lines, "|"))
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "websocket")
			w.WriteHeader(http.StatusSwitchingProtocols)
			return
		}
		if r.URL.Query().Has("long") {
			lines = append(lines, strings.Repeat("x", 5<<20)) // above limits.message
		}
		_, _ = io.WriteString(w, strings.Join(lines, "\n"))
	}))
	t.Cleanup(srv.Close)
	return srv
}

const routingRoutes = `
- {match: {host: "*.old.svc"}, redirect: {host: "new.svc:8080", status: 308}}
- {match: {path: /v0/}, rewrite: {path: /v1/}, redirect: {scheme: https}}
- {match: {path: /gone}, respond: {status: 410, body: "gone\n", headers: {cache-control: no-store, x-by: "{listener} {path}"}}}
- {match: {regex: "/v[23]/.*", query: {beta: {not: "0"}}, header: {x-tier: {prefix: g}}}, service: beta}
- match: {path: /}
  service: app
  rewrite: {host: internal.example}
  request_headers:
    set: {x-forwarded-host: "{host}", x-tier: none}
    add: {x-seen: "{method} {path} {query} {service} {listener} {peer} {request_id}"}
    remove: [x-secret]
  response_headers: {set: {server: remora}, add: {x-path: "{path}"}, remove: [x-internal]}
`

// TestRouting: through two sidecars, real requests take the routes that their conditions say, are
// redirected or answered, and have their headers changed once: messages, streams and upgrades.
func TestRouting(t *testing.T) {
	server, beta := newHeaderServer(t), newHeaderServer(t)
	upstream, ingress := harness.Provider(t, &harness.App{Addr: server.Listener.Addr().String()})
	egress, log := harness.FreeAddrs(t, 1)[0], filepath.Join(t.TempDir(), "access")
	configuration := func(routes string) string {
		return fmt.Sprintf(`
loops: 1
limits: {message: 64KiB}
access_log: {path: %q}
listeners: [{name: egress, address: %q, protocol: http}]
routes: %s
services:
  app: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m}
  beta: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}`, log, egress, routes, ingress, beta.Listener.Addr())
	}
	p := harness.Start(t, configuration(routingRoutes))
	upstream.Ready()
	p.Ready()

	// send returns the status, the headers and the body of a response.
	send := func(method, host, target string, body int, headers ...string) (*http.Response, string) {
		t.Helper()
		nc := harness.Dial(t, "tcp", egress)
		defer nc.Close()
		head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nX-Request-Id: id1\r\n", method, target, host)
		if body > 0 {
			head += fmt.Sprintf("Content-Length: %d\r\n", body)
		}
		for _, h := range headers {
			head += h + "\r\n"
		}
		go func() { _, _ = io.WriteString(nc, head+"\r\n"+strings.Repeat("x", body)) }()
		resp, err := http.ReadResponse(bufio.NewReader(nc), &http.Request{Method: method})
		if err != nil {
			t.Fatalf("%s %s: %v", method, target, err)
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, resp.Header.Get("X-Got")
		}
		got, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatalf("%s %s: %v", method, target, err)
		}
		return resp, string(got)
	}

	for _, c := range []struct{ method, host, target, want string }{
		{"GET", "a.b.OLD.svc:80", "/x//y?z", "308 //new.svc:8080/x/y?z"},
		{"GET", "a:8080", "/x/../v0/u?z", "302 https://a/v1/u?z"},
		{"POST", "a:8080", "/v0/u", "302 https://a/v1/u"},
	} {
		for _, body := range []int{0, 200_000} {
			resp, text := send(c.method, c.host, c.target, body)
			if got := fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("Location")); got != c.want || text != "" {
				t.Errorf("%s %s%s with %d bytes: %s %q, want %s", c.method, c.host, c.target, body, got, text, c.want)
			}
			if resp.Header.Get("X-Remora-Error") != "" || resp.Header.Get("Via") != "" || resp.Header.Get("Date") == "" || resp.Header.Get("X-Request-Id") != "id1" {
				t.Errorf("%s: headers %v", c.target, resp.Header)
			}
		}
	}
	for _, method := range []string{"GET", "HEAD", "POST"} {
		body := map[string]int{"POST": 200_000}[method]
		resp, text := send(method, "h", "/gone?x", body)
		want := map[string]string{"HEAD": ""}
		if _, isHead := want[method]; !isHead {
			want[method] = "gone\n"
		}
		if resp.StatusCode != 410 || text != want[method] || resp.ContentLength != 5 || resp.Header.Get("X-By") != "egress /gone" || resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: status %d, %q, %d, %v", method, resp.StatusCode, text, resp.ContentLength, resp.Header)
		}
	}

	upgrade := []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13"}
	for _, c := range []struct {
		method, target string
		body           int
		headers        []string
	}{
		{"GET", "/v2/a?b=c", 0, nil}, {"POST", "/v2/a?b=c", 200_000, nil}, {"GET", "/v2/a?b=c", 0, upgrade},
		{"GET", "/v2/a?b=c&long", 0, nil}, {"POST", "/v2/a?b=c&long", 200_000, nil},
	} {
		resp, got := send(c.method, "web.svc:81", c.target, c.body, append(c.headers, "X-Secret: s", "X-Seen: before", "X-Tier: x")...)
		for _, want := range []string{
			"target: internal.example" + c.target, "x-forwarded-host: web.svc:81", "x-tier: none", "x-seen: before",
			"x-seen: " + c.method + " /v2/a " + strings.TrimPrefix(c.target, "/v2/a?") + " app egress 127.0.0.1 id1",
		} {
			if !slices.Contains(strings.FieldsFunc(got, func(r rune) bool { return r == '\n' || r == '|' }), want) {
				t.Errorf("%s %s with %d bytes: the application lacks %q of\n%.2000s", c.method, c.target, c.body, want, got)
			}
		}
		if strings.Contains(got, "x-secret") || strings.Contains(got, "x-tier: x") {
			t.Errorf("%s with %d bytes: the application got\n%s", c.method, c.body, got)
		}
		h := resp.Header
		if h.Get("Server") != "remora" || h.Get("X-Path") != "/v2/a" || len(h.Values("X-Path")) != 1 || h.Get("X-Internal") != "" {
			t.Errorf("%s with %d bytes: the client got %v", c.method, c.body, h)
		}
	}
	for target, want := range map[string]string{
		"/v2/a": "web.svc/v2/a", "/v3/a?beta=%31": "web.svc/v3/a?beta=%31", "/v3/a?beta=%30": "internal.example/v3/a?beta=%30", "/v4/a": "internal.example/v4/a",
	} {
		if _, got := send("GET", "web.svc", target, 0, "X-Tier: gold"); !strings.Contains(got, "target: "+want) {
			t.Errorf("%s: the application got\n%s", target, got)
		}
	}

	if redirects, answers := p.Metric(`remora_route_responses_total{kind="redirect"}`), p.Metric(`remora_route_responses_total{kind="respond"}`); redirects != 6 || answers != 3 {
		t.Errorf("%d redirects and %d responses are counted", redirects, answers)
	}
	p.Counts(`remora_requests_total{outcome="3xx",service="app"}`, 0)
	harness.AwaitLines(t, log, 18)
	text := must.ReadFile(t, log)
	var gone, rewritten bool
	for line := range strings.Lines(string(text)) {
		var l struct {
			Path, Authority, Service, Outcome string
			Status                            int
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		gone = gone || l.Path == "/gone?x" && l.Status == 410 && l.Service == "" && l.Outcome == "4xx"
		rewritten = rewritten || l.Path == "/v2/a?b=c" && l.Authority == "web.svc:81" && l.Service == "app"
	}
	if !gone || !rewritten {
		t.Errorf("the access log is\n%s", text)
	}

	p.Reload(configuration(`[{match: {path: /gone}, service: beta}, {respond: {status: 503, body: closed}}]`), "applied")
	if _, got := send("GET", "h", "/gone", 0); !strings.Contains(got, "target: h/gone") {
		t.Errorf("after a reload: %s", got)
	}
	if resp, got := send("GET", "h", "/", 0); resp.StatusCode != 503 || got != "closed" || resp.Header.Get("X-Remora-Error") != "" {
		t.Errorf("after a reload: %d %q", resp.StatusCode, got)
	}
	p.Reload(configuration(`[{match: {path: /gone}, respond: {status: 204}}, {service: app}]`), "applied")
	if resp, _ := send("GET", "h", "/gone", 0); resp.StatusCode != 204 {
		t.Errorf("after another reload: %d", resp.StatusCode)
	}
}
