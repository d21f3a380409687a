package endpoints

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
)

// database is a server of a protocol without HTTP, which says its name to each client. Its role is
// asked for by HTTP, at another port.
type database struct {
	name    string
	addr    string
	primary atomic.Bool
}

// startDatabases starts a database on each of 127.0.0.2 and 127.0.0.3. All have one port for checks.
func startDatabases(t *testing.T) (one, two *database, port string) {
	t.Helper()
	one, two = &database{name: "one"}, &database{name: "two"}
	_, port, _ = net.SplitHostPort(harness.FreeAddrs(t, 1)[0])
	one.start(t, "127.0.0.2", port)
	two.start(t, "127.0.0.3", port)
	return one, two, port
}

func (d *database) start(t *testing.T, ip, port string) {
	t.Helper()
	checks := must.ListenOn(t, "tcp", net.JoinHostPort(ip, port))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /primary", func(w http.ResponseWriter, r *http.Request) {
		if !d.primary.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(checks) }()
	t.Cleanup(func() { server.Close() })
	sessions := must.ListenOn(t, "tcp", ip+":0")
	d.addr = sessions.Addr().String()
	go harness.Accept(sessions, func(nc net.Conn) {
		fmt.Fprintln(nc, d.name)
		_, _ = io.Copy(nc, nc)
	})
}

// databaseSession is a client's connection.
type databaseSession struct {
	net.Conn
	r    *bufio.Reader
	name string // of the database; "" means that none took the session
}

func openSession(addr string) (*databaseSession, error) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	_ = nc.SetDeadline(time.Now().Add(harness.Patience))
	s := &databaseSession{Conn: nc, r: bufio.NewReader(nc)}
	s.name, _ = s.r.ReadString('\n')
	return s, nil
}

// TestCheckBeside: sessions go to the database that a check at another port calls the primary, and
// end when it no longer is, whether the client's sidecar checks or the one before the databases.
func TestCheckBeside(t *testing.T) {
	one, two, port := startDatabases(t)
	addrs := harness.FreeAddrs(t, 3)
	near := harness.Start(t, fmt.Sprintf(`
listeners:
  - {name: tcp, address: %q, protocol: tcp, service: db}
  - {name: link, address: %q, protocol: link, service: db}
services:
  db:
    discover: static
    endpoints: [%q, %q]
    protocol: tcp
    connect_timeout: 15s
    check: {http: /primary, port: %s, on_down: close, interval: 20ms, timeout: 30s, healthy: 1, unhealthy: 2}`,
		addrs[0], addrs[1], one.addr, two.addr, port))
	far := harness.Start(t, fmt.Sprintf(`
listeners: [{name: tcp, address: %q, protocol: tcp, service: db}]
services: {db: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s}}`, addrs[2], addrs[1]))
	near.Ready()
	far.Ready()
	ways := map[string]string{"one sidecar": addrs[0], "two sidecars": addrs[2]}
	sessions := map[string]*databaseSession{}
	// ended waits until the sessions have ended.
	ended := func() {
		t.Helper()
		for way, s := range sessions {
			if n, err := s.r.WriteTo(io.Discard); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: a session to %s got %d bytes, %v", way, s.name, n, err)
			}
			s.Close()
		}
	}
	for _, c := range []struct {
		name     string
		one, two bool   // which is the primary
		want     string // that sessions go to
	}{
		{"nobody", false, false, ""},
		{"the first", true, false, "one\n"},
		{"failover", false, false, ""},
		{"the second", false, true, "two\n"},
	} {
		one.primary.Store(c.one)
		two.primary.Store(c.two)
		ended()
		clear(sessions)
		for way, addr := range ways {
			eventually.Nil(t, c.name+": sessions of "+way, func() error {
				s, err := openSession(addr)
				if err != nil {
					return err
				}
				if s.name != c.want {
					s.Close()
					return fmt.Errorf("to %q, want %q", s.name, c.want)
				}
				sessions[way] = s
				return nil
			})
		}
	}
	near.AwaitMetric(`remora_errors_total{code="endpoint-down",listener="tcp"}`, 1) // more if sessions were tried while no check had passed
	if _, body := near.Get("/endpoints"); !strings.Contains(body, `"healthy": false`) || !strings.Contains(body, `"healthy": true`) {
		t.Errorf("endpoints: %s", body)
	}
}
