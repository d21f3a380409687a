package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/leaktest"
	"github.com/remora-proxy/remora/lab"
	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/etcd"
)

// TestLifecycle starts, drains and stops a sidecar within this process, and checks that
// nothing is left. Some starts fail, at different steps.
func TestLifecycle(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	a, other := newApp(t), newApp(t)
	ignore := goleak.IgnoreCurrent()
	free := freeAddrs(t, 4)
	services := fmt.Sprintf(`services:
  app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m, check: {http: /}}
  far: {discover: etcd, check: {tcp: true}}`, a.addr)
	file := func(admin, egress, more string) string {
		return fmt.Sprintf(`
loops: 2
admin: {address: %q}
registry: {etcd: {endpoints: [%q]}}
listeners: [{name: egress, address: %q, protocol: http, service: app}, {name: bare, address: %q, protocol: http, service: far}]
%s
%s`, admin, free[3], egress, free[2], services, more)
	}
	for _, c := range []struct {
		name, yaml string
		want       string // part of the error; empty means none
	}{
		{"complete", file(free[0], free[1], ""), ""},
		{"no admin API", file("", free[1], ""), ""},
		{"a registration, and etcd down", file(free[0], free[1],
			`register: [{service: x, listener: egress, advertise: "10.0.0.1:1", check: {http: /healthz}}]`), ""},
		{"the admin API's port is taken", file(a.addr, free[1], ""), "admin.address: can't listen"},
		{"a listener's port is taken", file(free[0], other.addr, ""), "listeners[0].address: can't listen"},
		{"cancelled", file(free[0], free[1], ""), context.Canceled.Error()},
	} {
		cfg, err := config.Parse("test.yaml", []byte(c.yaml), func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if c.want == context.Canceled.Error() {
			cancel()
		}
		s, err := start(ctx, cfg, environmentKind(t), "", slog.New(slog.DiscardHandler), new(slog.LevelVar))
		if err == nil {
			if resp, err := http.Get("http://" + free[1] + "/"); err != nil {
				t.Errorf("%s: %v", c.name, err)
			} else {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			s.startDrain()
			s.startDrain()
			receive(t, "the drain", s.drained)
			s.stop()
			if p := s.admin.Phase(); p != admin.Drained {
				t.Errorf("%s: phase %v at the end", c.name, p)
			}
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		cancel() // has no effect after the start
		http.DefaultClient.CloseIdleConnections()
		if err := leaktest.Wait(ignore); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestNewLog(t *testing.T) {
	for _, c := range []struct {
		level, format string
		want          string
	}{
		{config.LevelDebug, config.FormatText, "level=DEBUG msg=d\nlevel=INFO msg=i\nlevel=WARN msg=w\nlevel=ERROR msg=e\n"},
		{config.LevelInfo, config.FormatText, "level=INFO msg=i\nlevel=WARN msg=w\nlevel=ERROR msg=e\n"},
		{config.LevelWarn, config.FormatJSON, `"level":"WARN","msg":"w"}` + "\n" + `"level":"ERROR","msg":"e"}` + "\n"},
		{config.LevelError, config.FormatJSON, `"level":"ERROR","msg":"e"}` + "\n"},
	} {
		var out strings.Builder
		log, _, flush := newLog(&config.Log{Level: c.level, Format: c.format}, &out)
		log.Debug("d")
		log.Info("i")
		log.Warn("w")
		log.Error("e")
		flush(t.Context())
		var got strings.Builder
		for line := range strings.Lines(out.String()) {
			got.WriteString(line[max(strings.Index(line, `level=`), strings.Index(line, `"level"`), 0):])
		}
		if got.String() != c.want {
			t.Errorf("%s %s: %q, want %q", c.level, c.format, got.String(), c.want)
		}
	}
}

// TestEarlyRequests: without etcd the endpoints come from the cache, a second after the
// start. Requests before that wait.
func TestEarlyRequests(t *testing.T) {
	a := newApp(t)
	dir, addrs := t.TempDir(), freeAddrs(t, 2)
	cache, err := registry.OpenCache(dir, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	cache.Store(registry.Record{
		Service: "app", Origin: addrs[1] + " /remora/services", Endpoints: []registry.Endpoint{{Addr: a.addr, Weight: 1}},
	})
	cache.Close()
	startRemora(t, fmt.Sprintf(`
registry: {etcd: {endpoints: [%q]}, cache_dir: %q}
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: app}]
services: {app: {discover: etcd, protocol: http, connect_timeout: 15s, timeout: 2m}}`, addrs[1], dir, addrs[0]))
	var status int
	var code string
	eventually.Nil(t, "a response", func() error {
		status, code, _, err = get(addrs[0])
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
	_, ingress := provider(t, newApp(t))
	r, err := etcd.New(etcd.Options{Endpoints: []string{at}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.Register(registry.Registration{Service: "compute", Node: "n1", Addr: ingress, Protocol: "link"})
	egress, cache := freeAddrs(t, 2), t.TempDir()
	yaml := func(egress, cache string) string {
		return fmt.Sprintf(`
loops: 1
registry: {etcd: {endpoints: [%q]}, cache_dir: %q}
listeners: [{name: egress, address: %q, protocol: http, service: compute}]
services: {compute: {discover: etcd, connect_timeout: 15s, timeout: 2m}}`, at, cache, egress)
	}
	wantServed := func(what string) {
		t.Helper()
		if status, _, _, err := get(egress[0]); status != 200 || err != nil {
			t.Errorf("%s: response %d, %v", what, status, err)
		}
	}
	c := startRemora(t, yaml(egress[0], cache))
	c.ready()
	eventually.Nil(t, "the endpoint to be known", func() error {
		if status, _, _, err := get(egress[0]); status != 200 || err != nil {
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
	c.signal(syscall.SIGTERM)
	if code := c.exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	c = c.again()
	c.ready()
	wantServed("a start")
	c.replace()
	wantServed("a hot restart")
	uncached := startRemora(t, yaml(egress[1], ""))
	uncached.await("/readyz", http.StatusServiceUnavailable, "service compute: no endpoints known yet\n")
	if nc, err := net.Dial("tcp", egress[1]); err != nil {
		t.Error(err)
	} else {
		nc.Close()
	}
}
