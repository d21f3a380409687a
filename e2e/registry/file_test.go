package registry

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
)

// TestEndpointFile: a sidecar follows the file of endpoints that another program replaces. A broken file and a missing file
// change nothing, also for a sidecar that starts meanwhile. The log and the statistics tell why.
func TestEndpointFile(t *testing.T) {
	t.Parallel()
	path, cache := filepath.Join(t.TempDir(), "endpoints.json"), t.TempDir()
	replace := func(content string) {
		must.WriteFile(t, path+".new", content)
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	apps := []*harness.App{harness.NewApp(t), harness.NewApp(t)}
	egress := harness.FreeAddrs(t, 1)[0]
	p := harness.Start(t, fmt.Sprintf(`
registry: {file: {path: %q}, cache_dir: %q}
listeners: [{name: egress, address: %q, protocol: http, service: app}]
services: {app: {discover: file, protocol: http, connect_timeout: 15s}}`, path, cache, egress))
	p.AwaitLog(`file of endpoints is refused.*no such file`)
	awaitEndpoint := func(addr string) {
		eventually.True(t, "the endpoint "+addr, func() bool {
			_, body := p.Get("/endpoints")
			return strings.Contains(body, addr)
		})
	}

	for _, a := range apps {
		replace(fmt.Sprintf(`{"app": [%q]}`, a.Addr))
		awaitEndpoint(a.Addr)
		if status, code, _, err := harness.Get(egress); status != 200 || err != nil {
			t.Errorf("response %d %s, %v", status, code, err)
		}
	}
	replace(`{"app": [`)
	p.AwaitLog(`file of endpoints is refused.*unexpected end`)
	eventually.True(t, "the error in the statistics", func() bool {
		r := p.Stats().Registry
		return r != nil && !r.Connected && r.LastError != ""
	})
	if s := p.Stats().Sources; len(s) != 1 || s[0].Name != "file" || s[0].Code != "invalid" || s[0].Services != 1 || s[0].Kept != 1 {
		t.Errorf("sources: %+v", s)
	}
	if status, body := p.Get("/readyz?verbose"); status != 200 || !strings.Contains(body, "\n[-]file failed: invalid since ") || !strings.Contains(body, ", 1 endpoints stay in use\n") {
		t.Errorf("/readyz?verbose: %d %s", status, body)
	}
	p.Counts(`remora_source_up{source="file"}`, 0)
	p.Counts(`remora_source_failure{code="invalid",source="file"}`, 1)
	p.Counts(`remora_source_endpoints_kept{source="file"}`, 1)
	p = p.Replace()
	p.Ready()
	if status, code, _, err := harness.Get(egress); status != 200 || err != nil {
		t.Errorf("beside a broken file: response %d %s, %v", status, code, err)
	}
	replace(fmt.Sprintf(`{"app": [%q]}`, apps[0].Addr))
	awaitEndpoint(apps[0].Addr)
	p.AwaitLog(`file of endpoints is valid again`)
	if _, body := p.Get("/readyz?verbose"); !strings.Contains(body, "\n[+]file ok\n") {
		t.Errorf("/readyz?verbose: %s", body)
	}
	p.Counts(`remora_source_up{source="file"}`, 1)
}
