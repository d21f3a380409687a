package limits

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
)

// failingApp is an application that a test can make fail. It counts its requests.
type failingApp struct {
	fails    atomic.Bool
	requests atomic.Int64
}

func (m *failingApp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.requests.Add(1)
	if m.fails.Load() {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// start starts the application, which serves until the end of the test.
func (m *failingApp) start(t *testing.T) (addr string) {
	srv := httptest.NewServer(m)
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// wantResponse sends requests to addr until the response has the given status and code.
func wantResponse(t *testing.T, what, addr string, status int, code string) (h http.Header) {
	t.Helper()
	eventually.Nil(t, what, func() (err error) {
		var s int
		var c string
		if s, c, h, err = harness.Get(addr); err == nil && (s != status || c != code) {
			err = fmt.Errorf("response %d %s", s, c)
		}
		return err
	})
	return h
}

// limited starts a sidecar with the given keys of its listener and its service app, in
// front of an application. If provider is not empty, it is in front of the application's
// sidecar, with these keys.
func limited(t *testing.T, app, listener, service, provider string) (*harness.Process, string) {
	protocol := "http"
	if provider != "" {
		ingress := harness.FreeAddrs(t, 1)[0]
		harness.Start(t, fmt.Sprintf(`
loops: 2
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, %s}}`,
			ingress, app, provider)).Ready()
		app, protocol = ingress, "link"
	}
	egress := harness.FreeAddrs(t, 1)[0]
	p := harness.Start(t, fmt.Sprintf(`
loops: 2
listeners: [{name: egress, address: %q, protocol: http, %s}]
routes: [{service: app}]
services: {app: {discover: static, endpoints: [%q], protocol: %s, connect_timeout: 15s, retry: {on: []}, %s}}`,
		egress, listener, app, protocol, service))
	p.Ready()
	return p, egress
}

// TestRateLimit: after the burst a client gets 429 with Retry-After, which the
// application does not see. Later requests succeed.
func TestRateLimit(t *testing.T) {
	const limit = "rate_limit: {rate: 1, burst: 3}"
	for _, c := range []struct{ name, listener, service, provider string }{
		{"listener", limit, "", ""},
		{"service", "", limit, ""},
		{"service behind a link", "", "", limit},
	} {
		t.Run(c.name, func(t *testing.T) {
			app := &failingApp{}
			p, egress := limited(t, app.start(t), c.listener, c.service, c.provider)
			for range 3 {
				if status, code, _, err := harness.Get(egress); status != 200 {
					t.Fatalf("within the burst: %d %s, %v", status, code, err)
				}
			}
			h := wantResponse(t, "the limit to be reached", egress, 429, "rate-limited")
			if h.Get("Retry-After") != "1" {
				t.Errorf("Retry-After: %q", h.Get("Retry-After"))
			}
			asked := app.requests.Load()
			wantResponse(t, "the next token", egress, 200, "")
			if n := app.requests.Load(); n != asked+1 {
				t.Errorf("the application got %d requests, want 1", n-asked)
			}
			if n := p.Metric(`remora_errors_total{code="rate-limited"}`); n < 1 {
				t.Errorf("remora_errors_total says %d", n)
			}
		})
	}
}

// TestBreaker: an application that only fails gets no requests until a probe succeeds.
func TestBreaker(t *testing.T) {
	const breaker = "breaker: {consecutive: 3, open: 500ms}"
	for name, provider := range map[string]string{"direct": "", "behind a link": "max_concurrency: 8"} {
		t.Run(name, func(t *testing.T) {
			app := &failingApp{}
			p, egress := limited(t, app.start(t), "", breaker, provider)
			const state = `remora_breaker_state{service="app"}`
			app.fails.Store(true)
			for range 3 {
				if status, code, _, err := harness.Get(egress); status != 500 {
					t.Fatalf("%d %s, %v, want the application's 500", status, code, err)
				}
			}
			// Each time that the breaker was open long enough a probe passes, fails and
			// opens it again.
			open := func(what string) {
				t.Helper()
				eventually.Nil(t, what, func() error {
					asked := app.requests.Load()
					status, code, h, err := harness.Get(egress)
					if code != "breaker-open" {
						return fmt.Errorf("%d %s, %v", status, code, err)
					}
					if n := app.requests.Load(); n != asked || status != 503 || h.Get("Retry-After") != "1" {
						t.Errorf("%d, Retry-After: %q; the application got %d requests", status, h.Get("Retry-After"), n-asked)
					}
					return nil
				})
			}
			open("the breaker to be open")
			wantResponse(t, "a probe", egress, 500, "")
			open("the breaker to be open again")
			if n := p.Metric(state); n == 1 {
				t.Errorf("%s is %d with an application that fails", state, n)
			}
			app.fails.Store(false)
			wantResponse(t, "the probe that closes it", egress, 200, "")
			p.Counts(state, 1) // closed
			for range 10 {
				if status, code, _, err := harness.Get(egress); status != 200 {
					t.Errorf("closed, and %d %s, %v", status, code, err)
				}
			}
		})
	}
}

// TestRequestsPerConnection: the last response of a connection closes it, and net/http
// opens another one.
func TestRequestsPerConnection(t *testing.T) {
	p, egress := harness.Consumer(t, harness.NewApp(t), "limits: {requests: 2}")
	p.Ready()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, Timeout: harness.Patience}
	for i := range 6 {
		resp, err := client.Get("http://" + egress + "/")
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if last := i%2 == 1; err != nil || resp.StatusCode != 200 || resp.Close != last {
			t.Errorf("response %d: status %d, the last %t, %v", i+1, resp.StatusCode, resp.Close, err)
		}
	}
	p.Counts("remora_reactor_accepted_total", 3) // for 6 requests
}

// TestPerSource: one address may have limits.per_source connections, over listeners with
// and without a protocol. One more is closed, until another has ended.
func TestPerSource(t *testing.T) {
	in := harness.FreeAddrs(t, 2)
	p := harness.Start(t, fmt.Sprintf(`
loops: 2
listeners:
  - {name: egress, address: %q, protocol: http, service: app}
  - {name: opaque, address: %q, protocol: tcp, service: app}
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s}}
limits: {per_source: 2}`, in[0], in[1], harness.NewApp(t).Addr))
	p.Ready()
	// ask sends a request on a new connection, which stays open.
	ask := func(addr string) (nc net.Conn, status string, err error) {
		if nc, err = net.Dial("tcp", addr); err != nil {
			return nil, "", err
		}
		t.Cleanup(func() { nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(harness.Patience))
		_, _ = io.WriteString(nc, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		got := make([]byte, len("HTTP/1.1 200"))
		n, err := io.ReadFull(nc, got)
		return nc, string(got[:n]), err
	}
	first, _, err := ask(in[0])
	_, _, err2 := ask(in[1])
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	for i, addr := range in {
		if _, status, err := ask(addr); err == nil {
			t.Errorf("the third connection got %q", status)
		}
		if n := p.Metric("remora_reactor_refused_source_total"); n != i+1 {
			t.Errorf("%d refusals counted, want %d", n, i+1)
		}
	}
	first.Close()
	eventually.Nil(t, "a place to be free", func() error {
		_, _, err := ask(in[0])
		return err
	})
}

// TestPerSourceByDefault: one address off loopback gets a quarter of limits.connections, and
// clients on loopback are served beside it.
func TestPerSourceByDefault(t *testing.T) {
	var own net.IP
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			own = n.IP
		}
	}
	if own == nil {
		t.Skip("this machine has no address but loopback")
	}
	_, port, _ := net.SplitHostPort(harness.FreeAddrs(t, 1)[0])
	p := harness.Start(t, fmt.Sprintf(`
listeners: [{name: in, address: "0.0.0.0:%s", protocol: http, service: app}]
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s}}
limits: {connections: 40}`, port, harness.NewApp(t).Addr))
	p.Ready()
	far, near := net.JoinHostPort(own.String(), port), net.JoinHostPort("127.0.0.1", port)
	for range 10 {
		if err := keepOpen(t, far, "/"); err != nil {
			t.Fatal(err)
		}
	}
	if err := keepOpen(t, far, "/"); err == nil {
		t.Error("one address got more than a quarter of the connections")
	}
	for range 12 {
		if err := keepOpen(t, near, "/"); err != nil {
			t.Fatalf("on loopback: %v", err)
		}
	}
	p.Counts("remora_reactor_refused_source_total", 1)
}
