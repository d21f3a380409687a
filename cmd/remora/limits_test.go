package main

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

	"github.com/remora-proxy/remora/internal/eventually"
)

// moody is an application that fails while it is told to, and counts what it is
// asked.
type moody struct {
	fails atomic.Bool
	asked atomic.Int64
}

func (m *moody) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.asked.Add(1)
	if m.fails.Load() {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// start serves until the end of the test.
func (m *moody) start(t *testing.T) (addr string) {
	srv := httptest.NewServer(m)
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// get asks for /.
func get(addr string) (status int, code string, h http.Header, err error) {
	resp, err := http.Get("http://" + addr + "/")
	if err != nil {
		return 0, "", nil, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, "", nil, err
	}
	return resp.StatusCode, resp.Header.Get("X-Remora-Error"), resp.Header, nil
}

// wantAnswer gets addr until the answer is the one wanted.
func wantAnswer(t *testing.T, what, addr string, status int, code string) (h http.Header) {
	t.Helper()
	eventually.Nil(t, what, func() (err error) {
		var s int
		var c string
		if s, c, h, err = get(addr); err == nil && (s != status || c != code) {
			err = fmt.Errorf("answered %d %s", s, c)
		}
		return err
	})
	return h
}

// guarded starts a sidecar with these keys on its listener and its service app,
// in front of an application, or, with those of a provider, of its sidecar.
func guarded(t *testing.T, app, listener, service, provider string) (*process, string) {
	protocol := "http"
	if provider != "" {
		ingress := freeAddrs(t, 1)[0]
		startRemora(t, fmt.Sprintf(`
loops: 2
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, %s}}`,
			ingress, app, provider)).ready()
		app, protocol = ingress, "link"
	}
	egress := freeAddrs(t, 1)[0]
	p := startRemora(t, fmt.Sprintf(`
loops: 2
listeners: [{name: egress, address: %q, protocol: http, %s}]
routes: [{service: app}]
services: {app: {discover: static, endpoints: [%q], protocol: %s, connect_timeout: 15s, retry: {on: []}, %s}}`,
		egress, listener, app, protocol, service))
	p.ready()
	return p, egress
}

// TestRateLimit: net/http gets what the burst allows, then 429 with the word when
// to come again, of which the application sees nothing, and later more.
func TestRateLimit(t *testing.T) {
	const limit = "rate_limit: {rate: 1, burst: 3}"
	for _, c := range []struct{ name, listener, service, provider string }{
		{"listener", limit, "", ""},
		{"service", "", limit, ""},
		{"service behind a link", "", "", limit},
	} {
		t.Run(c.name, func(t *testing.T) {
			app := &moody{}
			p, egress := guarded(t, app.start(t), c.listener, c.service, c.provider)
			for range 3 {
				if status, code, _, err := get(egress); status != 200 {
					t.Fatalf("within the burst: %d %s, %v", status, code, err)
				}
			}
			h := wantAnswer(t, "the limit to be reached", egress, 429, "rate-limited")
			if h.Get("Retry-After") != "1" {
				t.Errorf("Retry-After: %q", h.Get("Retry-After"))
			}
			asked := app.asked.Load()
			wantAnswer(t, "the next token", egress, 200, "")
			if n := app.asked.Load(); n != asked+1 {
				t.Errorf("the application was asked %d times for one answer", n-asked)
			}
			if n := p.metric(`remora_errors_total{code="rate-limited"}`); n < 1 {
				t.Errorf("remora_errors_total says %d", n)
			}
		})
	}
}

// TestBreaker: an application that only fails is left alone; a probe finds out
// that it is well again.
func TestBreaker(t *testing.T) {
	const breaker = "breaker: {consecutive: 3, open: 500ms}"
	for name, provider := range map[string]string{"direct": "", "behind a link": "max_concurrency: 8"} {
		t.Run(name, func(t *testing.T) {
			app := &moody{}
			p, egress := guarded(t, app.start(t), "", breaker, provider)
			const state = `remora_breaker_state{service="app"}`
			app.fails.Store(true)
			for range 3 {
				if status, code, _, err := get(egress); status != 500 {
					t.Fatalf("%d %s, %v, want the application's 500", status, code, err)
				}
			}
			// Each time that it is open for long enough a probe passes, and
			// opens it anew.
			open := func(what string) {
				t.Helper()
				eventually.Nil(t, what, func() error {
					asked := app.asked.Load()
					status, code, h, err := get(egress)
					if code != "breaker-open" {
						return fmt.Errorf("%d %s, %v", status, code, err)
					}
					if n := app.asked.Load(); n != asked || status != 503 || h.Get("Retry-After") != "1" {
						t.Errorf("%d, Retry-After: %q; the application was asked %d times", status, h.Get("Retry-After"), n-asked)
					}
					return nil
				})
			}
			open("the breaker to be open")
			wantAnswer(t, "a probe", egress, 500, "")
			open("the breaker to be open again")
			if n := p.metric(state); n == 1 {
				t.Errorf("%s is %d with an application that fails", state, n)
			}
			app.fails.Store(false)
			wantAnswer(t, "the probe that closes it", egress, 200, "")
			if n := p.metric(state); n != 1 {
				t.Errorf("%s is %d, want 1: closed", state, n)
			}
			for range 10 {
				if status, code, _, err := get(egress); status != 200 {
					t.Errorf("closed, and %d %s, %v", status, code, err)
				}
			}
		})
	}
}

// TestRequestsPerConnection: net/http sees the last answer of a connection as
// such and takes another one for what follows.
func TestRequestsPerConnection(t *testing.T) {
	p, egress := consumer(t, newApp(t), "limits: {requests: 2}")
	p.ready()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, Timeout: patience}
	for i := range 6 {
		resp, err := client.Get("http://" + egress + "/")
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if last := i%2 == 1; err != nil || resp.StatusCode != 200 || resp.Close != last {
			t.Errorf("answer %d: status %d, the last %t, %v", i+1, resp.StatusCode, resp.Close, err)
		}
	}
	if n := p.metric("remora_reactor_accepted_total"); n != 3 {
		t.Errorf("%d connections for 6 requests, want 3", n)
	}
}

// TestPerSource: one address has limits.per_source connections over listeners
// with and without a protocol; one more is closed, and let in when another has
// ended.
func TestPerSource(t *testing.T) {
	in := freeAddrs(t, 2)
	p := startRemora(t, fmt.Sprintf(`
loops: 2
listeners:
  - {name: egress, address: %q, protocol: http, service: app}
  - {name: opaque, address: %q, protocol: tcp, service: app}
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s}}
limits: {per_source: 2}`, in[0], in[1], newApp(t).addr))
	p.ready()
	// ask sends a request on a connection of its own, which stays open.
	ask := func(addr string) (nc net.Conn, status string, err error) {
		if nc, err = net.Dial("tcp", addr); err != nil {
			return nil, "", err
		}
		t.Cleanup(func() { nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(patience))
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
			t.Errorf("the third connection is answered %q", status)
		}
		if n := p.metric("remora_reactor_refused_source_total"); n != i+1 {
			t.Errorf("%d refusals counted, want %d", n, i+1)
		}
	}
	first.Close()
	eventually.Nil(t, "a place to be free", func() error {
		_, _, err := ask(in[0])
		return err
	})
}
