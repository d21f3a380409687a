package limits

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
)

// descriptors returns the number of open descriptors of the process.
func descriptors(t *testing.T, p *harness.Process) int {
	t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// keepOpen sends a GET for path to addr on a connection that stays open, and returns the error of
// the response.
func keepOpen(t *testing.T, addr, path string) error {
	t.Helper()
	nc := harness.Dial(t, "tcp", addr)
	if _, err := fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// TestAdminConnections: callers of the admin API that keep their connections open take no more
// descriptors than limits.admin_connections, and each probe is answered.
func TestAdminConnections(t *testing.T) {
	const limit, flood = 4, 100
	p, _ := harness.Consumer(t, harness.NewApp(t), fmt.Sprintf("limits: {admin_connections: %d}", limit))
	p.Ready()
	before := descriptors(t, p)
	for i := range flood {
		if err := keepOpen(t, p.Admin, "/healthz"); err != nil {
			t.Fatalf("probe %d: %v", i, err)
		}
	}
	if n := descriptors(t, p); n > before+limit {
		t.Errorf("%d descriptors, %d before, with %d idle connections of the admin API", n, before, flood)
	}
	p.Await("/healthz", 200, "ok\n")
	p.Ready()
}

// TestAdminFlood: a health check is answered although a flood of connections arrives between its
// connection and its request. The flood comes from one source, or from more sources than the admin
// API has places. In the second case the source of the check has checked before.
func TestAdminFlood(t *testing.T) {
	const limit, flood = 32, 128
	p, _ := harness.Consumer(t, harness.NewApp(t), fmt.Sprintf("limits: {admin_connections: %d}", limit))
	p.Ready() // a check from 127.0.0.1
	dial := func(from string) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: harness.Patience}
		nc, err := d.Dial("tcp", p.Admin)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(harness.Patience))
		return nc
	}
	respond := func(nc net.Conn, path string) error {
		_, _ = fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", path)
		_, err := http.ReadResponse(bufio.NewReader(nc), nil)
		return err
	}
	for _, c := range []struct{ name, check, flood string }{
		{"one source", "127.0.0.9", "127.0.0.2"},
		{"many sources", "127.0.0.1", "127.0.1.%d"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, path := range []string{"/healthz", "/readyz"} {
				check := dial(c.check)
				var last net.Conn
				for i := range flood {
					last = dial(strings.Replace(c.flood, "%d", strconv.Itoa(i+1), 1))
				}
				// Connections are accepted in their order: after this response all of them are.
				if err := respond(last, "/none"); err != nil {
					t.Fatalf("the last connection of the flood: %v", err)
				}
				if err := respond(check, path); err != nil {
					t.Errorf("%s: %v", path, err)
				}
			}
		})
	}
}

// askOnce sends a GET on a new connection to addr, and returns the status, or 0 if the connection
// ended without a response.
func askOnce(t *testing.T, addr string) (status int) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return 0
	}
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(harness.Patience))
	_, _ = io.WriteString(nc, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		return 0
	}
	return resp.StatusCode
}

// TestDescriptorReserve: however many clients connect, each one that is accepted gets its
// connection to the application, and probes of the admin API are answered.
func TestDescriptorReserve(t *testing.T) {
	const files, flood = 400, 600
	for _, protocol := range []string{"http", "tcp"} {
		t.Run(protocol, func(t *testing.T) {
			var arrived, ended atomic.Int64
			released := make(chan struct{})
			release := sync.OnceFunc(func() { close(released) })
			app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				arrived.Add(1)
				<-released
			}))
			defer app.Close()
			defer release()
			in := harness.FreeAddrs(t, 1)[0]
			p := harness.StartWithin(t, files, fmt.Sprintf(`
loops: 2
limits: {admin_connections: 16}
listeners: [{name: in, address: %q, protocol: %s, service: app}]
services: {app: {discover: static, endpoints: [%q], protocol: %s, connect_timeout: 15s, timeout: 5m}}`,
				in, protocol, app.Listener.Addr(), protocol))
			p.Ready()

			statuses := make(chan int, flood)
			for range flood {
				go func() {
					status := askOnce(t, in)
					ended.Add(1)
					statuses <- status
				}()
			}
			eventually.True(t, "each connection to be served or closed", func() bool { return arrived.Load()+ended.Load() == flood })
			for i := range 50 {
				if err := keepOpen(t, p.Admin, "/readyz"); err != nil {
					t.Fatalf("probe %d: %v", i, err)
				}
			}
			p.Counts("remora_reactor_dial_errors_total", 0)
			t.Logf("%d of %d connections were accepted", arrived.Load(), flood)
			release()
			served := 0
			for range flood {
				switch status := harness.Receive(t, "an end", statuses); status {
				case 200:
					served++
				case 0:
				default:
					t.Errorf("an accepted request got %d", status)
				}
			}
			if served < 30 {
				t.Errorf("%d of %d connections were served, far fewer than %d descriptors allow", served, flood, files)
			}
		})
	}
}

// TestDescriptorsBehindLink: links bring more requests than the provider has descriptors for.
// Those without one wait for a connection that is open or are refused, and the admin API works on.
func TestDescriptorsBehindLink(t *testing.T) {
	const files, flood = 300, 400
	released := make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		<-released
	}))
	defer app.Close()
	defer release()
	ingress := harness.FreeAddrs(t, 1)[0]
	p := harness.StartWithin(t, files, fmt.Sprintf(`
loops: 2
limits: {admin_connections: 16}
listeners: [{name: in, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 5m}}`,
		ingress, app.Listener.Addr()))
	p.Ready()
	egress := harness.FreeAddrs(t, 1)[0]
	harness.Start(t, fmt.Sprintf(`
loops: 2
listeners: [{name: out, address: %q, protocol: http, service: app}]
services: {app: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 5m, retry: {on: []}}}`,
		egress, ingress)).Ready()

	statuses := make(chan int, flood)
	for range flood {
		go func() { statuses <- askOnce(t, egress) }()
	}
	p.AwaitMetric("remora_reactor_dial_errors_total", 1)
	for i := range 50 {
		if err := keepOpen(t, p.Admin, "/readyz"); err != nil {
			t.Fatalf("probe %d: %v", i, err)
		}
	}
	release()
	for range flood {
		if status := harness.Receive(t, "an end", statuses); status != 200 && status != 503 {
			t.Errorf("status %d", status)
		}
	}
	if strings.Contains(p.Output.String(), "too many open files") {
		t.Error("descriptors ran out")
	}
}
