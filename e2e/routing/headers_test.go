package routing

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
)

// TestRoutes: a sidecar between a client and a server of net/http routes by header,
// rewrites the path, and splits requests.
func TestRoutes(t *testing.T) {
	gold, rest := newPathServer(t, "gold"), newPathServer(t, "rest")
	egress := harness.FreeAddrs(t, 1)[0]
	p := harness.Start(t, fmt.Sprintf(`
loops: 1
listeners: [{name: egress, address: %q, protocol: http}]
routes:
  - {match: {path: /api/, header: {x-tier: gold}}, rewrite: {path: /}, service: gold}
  - {match: {path: /canary}, service: [{name: rest, weight: 3}, {name: gold, weight: 1}]}
  - {service: rest}
services:
  gold: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}
  rest: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}`, egress, gold, rest))
	p.Ready()
	for _, c := range []struct{ tier, want string }{{"gold", "gold /users?x=1"}, {"silver", "rest /api/users?x=1"}} {
		req := must.Request(t, http.MethodGet, "http://"+egress+"/api/users?x=1", nil)
		req.Header.Set("X-Tier", c.tier)
		if _, body := must.Do(t, http.DefaultClient, req); body != c.want {
			t.Errorf("tier %s: %q, want %q", c.tier, body, c.want)
		}
	}
	awaitSplit(t, "http://"+egress+"/canary")
}

// TestPaths: between a client and a server of net/http, a path reaches the server of its normal
// form, and no server if it is ambiguous.
func TestPaths(t *testing.T) {
	public, admin, egress := newPathServer(t, "public"), newPathServer(t, "admin"), harness.FreeAddrs(t, 1)[0]
	p := harness.Start(t, fmt.Sprintf(`
loops: 1
listeners: [{name: egress, address: %q, protocol: http}]
routes:
  - {match: {path: /public/}, service: public}
  - {match: {path: /admin/}, service: admin}
  - {match: {path: /api/}, rewrite: {path: /}, service: public}
services:
  public: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}
  admin: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}`, egress, public, admin))
	p.Ready()
	for target, want := range map[string]string{
		"/public/x":            "200 public /public/x",
		"/public/../admin/x":   "200 admin /admin/x",
		"/public/%2e%2e/admin": "200 admin /admin",
		"/public/..%2fadmin/x": "400 the path is ambiguous\n",
		"/public/..;/admin/x":  "400 the path is ambiguous\n",
		"/api//evil/x":         "200 public /evil/x",
		"/apifoo":              "404 no route matches this request, whose host is \"compute\"\n",
	} {
		nc := harness.Dial(t, "tcp", egress)
		defer nc.Close()
		fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: compute\r\nConnection: close\r\n\r\n", target)
		resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if got := fmt.Sprint(resp.StatusCode, " ", string(body)); err != nil || got != want {
			t.Errorf("%s: %q, want %q: %v", target, got, want, err)
		}
	}
	p.Counts(`remora_errors_total{code="bad-path"}`, 2)
}

// awaitSplit sends requests until both services of a split have responded.
func awaitSplit(t *testing.T, url string) {
	seen := map[string]bool{}
	eventually.Nil(t, "both sides of the split", func() error {
		resp, err := http.Get(url)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if seen[string(body)] = true; !seen["gold /canary"] || !seen["rest /canary"] {
			return fmt.Errorf("responses from %v: %v", seen, err)
		}
		return nil
	})
}

