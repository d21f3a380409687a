package routing

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
)

// TestFaults: a route aborts all requests or delays them, and metrics count both. Another route
// does not.
func TestFaults(t *testing.T) {
	app := harness.NewApp(t)
	egress := harness.FreeAddrs(t, 1)[0]
	p := harness.Start(t, fmt.Sprintf(`
loops: 2
listeners: [{name: egress, address: %q, protocol: http}]
routes:
- {match: {path: /abort}, service: app, fault: {abort: 418}}
- {match: {path: /delay}, service: app, fault: {delay: 300ms}}
- {service: app}
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}`, egress, app.Addr))
	p.Ready()
	for path, want := range map[string]string{"/abort": "418 fault-injected", "/delay": "200 ", "/": "200 "} {
		began := time.Now()
		resp, _ := must.Get(t, http.DefaultClient, "http://"+egress+path)
		if got := fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("X-Remora-Error")); got != want {
			t.Errorf("%s got %s, want %s", path, got, want)
		}
		if path == "/delay" && time.Since(began) < 300*time.Millisecond {
			t.Errorf("the response came after %v", time.Since(began))
		}
	}
	for series, want := range map[string]int{
		`remora_faults_injected_total{fault="abort",service="app"}`: 1,
		`remora_faults_injected_total{fault="delay",service="app"}`: 1,
		`remora_errors_total{code="fault-injected"}`:                1,
	} {
		if got := p.Metric(series); got != want {
			t.Errorf("%s is %d, want %d", series, got, want)
		}
	}
}

// TestRateLimitByPeer: clients at two addresses have limits of their own, over both loops. The
// listener has one for each, the route one for each user.
func TestRateLimitByPeer(t *testing.T) {
	app := harness.NewApp(t)
	egress := harness.FreeAddrs(t, 1)[0]
	p := harness.Start(t, fmt.Sprintf(`
loops: 2
listeners: [{name: egress, address: %q, protocol: http, rate_limit: {rate: 1, burst: 100, key: peer}}]
routes:
- {match: {path: /users}, service: app, rate_limit: {rate: 1, burst: 5, key: header X-User}}
- {service: app}
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}`, egress, app.Addr))
	p.Ready()
	// send returns how many of n requests are served. A token may come back meanwhile.
	send := func(from, path, user string, n int) (served int) {
		t.Helper()
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		for range n { // connections of their own, so that both loops take part
			client := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
			r := must.Request(t, http.MethodGet, "http://"+egress+path, nil)
			r.Header.Set("X-User", user)
			resp, _ := must.Do(t, client, r)
			switch {
			case resp.StatusCode == 200:
				served++
			case resp.StatusCode != 429 || resp.Header.Get("X-Remora-Error") != "rate-limited" || resp.Header.Get("Retry-After") != "1":
				t.Errorf("%d %v", resp.StatusCode, resp.Header)
			}
		}
		return served
	}
	for _, user := range []string{"a", "b"} {
		if n := send("127.0.0.1", "/users", user, 20); n < 5 || n > 15 {
			t.Errorf("user %s had %d of 20 requests served, want about 5", user, n)
		}
	}
	for _, from := range []string{"127.0.0.2", "127.0.0.3"} {
		if n := send(from, "/", "", 200); n < 100 || n > 190 {
			t.Errorf("%s had %d of 200 requests served, want about 100", from, n)
		}
	}
}

// TestAccessLogFormat: lines have the format of the configuration, which a reload may change. A
// client can't forge one.
func TestAccessLogFormat(t *testing.T) {
	app := harness.NewApp(t)
	egress := harness.FreeAddrs(t, 1)[0]
	file := filepath.Join(t.TempDir(), "access.log")
	cfg := func(format string) string {
		return harness.OneApp(egress, app.Addr, "") + fmt.Sprintf("\naccess_log: {path: %q, format: '%s'}", file, format)
	}
	p := harness.Start(t, cfg("combined"))
	p.Ready()
	send := func() {
		t.Helper()
		r := must.Request(t, http.MethodGet, "http://"+egress+"/a?b", nil)
		r.Header.Set("User-Agent", `x" 500 "`)
		must.Do(t, http.DefaultClient, r)
	}
	send()
	harness.AwaitLines(t, file, 1)
	p.Reload(cfg(`{status} {method} {path} {header User-Agent}`), "applied")
	send()
	harness.AwaitLines(t, file, 2)
	text := must.ReadFile(t, file)
	lines := strings.Split(string(text), "\n")
	if !regexp.MustCompile(`^127\.0\.0\.1 - - \[\d\d/\w+/\d+:\d\d:\d\d:\d\d \+0000\] "GET /a\?b HTTP/1\.1" 200 \d+ "-" "x\\" 500 \\""$`).MatchString(lines[0]) {
		t.Errorf("combined: %s", lines[0])
	}
	if want := `200 GET /a?b x\"\u0020500\u0020\"`; lines[1] != want {
		t.Errorf("got %s, want %s", lines[1], want)
	}
	p.Reload(cfg("{satus}"), "invalid")
	p.Says(t, "did you mean status?")
}

