package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/internal/eventually"
)

// checkedApp is an application whose health check a test can make fail.
type checkedApp struct {
	app    string
	down   atomic.Bool
	checks atomic.Int64
}

func (s *checkedApp) start(t *testing.T) (addr string) {
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

func (s *checkedApp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.checks.Add(1)
	switch {
	case r.URL.Path != "/healthz":
		_, _ = io.WriteString(w, s.app)
	case s.down.Load():
		http.Error(w, "down", http.StatusServiceUnavailable)
	}
}

// TestHealthChecks: a server that fails its check gets no request until the check
// succeeds. If both servers fail, both get requests.
func TestHealthChecks(t *testing.T) {
	apps := map[string]*checkedApp{"a": {app: "a"}, "b": {app: "b"}}
	a, b := apps["a"].start(t), apps["b"].start(t)
	egress := freeAddrs(t, 1)[0]
	p := startRemora(t, fmt.Sprintf(`
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
	p.ready()
	serve := func(want string) {
		t.Helper()
		count := map[string]int{}
		eventually.Nil(t, "responses of "+want, func() error {
			for range 50 {
				by, err := servedBy("http://" + egress + "/")
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
		apps[app].down.Store(down)
		p.awaitHealth("s", addr, !down)
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
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	defer srv.Close()
	addr := srv.Listener.Addr().String()
	p := startRemora(t, fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: s}]
services:
  s: {discover: static, endpoints: [%q], protocol: http, check: {grpc: shop.A, interval: 20ms, timeout: 15s}}`, freeAddrs(t, 1)[0], addr))
	p.ready()
	for _, serving := range []int32{1, 2, 1} {
		status.Store(serving)
		p.awaitHealth("s", addr, serving == 1)
	}
}

// TestVerdictsAfterReload: an unhealthy endpoint stays out of use while reloads change
// other settings of its service and its check.
func TestVerdictsAfterReload(t *testing.T) {
	a := &checkedApp{app: "a"}
	down, others := a.start(t), []string{(&checkedApp{app: "b"}).start(t), (&checkedApp{app: "c"}).start(t)}
	egress := freeAddrs(t, 1)[0]
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
	p := startRemora(t, config(others[:1], "20ms", ""))
	p.ready()
	a.down.Store(true)
	p.awaitHealth("s", down, false)
	for _, c := range []struct {
		name, yaml string
	}{
		{"another endpoint", config(others, "20ms", "")},
		{"another interval", config(others, "25ms", "")},
		{"a new service", config(others, "20ms", "lb: {subset: 3}")},
	} {
		p.reload(c.yaml, "applied")
		for checks := a.checks.Load(); a.checks.Load() < checks+6; {
			if by, err := servedBy("http://" + egress + "/"); err != nil || by == "a" {
				t.Fatalf("%s: served by %q, %v", c.name, by, err)
			}
		}
	}
	a.down.Store(false)
	p.awaitHealth("s", down, true)
}

// TestLinkCheck: a TCP check of its link port finds that a provider's sidecar has ended,
// and that it is back. The endpoint is a host name.
func TestLinkCheck(t *testing.T) {
	a := newApp(t)
	p, ingress := provider(t, a)
	p.ready()
	_, port, err := net.SplitHostPort(ingress)
	if err != nil {
		t.Fatal(err)
	}
	egress := freeAddrs(t, 1)[0]
	c := startRemora(t, fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: compute}]
services:
  compute:
    discover: static
    endpoints: ["localhost:%s"]
    protocol: link
    connect_timeout: 15s
    check: {tcp: true, interval: 20ms, timeout: 15s}`, egress, port))
	c.ready()
	c.awaitHealth("compute", ingress, true)
	if err := post(http.DefaultClient, egress, "before"); err != nil {
		t.Error(err)
	}
	if _, body := c.get("/endpoints"); !strings.Contains(body, `"host": "localhost"`) {
		t.Errorf("/endpoints does not have the host name of the address: %s", body)
	}
	p.signal(syscall.SIGKILL)
	c.awaitHealth("compute", ingress, false)
	startRemora(t, fmt.Sprintf(`
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http}}`, ingress, a.addr)).ready()
	c.awaitHealth("compute", ingress, true)
	if err := post(http.DefaultClient, egress, "after"); err != nil {
		t.Error(err)
	}
}

// servedBy returns the body of a response with status 200.
func servedBy(url string) (string, error) {
	resp, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		err = errors.Join(err, errors.New(resp.Status))
	}
	return string(body), err
}

// awaitHealth waits until all loops have this verdict on an endpoint, and the metrics
// show it.
func (p *process) awaitHealth(service, addr string, healthy bool) {
	p.t.Helper()
	line := fmt.Sprintf("remora_endpoint_healthy{endpoint=%q,service=%q} %d\n", addr, service, map[bool]int{true: 1}[healthy])
	eventually.Nil(p.t, fmt.Sprintf("the health of %s to be %v", addr, healthy), func() error {
		var state struct {
			Services map[string]struct {
				Version, Applied uint64
				Endpoints        []struct {
					Address string
					Healthy bool
				}
			}
		}
		_, body := p.get("/endpoints")
		if err := json.Unmarshal([]byte(body), &state); err != nil {
			return err
		}
		s := state.Services[service]
		for _, e := range s.Endpoints {
			if e.Address == addr && (e.Healthy != healthy || s.Applied != s.Version) {
				return fmt.Errorf("%+v", s)
			}
		}
		if _, metrics := p.get("/metrics"); !strings.Contains(metrics, line) {
			return fmt.Errorf("no metric %s", line)
		}
		return nil
	})
}
