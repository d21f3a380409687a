package routing

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
)

// closingApp closes the connection of each request that comes for the first time, without a response.
type closingApp struct {
	mu       sync.Mutex
	arrivals map[string]int // by X-Request
}

func (a *closingApp) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if a.count(r.Header.Get("X-Request"), 1) == 1 {
		panic(http.ErrAbortHandler)
	}
}

// count adds n to the arrivals of a request, and returns them.
func (a *closingApp) count(request string, n int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.arrivals[request] += n
	return a.arrivals[request]
}

// TestConsent: which methods and headers are sent twice under which setting, as messages and as long bodies,
// from clients of HTTP/1.1 and HTTP/2, through one sidecar and two.
func TestConsent(t *testing.T) {
	app := &closingApp{arrivals: map[string]int{}}
	srv := httptest.NewServer(app)
	defer srv.Close()
	addrs := harness.FreeAddrs(t, 2)
	harness.Start(t, fmt.Sprintf(`
loops: 1
listeners: [{name: ingress, address: %q, protocol: link, service: app}]
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 4m, hedge: {mode: off, budget: 1}, outlier: {consecutive: 0}}}`,
		addrs[0], srv.Listener.Addr())).Ready()
	settings := map[string]string{"false": "false", "true": "true", "methods": "methods", "key": "key", "both": "[methods, key]"}
	var routes strings.Builder
	for name, setting := range settings {
		for _, service := range []string{"straight", "linked"} {
			fmt.Fprintf(&routes, "  - {match: {path: /%s/%s}, service: %s, idempotent: %s}\n", service, name, service, setting)
		}
	}
	// The budget pays for a retry of each request.
	harness.Start(t, fmt.Sprintf(`
loops: 1
limits: {message: 4KiB}
listeners: [{name: egress, address: %q, protocol: http}]
routes:
%sservices:
  straight: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 4m, outlier: {consecutive: 0}, hedge: {mode: off, budget: 1}}
  linked: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 4m, outlier: {consecutive: 0}, hedge: {mode: off, budget: 1}}`,
		addrs[1], &routes, srv.Listener.Addr(), addrs[0])).Ready()

	for _, c := range []struct {
		method string
		keys   []string
		body   int
		twice  string // the settings that let the request be sent twice
	}{
		{"GET", nil, 0, "false true methods key both"},
		{"HEAD", nil, 0, "false true methods key both"},
		{"PUT", nil, 10, "true methods both"},
		{"PUT", nil, 20_000, "true methods both"},
		{"DELETE", nil, 0, "true methods both"},
		{"OPTIONS", nil, 0, "true methods both"},
		{"POST", nil, 10, "true"},
		{"PATCH", nil, 10, "true"},
		{"POST", []string{`"8e03978e"`}, 10, "true key both"},
		{"POST", []string{`"8e03978e"`}, 20_000, "true key both"},
		{"PATCH", []string{"bare"}, 10, "true key both"},
		{"POST", []string{""}, 10, "true"},
		{"POST", []string{"a", "b"}, 10, "true"},
	} {
		for name := range settings {
			for _, hops := range []string{"straight", "linked"} {
				for _, version := range []string{"1.1", "2"} {
					what := fmt.Sprintf("%s of %d bytes with keys %q, idempotent: %s, %s, HTTP/%s", c.method, c.body, c.keys, name, hops, version)
					status := sendKeyed(t, version, c.method, "http://"+addrs[1]+"/"+hops+"/"+name, what, c.keys, c.body)
					wantStatus, wantSent := 502, 1
					if strings.Contains(" "+c.twice+" ", " "+name+" ") {
						wantStatus, wantSent = 200, 2
					}
					if sent := app.count(what, 0); status != wantStatus || sent != wantSent {
						t.Errorf("%s: status %d, sent %d times; want %d, %d times", what, status, sent, wantStatus, wantSent)
					}
				}
			}
		}
	}
}

// sendKeyed sends a request as a new client, and returns the status of its response.
func sendKeyed(t *testing.T, version, method, url, request string, keys []string, body int) int {
	t.Helper()
	tr := harness.Transport(t, version)
	defer tr.CloseIdleConnections()
	req := must.Request(t, method, url, strings.NewReader(strings.Repeat("x", body)))
	req.Header.Set("X-Request", request)
	req.Header["Idempotency-Key"] = keys
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Errorf("%s: %v", request, err)
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
