package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
)

// TestDeadlineReachesApplications: a caller's timeout goes through one sidecar and through two,
// and reaches the application shorter each time: of messages, and of long bodies.
func TestDeadlineReachesApplications(t *testing.T) {
	const timeout = 2 * time.Minute
	got := make(chan http.Header, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got <- r.Header.Clone()
	}))
	defer srv.Close()
	addrs := freeAddrs(t, 2)
	startRemora(t, fmt.Sprintf(`
loops: 1
listeners: [{name: ingress, address: %q, protocol: link, service: app}]
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 4m}}`, addrs[0], srv.Listener.Addr())).ready()
	startRemora(t, fmt.Sprintf(`
loops: 1
limits: {message: 64KiB}
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{match: {path: /linked}, service: linked}, {service: straight}]
services:
  linked: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 4m}
  straight: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 4m}`, addrs[1], addrs[0], srv.Listener.Addr())).ready()
	for _, path := range []string{"/straight", "/linked"} {
		for _, size := range []int{0, 100, 1 << 20} {
			for name, value := range map[string]string{"X-Remora-Timeout-Ms": "120000", "X-Envoy-Expected-Rq-Timeout-Ms": "120000", "Grpc-Timeout": "2M"} {
				req, err := http.NewRequest(http.MethodPost, "http://"+addrs[1]+path, bytes.NewReader(make([]byte, size)))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set(name, value)
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				seen := receive(t, "the request", got)
				for _, field := range []string{name, "X-Remora-Timeout-Ms"} {
					values := seen.Values(field)
					if len(values) != 1 {
						t.Errorf("%s, %d bytes: %s: %q", path, size, field, values)
						continue
					}
					left, ok := protocol.ParseTimeout(protocol.TimeoutFieldOf([]byte(field)), []byte(values[0]))
					if !ok || left >= timeout || left <= 0 {
						t.Errorf("%s, %d bytes: %s: %s of %v", path, size, field, values[0], timeout)
					}
				}
			}
		}
	}
}

// TestStreamDeadline: a long body or a WebSocket whose time is up gets 504 and reaches no
// application. A caller's timeout bounds the wait for the head of the response.
func TestStreamDeadline(t *testing.T) {
	reached := make(chan string, 64)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		reached <- r.URL.Path
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer srv.Close()
	egress := freeAddrs(t, 1)[0]
	startRemora(t, fmt.Sprintf(`
loops: 1
limits: {message: 64KiB}
listeners: [{name: egress, address: %q, protocol: http, service: app}]
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 4m}}`, egress, srv.Listener.Addr())).ready()
	send := func(path, timeout string, size int) string {
		t.Helper()
		req, err := http.NewRequest(http.MethodPost, "http://"+egress+path, bytes.NewReader(make([]byte, size)))
		if err != nil {
			t.Fatal(err)
		}
		if size == 0 {
			req.Method = http.MethodGet
			req.Header = http.Header{"Connection": {"upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}}
		}
		req.Header.Set("X-Remora-Timeout-Ms", timeout)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.Status + " " + resp.Header.Get("X-Remora-Error")
	}
	const want = "504 Gateway Timeout deadline"
	for _, size := range []int{0, 1 << 20} {
		if got := send("/late", "0", size); got != want {
			t.Errorf("%d bytes, no time left: %s", size, got)
		}
		if got := send("/slow", "200", size); got != want {
			t.Errorf("%d bytes, 200 ms left: %s", size, got)
		}
		if path := receive(t, "the request", reached); path != "/slow" {
			t.Errorf("%d bytes: the application got %s", size, path)
		}
	}
}

// TestDeadlineReachesDubbo: the timeout of a Dubbo consumer's call, and that of an HTTP request
// converted to a call, reach the provider shorter.
func TestDeadlineReachesDubbo(t *testing.T) {
	const timeout = 100_000 // milliseconds
	r := newResponder(t)
	_, egress, calls := dubboMesh(t, r)
	attached := regexp.MustCompile(`(?:timeout|_TO)(?:":"|[\x00-\x1f])([0-9]+)`)
	check := func(what string, n int) {
		t.Helper()
		body := receive(t, "the call", r.bodies)
		found := attached.FindAllSubmatch(body, -1)
		if len(found) != n {
			t.Errorf("%s: the provider got %q", what, body)
		}
		for _, m := range found {
			if left, err := strconv.Atoi(string(m[1])); err != nil || left <= 0 || left >= timeout {
				t.Errorf("%s: the provider has %s of %d ms", what, m[1], timeout)
			}
		}
	}
	body := hessianCall("echo", "x")
	body = append(body[:len(body)-1], "\x07timeout\x06100000\x03_TO\x06100000Z"...)
	c := dialDubbo(t, calls)
	if _, err := c.Write(dubbo.AppendFrame(nil, &dubbo.Frame{Request: true, TwoWay: true, Serialization: dubbo.Hessian2, ID: 1, Body: body})); err != nil {
		t.Fatal(err)
	}
	check("a consumer's call", 2)
	for _, service := range []string{"Demo", "Straight"} {
		req, err := http.NewRequest(http.MethodPost, egress+"/com.acme."+service+"/echo", strings.NewReader(`{"types":["java.lang.String"],"args":["x"]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Remora-Timeout-Ms", strconv.Itoa(timeout))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		check(service, 2)
	}
}