// newPathServer starts a server that responds with its name and the request target.
func newPathServer(t *testing.T, name string) (addr string) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, name+" "+r.URL.RequestURI())
	}))
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// TestAddedHeaders: two sidecars add the headers about the origin of a request, its ID,
// and the date of the response.
func TestAddedHeaders(t *testing.T) {
	got := make(chan http.Header, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Clone()
		w.Header()["Date"] = nil // net/http adds one otherwise
	}))
	defer srv.Close()
	p, addr := harness.Provider(t, &harness.App{Addr: srv.Listener.Addr().String()})
	egress := harness.FreeAddrs(t, 1)[0]
	c := harness.Start(t, fmt.Sprintf(`
loops: 1
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{match: {path: /}, service: compute}]
services: {compute: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m}}`, egress, addr))
	p.Ready()
	c.Ready()

	req := must.Request(t, http.MethodGet, "http://"+egress+"/x", nil)
	req.Header.Set("X-Forwarded-For", "203.0.113.9")
	before := time.Now().Truncate(time.Second)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()

	seen := harness.Receive(t, "the request", got)
	id := resp.Header.Get("X-Request-Id")
	if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(id) {
		t.Errorf("the client got the id %q", id)
	}
	for name, want := range map[string]string{
		"Via": "", "Cdn-Loop": "remora", "X-Forwarded-For": "203.0.113.9, 127.0.0.1", "X-Forwarded-Proto": "http", "X-Request-Id": id,
	} {
		if got := strings.Join(seen.Values(name), " | "); got != want {
			t.Errorf("the application got %s: %q, want %q", name, got, want)
		}
	}
	if via := strings.Join(resp.Header.Values("Via"), " | "); via != "" {
		t.Errorf("the client got Via: %q", via)
	}
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil || date.Before(before) || date.After(time.Now()) {
		t.Errorf("the client got Date: %q, sent at %v", resp.Header.Get("Date"), before)
	}
}

// TestLoop: sidecars that lead to each other detect the loop, whether they mark requests by Via or
// CDN-Loop. The rewrite, which changes nothing, keeps the configuration of one from being refused.
func TestLoop(t *testing.T) {
	for name, c := range map[string]struct{ here, there, protocol string }{
		"Via":         {"on", "on", "http"},
		"CDN-Loop":    {"off", "off", "http"},
		"both":        {"on", "off", "http"},
		"over HTTP/2": {"off", "off", "http2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addrs := harness.FreeAddrs(t, 2)
			start := func(via, own, other string) *harness.Process {
				return harness.Start(t, fmt.Sprintf(`
loops: 2
via: %s
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{match: {path: /}, rewrite: {path: /}, service: other}]
services: {other: {discover: static, endpoints: [%q], protocol: %s, timeout: 60s, connect_timeout: 15s}}`, via, own, other, c.protocol))
			}
			here, there := start(c.here, addrs[0], addrs[1]), start(c.there, addrs[1], addrs[0])
			here.Ready()
			there.Ready()
			resp, _ := must.Get(t, http.DefaultClient, "http://"+addrs[0]+"/")
			if resp.StatusCode != http.StatusLoopDetected {
				t.Errorf("status %d", resp.StatusCode)
			}
			for p, want := range map[*harness.Process][]string{
				here:  {`remora_requests_total{outcome="5xx",service="other"} 5`},
				there: {`remora_requests_total{outcome="5xx",service="other"} 4`, `remora_errors_total{code="loop-detected",listener="egress"} 1`},
			} {
				_, metrics := p.Get("/metrics")
				for _, line := range want {
					if !strings.Contains(metrics, line+"\n") {
						t.Errorf("the metrics lack %s", line)
					}
				}
			}
		})
	}
}

// TestLogLevel: a PUT raises and lowers the log level of a running sidecar.
func TestLogLevel(t *testing.T) {
	p, _ := harness.Consumer(t, harness.NewApp(t), "")
	p.Ready()
	put := func(level string) {
		t.Helper()
		req := must.Request(t, http.MethodPut, "http://"+p.Admin+"/log/level", strings.NewReader(level))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if out, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 || string(out) != level+"\n" {
			t.Fatalf("%d %q, %v", resp.StatusCode, out, err)
		}
	}
	put("error")
	put("info")
	p.Signal(syscall.SIGTERM)
	p.Ends()
	said := p.Output.String()
	for _, want := range []string{
		`level=ERROR msg="log level changed" from=DEBUG to=ERROR`,
		`level=ERROR msg="log level changed" from=ERROR to=INFO`,
		`level=INFO msg=draining`,
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the log lacks %s", want)
		}
	}
}
