package streams

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
)

// TestExpectRefused: a client that waits with its body gets the final response in place of 100 if the head decides
// that. The request is logged once.
func TestExpectRefused(t *testing.T) {
	holds, release := make(chan struct{}), make(chan struct{})
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			close(holds)
			<-release
			return
		}
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, r.Header["X-Forwarded-For"], r.Trailer)
	}))
	t.Cleanup(app.Close)
	addrs := harness.FreeAddrs(t, 3)
	log := filepath.Join(t.TempDir(), "access")
	service := fmt.Sprintf("{discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}", app.Listener.Addr())
	harness.Start(t, fmt.Sprintf(`
loops: 1
listeners: [{name: ingress, address: %q, protocol: link, service: app}]
services: {app: %s}`, addrs[0], service)).Ready()
	harness.Start(t, fmt.Sprintf(`
loops: 1
limits: {message: 64KiB}
access_log: {path: %q}
listeners:
- {name: routed, address: %q, protocol: http}
- {name: forwarding, address: %q, protocol: http, expect: forward}
routes:
- {match: {path: /denied}, service: app, allow: {rules: [{method: [GET]}]}}
- {match: {path: /gone}, respond: {status: 410}}
- {match: {path: /linked}, service: linked}
- {match: {path: /app}, service: app}
- {match: {path: /broken/saved}, service: broken, fallback: {respond: {status: 203}}}
- {match: {path: /broken}, service: broken}
- {match: {path: /held}, service: full}
services:
  broken: {discover: static, endpoints: ["127.0.0.1:1"], protocol: http, connect_timeout: 15s, breaker: {consecutive: 1, open: 1h}}
  full: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m, max_pending: 1}
  app: %s
  linked: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m}`,
		log, addrs[1], addrs[2], app.Listener.Addr(), service, addrs[0])).Ready()

	const ok = "100 200 2 [127.0.0.1] map[X-Real-Ip:[] X-Request-Id:[] X-Sum:[1]]"
	if r, err := http.Get("http://" + addrs[1] + "/broken"); err != nil || r.StatusCode != 502 { // opens the breaker
		t.Fatalf("%+v, %v", r, err)
	}
	held := must.Dial(t, "tcp", addrs[1])
	defer held.Close()
	defer close(release)
	_, _ = io.WriteString(held, "GET /held HTTP/1.1\r\nHost: a\r\n\r\n")
	<-holds
	requests := 1
	for _, c := range []struct{ name, addr, path, header, want string }{
		{"accepted", addrs[1], "/app", "", ok},
		{"accepted, to a sidecar", addrs[1], "/linked", "", ok},
		{"no route", addrs[1], "/none", "", "404"},
		{"not allowed", addrs[1], "/denied", "", "403"},
		{"a response of the route", addrs[1], "/gone", "", "410"},
		{"no time left", addrs[1], "/app", "X-Remora-Timeout-Ms: 0", "504"},
		{"a loop", addrs[1], "/app", "CDN-Loop: " + strings.Repeat("remora,", 9), "508"},
		{"an ambiguous path", addrs[1], "/app/%2f", "", "400"},
		{"a breaker that is open", addrs[1], "/broken", "", "503"},
		{"the same, with a fallback", addrs[1], "/broken/saved", "", "100"},
		{"max_pending", addrs[1], "/held", "", "503"},
		{"a breaker, forwarded", addrs[2], "/broken", "", "503"},
		{"no route, forwarded", addrs[2], "/none", "", "404"},
		{"not allowed, forwarded", addrs[2], "/denied", "", "403"},
		{"a response of the route, forwarded", addrs[2], "/gone", "", "410"},
	} {
		for _, version := range []string{"1.1", "2"} {
			requests++
			if got := waitWithBody(t, version, c.addr, c.path, c.header); got != c.want {
				t.Errorf("%s, HTTP/%s: got %s, want %s", c.name, version, got, c.want)
			}
		}
	}
	harness.AwaitLines(t, log, requests)
	if text, err := os.ReadFile(log); err != nil || strings.Count(string(text), "\n") != requests {
		t.Errorf("%d requests: %s, %v", requests, text, err)
	}

	nc := harness.Dial(t, "tcp", addrs[1])
	defer nc.Close()
	_, _ = io.WriteString(nc, "GET /app HTTP/1.1\r\nHost: a\r\n\r\n"+
		"POST /none HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 50\r\n\r\nGET /app HTTP/1.1\r\nHost: a\r\n\r\n")
	in := bufio.NewReader(nc)
	for _, want := range []int{200, 404} {
		r, err := http.ReadResponse(in, nil)
		if err != nil || r.StatusCode != want || r.Close != (want == 404) {
			t.Fatalf("%+v, %v, want %d", r, err, want)
		}
		_, _ = io.Copy(io.Discard, r.Body)
	}
	if rest, err := io.ReadAll(in); len(rest) > 0 || err != nil {
		t.Errorf("behind the last response: %q, %v", rest, err)
	}
}

// waitWithBody sends a request whose body waits for 100, and has trailers, some of which clients may not set. It returns
// the statuses, and the body of a 200.
func waitWithBody(t *testing.T, version, addr, path, header string) string {
	tr := harness.Transport(t, version)
	req := must.Request(t, "POST", "http://"+addr+path, io.MultiReader(strings.NewReader("ok")))
	req.Header.Set("Expect", "100-continue")
	req.Trailer = http.Header{"X-Request-Id": {"forged"}, "X-Real-Ip": {"forged"}, "X-Sum": {"1"}}
	if name, value, given := strings.Cut(header, ": "); given {
		req.Header.Set(name, value)
	}
	got := interimsOf(t, tr, req)
	got = strings.Replace(got, "100[]", "100", 1)
	if !strings.Contains(got, "200 ") {
		got, _, _ = strings.Cut(got, " ")
	}
	return got
}
