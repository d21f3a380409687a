package registry

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/lab"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/etcd"
)

// TestMigration: a service moves from a file of endpoints to etcd. Its sidecar first uses one source, then both, then the
// other. No request fails.
func TestMigration(t *testing.T) {
	t.Parallel()
	e, err := lab.StartEtcd(lab.EtcdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	path := filepath.Join(t.TempDir(), "endpoints.json")
	old, next := harness.NewApp(t), harness.NewApp(t)
	must.WriteFile(t, path, fmt.Sprintf(`{"app": [%q]}`, old.Addr))
	egress := harness.FreeAddrs(t, 1)[0]
	with := func(discover string) string {
		return fmt.Sprintf(`
registry: {file: {path: %q}, etcd: {endpoints: [%q]}}
listeners: [{name: egress, address: %q, protocol: http, service: app}]
services: {app: {%s, protocol: http, connect_timeout: 15s}}`, path, e.Addr(), egress, discover)
	}
	p := harness.Start(t, with("discover: file"))
	p.Ready()
	endpoints := func(what string, has, lacks *harness.App) {
		t.Helper()
		eventually.True(t, what, func() bool {
			_, body := p.Get("/endpoints")
			return strings.Contains(body, has.Addr) && !(lacks != nil && strings.Contains(body, lacks.Addr))
		})
		if status, code, _, err := harness.Get(egress); status != 200 || err != nil {
			t.Errorf("%s: response %d %s, %v", what, status, code, err)
		}
	}
	endpoints("the file alone", old, next)
	p.Reload(with("discover: [etcd, file]"), "applied")
	endpoints("the file, while etcd has nothing", old, next)

	r, err := etcd.New(etcd.Options{Endpoints: []string{e.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	registered := r.Register(registry.Registration{Service: "app", Node: "n1", Addr: next.Addr})
	endpoints("etcd, as soon as it has something", next, old)
	p.Reload(with("discover: [etcd, file], combine: merge"), "applied")
	endpoints("both", old, nil)
	endpoints("both", next, nil)
	p.Reload(with("discover: etcd"), "applied")
	endpoints("etcd alone", next, old)
	p.Reload(with("discover: [etcd, file]"), "applied")
	if err := registered.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	endpoints("the file again, when etcd has lost the last endpoint for good", old, next)
}
