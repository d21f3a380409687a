package registry

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
)

// TestReloadToKubernetes: a reload may make a service the first one whose endpoints are in Kubernetes. The API server is a
// stand-in; package e2e/sources has a real one.
func TestReloadToKubernetes(t *testing.T) {
	t.Parallel()
	app := harness.NewApp(t)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, `{"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "app-1",
			"labels": {"kubernetes.io/service-name": "app"}}, "addressType": "IPv4", "ports": [{"port": 80}],
			"endpoints": [{"addresses": ["10.0.0.1"]}]}]}`)
	}))
	defer api.Close()
	defer api.CloseClientConnections()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must.WriteFile(t, kubeconfig, fmt.Sprintf(`
current-context: c
contexts: [{name: c, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: %q}}]`, api.URL))
	egress := harness.FreeAddrs(t, 1)[0]
	with := func(discover string) string {
		return fmt.Sprintf(`
registry: {kubernetes: {kubeconfig: %q}}
listeners: [{name: egress, address: %q, protocol: http, service: app}]
services: {app: {discover: %s, endpoints: [%q], protocol: http}}`, kubeconfig, egress, discover, app.Addr)
	}
	p := harness.Start(t, with("static"))
	p.Ready()
	if s := p.Stats(); len(s.Sources) > 0 || s.Registry != nil {
		t.Errorf("without a registry: %+v, %+v", s.Sources, s.Registry)
	}
	p.Reload(with("[static, kubernetes], combine: merge"), "applied")
	eventually.True(t, "the endpoints of both", func() bool {
		_, body := p.Get("/endpoints")
		return strings.Contains(body, app.Addr) && strings.Contains(body, "10.0.0.1:80")
	})
	eventually.True(t, "the source that the reload has added", func() bool {
		s := p.Stats().Sources
		return len(s) == 1 && s[0].Name == "kubernetes" && s[0].Up && s[0].Services == 1
	})
	p.Counts(`remora_source_up{source="kubernetes"}`, 1)
}
