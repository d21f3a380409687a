package registry

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/lab"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/etcd"
)

// TestEarlyRequests: without etcd the endpoints come from the cache, a second after the
// start. Requests before that wait.
func TestEarlyRequests(t *testing.T) {
	a := harness.NewApp(t)
	dir, addrs := t.TempDir(), harness.FreeAddrs(t, 2)
	cache, err := registry.OpenCache(dir, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	cache.Store(registry.Record{
		Service: "app", Origin: addrs[1] + " /remora/services", Endpoints: []registry.Endpoint{{Addr: a.Addr, Weight: 1}},
	})
	cache.Close()
	harness.Start(t, fmt.Sprintf(`
registry: {etcd: {endpoints: [%q]}, cache_dir: %q}
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: app}]
services: {app: {discover: etcd, protocol: http, connect_timeout: 15s, timeout: 2m}}`, addrs[1], dir, addrs[0]))
	var status int
	var code string
	eventually.Nil(t, "a response", func() error {
		status, code, _, err = harness.Get(addrs[0])
		return err
	})
	if status != http.StatusOK {
		t.Errorf("the first request: response %d %s", status, code)
	}
}

// TestStartWithoutEtcd: with the cached endpoints a sidecar is ready, and so is its
// successor. A sidecar without them listens, but is not ready.
func TestStartWithoutEtcd(t *testing.T) {
	t.Parallel() // it mostly waits
	e, err := lab.StartEtcd(lab.EtcdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	crash := sync.OnceFunc(func() { _ = e.Close() })
	defer crash()
	at := e.Addr()
	_, ingress := harness.Provider(t, harness.NewApp(t))
	r, err := etcd.New(etcd.Options{Endpoints: []string{at}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.Register(registry.Registration{Service: "compute", Node: "n1", Addr: ingress, Protocol: "link"})
	egress, cache := harness.FreeAddrs(t, 2), t.TempDir()
	yaml := func(egress, cache string) string {
		return fmt.Sprintf(`
loops: 1
registry: {etcd: {endpoints: [%q]}, cache_dir: %q}
listeners: [{name: egress, address: %q, protocol: http, service: compute}]
services: {compute: {discover: etcd, connect_timeout: 15s, timeout: 2m}}`, at, cache, egress)
	}
	wantServed := func(what string) {
		t.Helper()
		if status, _, _, err := harness.Get(egress[0]); status != 200 || err != nil {
			t.Errorf("%s: response %d, %v", what, status, err)
		}
	}
	c := harness.Start(t, yaml(egress[0], cache))
	c.Ready()
	eventually.Nil(t, "the endpoint to be known", func() error {
		if status, _, _, err := harness.Get(egress[0]); status != 200 || err != nil {
			return fmt.Errorf("response %d, %v", status, err)
		}
		return nil
	})
	eventually.Nil(t, "the endpoint to be cached", func() error {
		files, _ := filepath.Glob(filepath.Join(cache, "*"))
		for _, file := range files {
			if b, err := os.ReadFile(file); err == nil && strings.Contains(string(b), ingress) {
				return nil
			}
		}
		return fmt.Errorf("not in any of %v", files)
	})
	crash()
	c.Signal(syscall.SIGTERM)
	c.Ends()

	c = c.Again()
	c.Ready()
	wantServed("a start")
	c.Replace()
	wantServed("a hot restart")
	uncached := harness.Start(t, yaml(egress[1], ""))
	uncached.Await("/readyz", http.StatusServiceUnavailable, "service compute: no endpoints known yet\n")
	if nc, err := net.Dial("tcp", egress[1]); err != nil {
		t.Error(err)
	} else {
		nc.Close()
	}
}

// TestReadyIsRegistered: a sidecar that is ready has its endpoints in the registry, so that a
// caller that starts then finds them. The application behind another endpoint does not pass its
// check, and delays nothing.
func TestReadyIsRegistered(t *testing.T) {
	t.Parallel()
	e, err := lab.StartEtcd(lab.EtcdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{e.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	app := harness.NewApp(t)
	for i := range 5 {
		at := harness.FreeAddrs(t, 3)
		p := harness.Start(t, fmt.Sprintf(`
node: {id: n%[1]d}
loops: 1
registry: {etcd: {endpoints: [%[2]q]}}
listeners: [{name: ingress, address: %[3]q, protocol: http, service: app}, {name: other, address: %[4]q, protocol: http, service: none}]
services: {app: {discover: static, endpoints: [%[5]q], protocol: http}, none: {discover: static, endpoints: [%[6]q], protocol: http}}
register:
  - {service: compute, listener: ingress, advertise: %[3]q}
  - {service: other, listener: other, advertise: %[4]q, check: {http: /}}`, i, e.Addr(), at[0], at[1], app.Addr, at[2]))
		p.Ready()
		got, err := client.Get(t.Context(), "/remora/services/compute/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		if want := int64(i + 1); got.Count != want {
			t.Errorf("sidecar %d is ready: %d endpoints are registered, want %d", i, got.Count, want)
		}
	}
}
