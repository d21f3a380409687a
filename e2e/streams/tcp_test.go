package streams

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
)

// tcpSidecar starts a sidecar with a tcp listener in front of endpoint.
func tcpSidecar(t *testing.T, endpoint, more string) (*harness.Process, string) {
	in := harness.FreeAddrs(t, 1)[0]
	p := harness.Start(t, fmt.Sprintf(`
loops: 2
listeners: [{name: in, address: %q, protocol: tcp, service: app}]
services: {app: {discover: static, endpoints: [%q], protocol: tcp, connect_timeout: 15s, timeout: 2m}}
%s`, in, endpoint, more))
	p.Ready()
	return p, in
}

// TestTCPCarriesHTTP2: a tcp listener passes HTTP/2 with prior knowledge, which gRPC uses,
// as opaque bytes.
func TestTCPCarriesHTTP2(t *testing.T) {
	app := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s", r.Proto, body)
	}))
	app.Config.Protocols = harness.Protocols("2")
	app.Start()
	defer app.Close()
	p, in := tcpSidecar(t, app.Listener.Addr().String(), "")
	transport := &http.Transport{Protocols: app.Config.Protocols}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, Timeout: harness.Patience}
	for i := range 20 {
		_, got := must.Post(t, &client, "http://"+in+"/", "text/plain", strings.NewReader(fmt.Sprint(i)))
		if want := fmt.Sprintf("HTTP/2.0 %d", i); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	_, metrics := p.Get("/metrics")
	for _, want := range []string{
		`remora_streams_open{service="app"} 1`,
		`remora_streams_total{result="connected",service="app"} 1`,
		`remora_reactor_connections{direction="in"} 1`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
}

// TestTCPOverLink: a client and a TCP server exchange bytes through two sidecars, and the
// server gets the client's half-close. HTTP requests to that server are refused.
func TestTCPOverLink(t *testing.T) {
	app := harness.ServeTCP(t, func(nc net.Conn) {
		_, _ = io.WriteString(nc, "+hello\r\n") // servers may speak first
		n, _ := io.Copy(io.Discard, nc)
		fmt.Fprintf(nc, ":%d\r\n", n)
	})
	free := harness.FreeAddrs(t, 3)
	ingress, in, web := free[0], free[1], free[2]
	p := harness.Start(t, fmt.Sprintf(`
loops: 1
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: tcp, connect_timeout: 15s, timeout: 2m}}`, ingress, app))
	p.Ready()
	c := harness.Start(t, fmt.Sprintf(`
loops: 1
limits: {message: 64KiB}
listeners: [{name: in, address: %q, protocol: tcp, service: store}, {name: web, address: %q, protocol: http, service: store}]
services: {store: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m}}`, in, web, ingress))
	c.Ready()
	client := harness.Dial(t, "tcp", in)
	defer client.Close()
	hello := make([]byte, len("+hello\r\n"))
	if _, err := io.ReadFull(client, hello); string(hello) != "+hello\r\n" || err != nil {
		t.Errorf("the server sent %q, %v", hello, err)
	}
	const length = 3 << 20
	must.Write(t, client, make([]byte, length))
	_ = client.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(client); string(got) != fmt.Sprintf(":%d\r\n", length) || err != nil {
		t.Errorf("after the client's last byte the server sent %q, %v", got, err)
	}
	for _, body := range []int{10, 200 << 10} { // a whole message, and a stream
		resp, _ := must.Post(t, http.DefaultClient, "http://"+web+"/", "", strings.NewReader(strings.Repeat("x", body)))
		if code := resp.Header.Get("x-remora-error"); resp.StatusCode != http.StatusNotFound || code != "no-route" {
			t.Errorf("a request of %d bytes: response %d %s", body, resp.StatusCode, code)
		}
	}
}

// TestTCPDrain: a drain waits until streams have ended, and cuts off the others after
// timeouts.drain.
func TestTCPDrain(t *testing.T) {
	for _, c := range []struct {
		name, more string
		finish     bool // the client ends its stream
	}{
		{"ends", "timeouts: {drain: 10m}", true},
		{"cut", "timeouts: {drain: 300ms}", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			echo := harness.ServeTCP(t, func(nc net.Conn) { _, _ = io.Copy(nc, nc) })
			p, in := tcpSidecar(t, echo, c.more)
			client := harness.Dial(t, "tcp", in)
			talk := func(s string) {
				t.Helper()
				got := make([]byte, len(s))
				must.Write(t, client, s)
				if _, err := io.ReadFull(client, got); string(got) != s || err != nil {
					t.Fatalf("got %q, %v", got, err)
				}
			}
			talk("before")
			p.Signal(syscall.SIGTERM)
			harness.Refused(t, in)
			if c.finish {
				talk("while it drains")
				_ = client.(*net.TCPConn).CloseWrite()
			}
			rest, err := io.ReadAll(client)
			if c.finish != (err == nil) || len(rest) > 0 {
				t.Errorf("the stream ended with %q, %v", rest, err)
			}
			p.Ends()
		})
	}
}
