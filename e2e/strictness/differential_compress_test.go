package strictness

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
)

// TestDifferentialCompression: nginx compresses for clients behind sidecars as it does for others.
// It does not with via: on, because of its gzip_proxied, which shows that the test could fail.
func TestDifferentialCompression(t *testing.T) {
	if *differential == "" {
		t.Skip("needs nginx: see scripts/differential.sh")
	}
	nginx := (&backend{"nginx", "", "nginx.conf", []string{"nginx", "-e", "stderr", "-c", "$CONFIG"}}).start(t)
	for _, c := range []struct{ setting, coding string }{{"", "gzip"}, {"via: off", "gzip"}, {"via: on", ""}} {
		addrs := harness.FreeAddrs(t, 3)
		provider := harness.Start(t, fmt.Sprintf(`
%s
listeners:
  - {name: direct, address: %q, protocol: http, service: nginx}
  - {name: ingress, address: %q, protocol: link, service: nginx}
services: {nginx: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s}}`, c.setting, addrs[0], addrs[1], nginx))
		consumer := harness.Start(t, fmt.Sprintf(`
%s
listeners: [{name: egress, address: %q, protocol: http, service: nginx}]
services: {nginx: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s}}`, c.setting, addrs[2], addrs[1]))
		provider.Ready()
		consumer.Ready()
		for way, addr := range map[string]string{"one sidecar": addrs[0], "two sidecars": addrs[2]} {
			for version, protocols := range map[string]func(*http.Protocols){
				"HTTP/1.1": func(p *http.Protocols) { p.SetHTTP1(true) },
				"HTTP/2":   func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
			} {
				var p http.Protocols
				protocols(&p)
				transport := &http.Transport{Protocols: &p, DisableCompression: true}
				req := must.Request(t, http.MethodGet, "http://"+addr+"/compressed", nil)
				req.Header.Set("Accept-Encoding", "gzip")
				resp, err := transport.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				transport.CloseIdleConnections()
				if got := resp.Header.Get("Content-Encoding"); got != c.coding || resp.StatusCode != 200 || err != nil {
					t.Errorf("%q, %s, %s: status %d, coding %q, want %q: %v", c.setting, way, version, resp.StatusCode, got, c.coding, err)
				}
			}
		}
	}
}
