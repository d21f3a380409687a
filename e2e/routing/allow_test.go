package routing

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/testcerts"
)

// TestAllow: sidecars with certificates of one authority may call only what the rules of the
// provider's listener allow to their names. The rules of a service that are not enforced let
// requests pass, and count them. Routes have rules of their own.
func TestAllow(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer app.Close()
	ca := testcerts.New(t)
	ingress := harness.FreeAddrs(t, 1)[0]
	provider := harness.Start(t, fmt.Sprintf(`
loops: 2
limits: {message: 64KiB}
listeners:
- name: ingress
  address: %q
  protocol: link
  service: local
  tls: %s
  allow:
    rules:
    - {name: web, from: ["spiffe://test/web"], method: [GET], path: [/v1/*]}
    - {from: ["spiffe://test/jobs/*", "*.jobs.test"], path: [/jobs]}
services:
  local:
    discover: static
    endpoints: [%q]
    protocol: http
    connect_timeout: 15s
    timeout: 2m
    allow: {enforce: false, rules: [{method: [GET]}]}`,
		ingress, strings.Replace(harness.Block(harness.CertFiles(t, ca, harness.ProviderName), "spiffe://test/*"), `/*"`, `/*", "*.jobs.test"`, 1), app.Listener.Addr()))
	provider.Ready()
	consumer := func(name, route string) (*harness.Process, string) {
		egress := harness.FreeAddrs(t, 1)[0]
		p := harness.Start(t, fmt.Sprintf(`
loops: 1
limits: {message: 64KiB}
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: compute, %s}]
services: {compute: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m, tls: %s}}`,
			egress, route, ingress, harness.Block(harness.CertFiles(t, ca, name), harness.ProviderName)))
		p.Ready()
		return p, egress
	}
	send := func(egress, method, path string, size int) string {
		t.Helper()
		r := must.Request(t, method, "http://"+egress+path, bytes.NewReader(make([]byte, size)))
		resp, _ := must.Do(t, http.DefaultClient, r)
		return strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("X-Remora-Error")))
	}
	const refused = "403 not-allowed"
	for _, c := range []struct {
		name string
		want map[string]string // by method, path and size
	}{
		{"spiffe://test/web", map[string]string{
			"GET /v1/a 0": "200", "POST /v1/a 0": refused, "GET /jobs 0": refused, "GET /v1/..%2fjobs 0": refused, "POST /v1/a 200000": refused,
		}},
		{"spiffe://test/jobs/nightly", map[string]string{
			"GET /v1/a 0": refused, "GET /jobs 0": "200", "POST /jobs 0": "200", "GET /jobs/a 0": refused, "POST /jobs 200000": "200",
		}},
		{"a.jobs.test", map[string]string{"GET /jobs 0": "200", "GET /v1/a 0": refused}},
		{"spiffe://test/other", map[string]string{"GET /v1/a 0": refused, "GET /jobs 0": refused, "PUT /jobs 200000": refused}},
	} {
		_, egress := consumer(c.name, "")
		for request, want := range c.want {
			var method, path string
			var size int
			_, _ = fmt.Sscan(request, &method, &path, &size)
			if got := send(egress, method, path, size); got != want {
				t.Errorf("%s: %s got %s, want %s", c.name, request, got, want)
			}
		}
	}
	for series, want := range map[string]int{
		`remora_allow_total{rule="web",rules="listeners.ingress",verdict="allowed"}`:  1,
		`remora_allow_total{rule="1",rules="listeners.ingress",verdict="allowed"}`:    4,
		`remora_allow_total{rule="none",rules="listeners.ingress",verdict="refused"}`: 10,
		`remora_allow_total{rule="0",rules="services.local",verdict="allowed"}`:       3,
		`remora_allow_total{rule="none",rules="services.local",verdict="counted"}`:    2,
	} {
		if got := provider.Metric(series); got != want {
			t.Errorf("%s is %d, want %d", series, got, want)
		}
	}
	provider.AwaitLog(`msg="request refused: no rule allows it"`, "rules=listeners.ingress", `msg="no rule allows a request, which passes because`,
		"rules=services.local", "spiffe://test/jobs/nightly")

	p, egress := consumer("spiffe://test/web", `match: {path: /x/}, rewrite: {path: /v1/}, allow: {rules: [{path: [/x/a]}]}`)
	for path, want := range map[string]string{"/x/a": "200", "/x/b": refused} {
		if got := send(egress, "GET", path, 0); got != want {
			t.Errorf("%s got %s, want %s", path, got, want)
		}
	}
	if got := p.Metric(`remora_allow_total{rule="none",rules="routes.0",verdict="refused"}`); got != 1 {
		t.Errorf("the consumer has refused %d", got)
	}
}
