package registry

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/lab"
	"github.com/remora-proxy/remora/proxy/admin"
)

// TestRefusedEndpoints: hostile endpoints in etcd are left out, counted, told once, and shown. No request meets them.
func TestRefusedEndpoints(t *testing.T) {
	t.Parallel()
	app := harness.NewApp(t)
	etcd, err := lab.StartEtcd(lab.EtcdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	put := func(addr string) {
		if _, err := client.Put(t.Context(), "/remora/services/app/n@"+addr, fmt.Sprintf(`{"Op": 0, "Addr": %q}`, addr)); err != nil {
			t.Fatal(err)
		}
	}
	put(app.Addr)
	egress := harness.FreeAddrs(t, 1)[0]
	p := harness.Start(t, fmt.Sprintf(`
registry: {etcd: {endpoints: [%q]}}
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: app}]
services: {app: {discover: etcd, protocol: http, connect_timeout: 15s}}`, etcd.Addr(), egress))
	p.Ready()
	hostile := map[string]string{
		egress: "loop", p.Admin: "admin", "169.254.169.254:80": "link-local", "[fe80::1]:80": "link-local", "255.255.255.255:80": "broadcast",
	}
	for addr := range hostile {
		put(addr)
	}
	for reason, n := range map[string]int{"loop": 1, "admin": 1, "link-local": 2, "broadcast": 1} {
		p.AwaitMetric(fmt.Sprintf(`remora_endpoints_refused_total{reason=%q,source="etcd"}`, reason), n)
	}
	for range 50 {
		if status, code, _, err := harness.Get(egress); status != 200 || err != nil {
			t.Fatalf("status %d, %s, %v", status, code, err)
		}
	}
	_, body := p.Get("/endpoints")
	var shown struct{ Refused []admin.RefusedEndpoint }
	if err := json.Unmarshal([]byte(body), &shown); err != nil {
		t.Fatal(err)
	}
	for _, e := range shown.Refused {
		if hostile[e.Address] != e.Reason || e.Service != "app" || e.Source != "etcd" {
			t.Errorf("shown is %+v", e)
		}
	}
	if len(shown.Refused) != len(hostile) {
		t.Errorf("shown are %+v", shown.Refused)
	}
	p.AwaitLog("endpoint-refused")
	for addr := range hostile {
		if _, err := client.Delete(t.Context(), "/remora/services/app/n@"+addr); err != nil {
			t.Fatal(err)
		}
	}
	eventually.True(t, "nothing to be refused", func() bool { _, body := p.Get("/endpoints"); return !strings.Contains(body, `"refused"`) })
}

// TestReloadJudgesEndpoints: an endpoint is refused as soon as a reload adds a listener that leads it back, and in use as soon as
// a reload removes the listener.
func TestReloadJudgesEndpoints(t *testing.T) {
	t.Parallel()
	app := harness.NewApp(t)
	etcd, err := lab.StartEtcd(lab.EtcdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	addrs := harness.FreeAddrs(t, 2)
	for _, addr := range []string{app.Addr, addrs[1]} {
		if _, err := client.Put(t.Context(), "/remora/services/app/n@"+addr, fmt.Sprintf(`{"Op": 0, "Addr": %q}`, addr)); err != nil {
			t.Fatal(err)
		}
	}
	of := func(more string) string {
		return fmt.Sprintf(`
registry: {etcd: {endpoints: [%q]}}
listeners: [{name: egress, address: %q, protocol: http}%s]
routes: [{service: app}]
services: {app: {discover: etcd, protocol: http}}`, etcd.Addr(), addrs[0], more)
	}
	second := fmt.Sprintf(", {name: second, address: %q, protocol: http}", addrs[1])
	p := harness.Start(t, of(second))
	p.Ready()
	isRefused := func() bool { _, body := p.Get("/endpoints"); return strings.Contains(body, `"refused"`) }
	eventually.True(t, "a loop", isRefused)
	for range 2 {
		p.Reload(of(""), "applied")
		eventually.True(t, "the endpoint to be in use", func() bool { return !isRefused() })
		p.Reload(of(second), "applied")
		eventually.True(t, "the endpoint to be refused again", isRefused)
	}
}
