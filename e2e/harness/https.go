package harness

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// describe responds with what the application sees: scheme, Host and body.
func describe(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %d", r.Header.Get("X-Forwarded-Proto"), r.Host, len(body))
}

// Describing starts an application that describes requests.
func Describing(t *testing.T) (addr string) {
	srv := httptest.NewServer(http.HandlerFunc(describe))
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// HTTPSListener is the configuration of a listener with TLS in front of an application, which may
// be called by its routes.
func HTTPSListener(addr, app, keys string) string {
	return fmt.Sprintf(`
loops: 2
limits: {message: 1MiB}
listeners: [{name: web, address: %q, protocol: http, tls: {%s}}]
routes:
  - {match: {path: /admin}, service: app, allow: {rules: [{from: ["spiffe://test/admin"]}]}}
  - {service: app}
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}`, addr, keys, app)
}

// StartHTTPS starts a sidecar with HTTPSListener. The rules of /admin are left out unless clients show certificates.
func StartHTTPS(t *testing.T, app, keys string) (*Process, string) {
	t.Helper()
	addr := FreeAddrs(t, 1)[0]
	text := HTTPSListener(addr, app, keys)
	if !strings.Contains(keys, "client_certificate") {
		text = strings.Replace(text, "  - {match: {path: /admin}", "  # - {match: {path: /admin}", 1)
	}
	p := Start(t, text)
	p.Ready()
	return p, addr
}

// CallHTTPS starts a sidecar whose service has this tls block and, with more, other keys.
func CallHTTPS(t *testing.T, endpoint, block, more string) (*Process, string) {
	t.Helper()
	egress := FreeAddrs(t, 1)[0]
	p := Start(t, fmt.Sprintf(`
loops: 2
limits: {message: 1MiB}
listeners: [{name: egress, address: %q, protocol: http, service: app}]
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m, tls: {%s}%s}}`, egress, endpoint, block, more))
	p.Ready()
	return p, egress
}

// GetAs sends a request with this Host.
func GetAs(egress, host, path string) (status int, body string, err error) {
	req, err := http.NewRequest(http.MethodGet, "http://"+egress+path, nil)
	if err != nil {
		return 0, "", err
	}
	req.Host = host
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}
