package routing

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/protocol"
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
	addrs := harness.FreeAddrs(t, 2)
	harness.Start(t, fmt.Sprintf(`
loops: 1
listeners: [{name: ingress, address: %q, protocol: link, service: app}]
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 4m}}`, addrs[0], srv.Listener.Addr())).Ready()
	harness.Start(t, fmt.Sprintf(`
loops: 1
limits: {message: 64KiB}
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{match: {path: /linked}, service: linked}, {service: straight}]
services:
  linked: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 4m}
  straight: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 4m}`, addrs[1], addrs[0], srv.Listener.Addr())).Ready()
	for _, path := range []string{"/straight", "/linked"} {
		for _, size := range []int{0, 100, 1 << 20} {
			for name, value := range map[string]string{"X-Remora-Timeout-Ms": "120000", "X-Envoy-Expected-Rq-Timeout-Ms": "120000", "Grpc-Timeout": "2M"} {
				req := must.Request(t, http.MethodPost, "http://"+addrs[1]+path, bytes.NewReader(make([]byte, size)))
				req.Header.Set(name, value)
				must.Do(t, http.DefaultClient, req)
				seen := harness.Receive(t, "the request", got)
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
	egress := harness.FreeAddrs(t, 1)[0]
	harness.Start(t, fmt.Sprintf(`
loops: 1
limits: {message: 64KiB}
listeners: [{name: egress, address: %q, protocol: http, service: app}]
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 4m}}`, egress, srv.Listener.Addr())).Ready()
	send := func(path, timeout string, size int) string {
		t.Helper()
		req := must.Request(t, http.MethodPost, "http://"+egress+path, bytes.NewReader(make([]byte, size)))
		if size == 0 {
			req.Method = http.MethodGet
			req.Header = http.Header{"Connection": {"upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}}
		}
		req.Header.Set("X-Remora-Timeout-Ms", timeout)
		resp, _ := must.Do(t, http.DefaultClient, req)
		return resp.Status + " " + resp.Header.Get("X-Remora-Error")
	}
	const want = "504 Gateway Timeout deadline"
	for _, size := range []int{0, 1 << 20} {
		if got := send("/late", "0", size); got != want {
			t.Errorf("%d bytes, no time left: %s", size, got)
		}
		// A busy machine may take all of that time to reach the application.
		for left := 200; len(reached) == 0 && left < 30_000; left *= 2 {
			if got := send("/slow", strconv.Itoa(left), size); got != want {
				t.Errorf("%d bytes, %d ms left: %s", size, left, got)
			}
		}
		if path := harness.Receive(t, "the request", reached); path != "/slow" {
			t.Errorf("%d bytes: the application got %s", size, path)
		}
	}
}