// TestMirror: a second service gets marked copies, and its failures are nobody's. Metrics count
// them.
func TestMirror(t *testing.T) {
	app := harness.NewApp(t)
	var copies, marked atomic.Int32
	shadow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil && r.URL.Path == "/x" && r.Host == "shop" && string(body) == "hello" && r.Header.Get("X-Remora-Mirror") == "1" {
			marked.Add(1)
		}
		if copies.Add(1)%2 == 0 {
			w.WriteHeader(500)
		}
	}))
	defer shadow.Close()
	egress := harness.FreeAddrs(t, 1)[0]
	p := harness.Start(t, fmt.Sprintf(`
loops: 2
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: app, mirror: {service: shadow}}]
services:
  app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}
  shadow: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}`, egress, app.Addr, shadow.Listener.Addr()))
	p.Ready()
	for range 20 {
		r := must.Request(t, http.MethodPost, "http://"+egress+"/x", strings.NewReader("hello"))
		r.Host = "shop"
		if resp, body := must.Do(t, http.DefaultClient, r); resp.StatusCode != 200 || body != "POST hello" {
			t.Fatalf("%d %q", resp.StatusCode, body)
		}
	}
	eventually.Nil(t, "the copies to end", func() error {
		answered := p.Metric(`remora_mirrored_total{outcome="answered",service="shadow"}`)
		failed := p.Metric(`remora_mirrored_total{outcome="failed",service="shadow"}`)
		if answered != 10 || failed != 10 {
			return fmt.Errorf("%d answered and %d failed, want 10 of each", answered, failed)
		}
		return nil
	})
	if marked.Load() != 20 || copies.Load() != 20 {
		t.Errorf("%d copies, %d as they should be", copies.Load(), marked.Load())
	}
}

// TestFallback: while the application is down, a second service answers, after a reload a response of
// the configuration. Metrics and access log say so.
func TestFallback(t *testing.T) {
	app := harness.NewApp(t)
	spare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "spare ", r.Method, r.URL.Path)
	}))
	defer spare.Close()
	addrs := harness.FreeAddrs(t, 2)
	log := filepath.Join(t.TempDir(), "access.log")
	cfg := func(endpoint, fallback string) string {
		return fmt.Sprintf(`
loops: 2
listeners: [{name: egress, address: %q, protocol: http}]
access_log: {path: %q}
routes: [{service: app, fallback: {%s}}]
services:
  app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}
  spare: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}`, addrs[0], log, fallback, endpoint, spare.Listener.Addr())
	}
	p := harness.Start(t, cfg(app.Addr, "service: spare, timeout: 1m"))
	p.Ready()
	check := func(want string) {
		t.Helper()
		resp, body := must.Post(t, http.DefaultClient, "http://"+addrs[0]+"/x", "text/plain", strings.NewReader("hello"))
		if got := fmt.Sprintf("%d %q %s", resp.StatusCode, body, resp.Header.Get("X-Remora-Fallback")); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
	check(`200 "POST hello" `)
	down := addrs[1] // nobody listens
	p.Reload(cfg(down, "service: spare, timeout: 1m"), "applied")
	eventually.Nil(t, "the endpoint to be another", func() error {
		if _, body := p.Get("/endpoints"); !strings.Contains(body, down) {
			return fmt.Errorf("%s", body)
		}
		return nil
	})
	check(`200 "spare POST/x" no_endpoint`)
	p.Reload(cfg(down, `respond: {status: 503, body: later, headers: {retry-after: "5"}}`), "applied")
	check(`503 "later" no_endpoint`)
	for series, want := range map[string]int{
		`remora_fallbacks_total{reason="no_endpoint",result="answered",service="app"}`: 2,
		`remora_fallbacks_total{reason="no_endpoint",result="failed",service="app"}`:   0,
	} {
		if got := p.Metric(series); got != want {
			t.Errorf("%s is %d, want %d", series, got, want)
		}
	}
	harness.AwaitLines(t, log, 3)
	text := must.ReadFile(t, log)
	if n := strings.Count(string(text), `"error":"upstream-connect","fallback":"no_endpoint"`); n != 2 {
		t.Errorf("%d lines have the error and the fallback:\n%s", n, text)
	}
	p.Reload(cfg(down, "service: sapre"), "invalid")
	p.Says(t, "did you mean spare?")
}
