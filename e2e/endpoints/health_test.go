package endpoints

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
)

// TestHealthChecks: a server that fails its check gets no request until the check
// succeeds. If both servers fail, both get requests.
func TestHealthChecks(t *testing.T) {
	apps := map[string]*harness.CheckedApp{"a": {App: "a"}, "b": {App: "b"}}
	a, b := apps["a"].Start(t), apps["b"].Start(t)
	egress := harness.FreeAddrs(t, 1)[0]
	p := harness.Start(t, fmt.Sprintf(`
loops: 2
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: s}]
services:
  s:
    discover: static
    endpoints: [%q, %q]
    protocol: http
    connect_timeout: 15s
    check: {http: /healthz, interval: 20ms, timeout: 15s, healthy: 2, unhealthy: 3}`, egress, a, b))
	p.Ready()
	serve := func(want string) {
		t.Helper()
		count := map[string]int{}
		eventually.Nil(t, "responses of "+want, func() error {
			for range 50 {
				by, err := harness.ServedBy("http://" + egress + "/")
				if err != nil || !strings.Contains(want, by) {
					t.Fatalf("served by %q, want %s: %v", by, want, err)
				}
				count[by]++
			}
			if len(count) < len(want) {
				return fmt.Errorf("served by %v", count)
			}
			return nil
		})
	}
	turn := func(app string, down bool, addr string) {
		t.Helper()
		apps[app].Down.Store(down)
		p.AwaitHealth("s", addr, !down)
	}
	serve("ab")
	turn("a", true, a)
	serve("b")
	turn("b", true, b)
	serve("ab")
	turn("a", false, a)
	serve("a")
	turn("b", false, b)
	serve("ab")
}

// TestGRPCHealthCheck: a service checks grpc.health.v1 by HTTP/2, beside the requests in HTTP/1.1.
func TestGRPCHealthCheck(t *testing.T) {
	var status atomic.Int32
	status.Store(1)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked, err := io.ReadAll(r.Body)
		if err != nil {
			return // the check was given up: the test has ended
		}
		if r.ProtoMajor != 2 || r.URL.Path != "/grpc.health.v1.Health/Check" || string(asked) != "\x00\x00\x00\x00\x08\x0a\x06shop.A" {
			t.Errorf("%s %s: %q", r.Proto, r.URL.Path, asked)
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		_, _ = w.Write([]byte{0, 0, 0, 0, 2, 8, byte(status.Load())})
	}))
	srv.Config.Protocols = harness.Protocols("2")
	srv.Start()
	defer srv.Close()
	addr := srv.Listener.Addr().String()
	p := harness.Start(t, fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: s}]
services:
  s: {discover: static, endpoints: [%q], protocol: http, check: {grpc: shop.A, interval: 20ms, timeout: 15s}}`, harness.FreeAddrs(t, 1)[0], addr))
	p.Ready()
	for _, serving := range []int32{1, 2, 1} {
		status.Store(serving)
		p.AwaitHealth("s", addr, serving == 1)
	}
}

// TestVerdictsAfterReload: an unhealthy endpoint stays out of use while reloads change
// other settings of its service and its check.
func TestVerdictsAfterReload(t *testing.T) {
	a := &harness.CheckedApp{App: "a"}
	down, others := a.Start(t), []string{(&harness.CheckedApp{App: "b"}).Start(t), (&harness.CheckedApp{App: "c"}).Start(t)}
	egress := harness.FreeAddrs(t, 1)[0]
	config := func(others []string, interval, more string) string {
		return fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: s}]
services:
  s:
    discover: static
    endpoints: [%q, "%s"]
    protocol: http
    connect_timeout: 15s
    check: {http: /healthz, interval: %s, timeout: 15s, healthy: 2, unhealthy: 3}
    %s`, egress, down, strings.Join(others, `", "`), interval, more)
	}
	p := harness.Start(t, config(others[:1], "20ms", ""))
	p.Ready()
	a.Down.Store(true)
	p.AwaitHealth("s", down, false)
	for _, c := range []struct {
		name, yaml string
	}{
		{"another endpoint", config(others, "20ms", "")},
		{"another interval", config(others, "25ms", "")},
		{"a new service", config(others, "20ms", "lb: {subset: 3}")},
	} {
		p.Reload(c.yaml, "applied")
		for checks := a.Checks.Load(); a.Checks.Load() < checks+6; {
			if by, err := harness.ServedBy("http://" + egress + "/"); err != nil || by == "a" {
				t.Fatalf("%s: served by %q, %v", c.name, by, err)
			}
		}
	}
	a.Down.Store(false)
	p.AwaitHealth("s", down, true)
}

// TestLinkCheck: a TCP check of its link port finds that a provider's sidecar has ended,
// and that it is back. The endpoint is a host name.
func TestLinkCheck(t *testing.T) {
	a := harness.NewApp(t)
	p, ingress := harness.Provider(t, a)
	p.Ready()
	_, port, err := net.SplitHostPort(ingress)
	if err != nil {
		t.Fatal(err)
	}
	egress := harness.FreeAddrs(t, 1)[0]
	c := harness.Start(t, fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: compute}]
services:
  compute:
    discover: static
    endpoints: ["localhost:%s"]
    protocol: link
    connect_timeout: 15s
    check: {tcp: true, interval: 20ms, timeout: 15s}`, egress, port))
	c.Ready()
	c.AwaitHealth("compute", ingress, true)
	if err := harness.Post(http.DefaultClient, egress, "before"); err != nil {
		t.Error(err)
	}
	if _, body := c.Get("/endpoints"); !strings.Contains(body, `"host": "localhost"`) {
		t.Errorf("/endpoints does not have the host name of the address: %s", body)
	}
	p.Signal(syscall.SIGKILL)
	c.AwaitHealth("compute", ingress, false)
	harness.Start(t, fmt.Sprintf(`
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s}}`, ingress, a.Addr)).Ready()
	c.AwaitHealth("compute", ingress, true)
	if err := harness.Post(http.DefaultClient, egress, "after"); err != nil {
		t.Error(err)
	}
}
