package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/freeport"
	"github.com/remora-proxy/remora/internal/leaktest"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/reactor"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/registry"
)

func TestMain(m *testing.M) {
	leaktest.Main(m)
}

// waitLimit is how long a test waits before it fails.
const waitLimit = time.Minute

// sidecar is the core on real loops, with a stream Server.
type sidecar struct {
	t       *testing.T
	reactor *reactor.Reactor
	proc    *proxy.Process
	srv     *Server
	ln      *Listener
	addr    string
	log     string // path of the access log; empty if there is none
}

// options are the options of a sidecar.
type options struct {
	connections int    // limits.connections
	perSource   int    // limits.per_source
	timeout     string // timeout of the service
	more        string // keys of the configuration
}

// newSidecar starts a sidecar with the service app at the endpoints, and opens the first
// of its listeners, which is a tcp listener.
func newSidecar(t *testing.T, o options, endpoints ...string) *sidecar {
	t.Helper()
	s := startSidecar(t, `
admin: {address: ""}
listeners:
  - {name: in, address: "127.0.0.1:0", protocol: tcp, service: app}
  - {name: http, address: "127.0.0.1:0", protocol: http, service: app}
services: {app: {discover: static, endpoints: ["127.0.0.1:1"], protocol: http, connect_timeout: 15s, timeout: `+cmp.Or(o.timeout, "15s")+`}}
`+o.more, reactor.Options{MaxConnections: o.connections, MaxPerSource: o.perSource})
	var list []registry.Endpoint
	for _, addr := range endpoints {
		list = append(list, endpoint(addr))
	}
	s.update(list...)
	s.open()
	return s
}

// open opens the first listener of the configuration, a tcp listener.
func (s *sidecar) open() {
	s.t.Helper()
	var err error
	if s.ln, err = listen(s.srv); err != nil {
		s.t.Fatal(err)
	}
	s.addr = s.ln.Addr().String()
}

// startSidecar starts a sidecar with the configuration, and opens no listener.
func startSidecar(t *testing.T, yaml string, o reactor.Options) *sidecar {
	t.Helper()
	cfg, err := config.Parse("test.yaml", []byte(yaml), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(yaml, "half_close") { // tests of other subjects see at once that a client has left
		cfg.Timeouts.HalfClose = 0
	}
	s := &sidecar{t: t}
	log := slog.New(slog.DiscardHandler)
	o.Loops, o.Logger = 2, log
	if s.reactor, err = reactor.Start(o); err != nil {
		t.Fatal(err)
	}
	s.proc = proxy.NewProcess(cfg, 2)
	if cfg.AccessLog.Path != "" {
		s.openAccessLog()
	}
	for i, l := range s.reactor.Loops() {
		proxy.NewWorker(s.proc, l, log, uint64(i))
	}
	s.srv = New(Options{Process: s.proc, Dial: s.reactor.DialSocketWith, Reserver: s.reactor.Reserver, Logger: log})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		if err := errors.Join(s.srv.Close(ctx), s.reactor.Stop(ctx)); err != nil {
			t.Error(err)
		}
		if n := s.proc.Held(); n != 0 {
			t.Errorf("%d bytes still count at the end", n)
		}
	})
	return s
}

// update makes list the endpoints of the service, on all loops.
func (s *sidecar) update(list ...registry.Endpoint) {
	s.t.Helper()
	snap := registry.NewSnapshot("app", registry.SourceLive, time.Unix(1700000000, 0), list)
	s.proc.Update(snap)
	s.eventually("the snapshot to be applied", func() error {
		for _, r := range s.reports() {
			if r.Services[0].Version != snap.Version {
				return errors.New("not yet")
			}
		}
		return nil
	})
}

func (s *sidecar) reports() []stats.WorkerReport {
	s.t.Helper()
	var reports []stats.WorkerReport
	for _, w := range s.proc.Workers() {
		c := make(chan stats.WorkerReport, 1)
		w.Post(func() { c <- w.Report(stats.Forecasts) })
		reports = append(reports, receive(s.t, c, "a loop's report"))
	}
	return reports
}

// totals returns the counts of all loops together.
func (s *sidecar) totals() (sum stats.ServiceStats, failures map[string]uint64) {
	s.t.Helper()
	failures = map[string]uint64{}
	for _, r := range s.reports() {
		sum.Add(&r.Services[0].Stats)
		for k, n := range r.Stats.Errors {
			failures[k.Code] += n
		}
	}
	return sum, failures
}

// waitIdle waits until no stream and no connection is left.
func (s *sidecar) waitIdle() {
	s.t.Helper()
	s.eventually("all streams to be over", func() error {
		if st := s.reactor.Stats(); st.Open != 0 {
			return fmt.Errorf("engine %+v", st)
		}
		return s.checkNoStreams(0)
	})
}

func (s *sidecar) eventually(what string, try func() error) {
	s.t.Helper()
	eventually.Nil(s.t, what, try)
}

// dial connects a client.
func (s *sidecar) dial() *net.TCPConn {
	s.t.Helper()
	return s.dialFrom("127.0.0.1")
}

// dialFrom connects a client from an address of loopback.
func (s *sidecar) dialFrom(ip string) *net.TCPConn {
	s.t.Helper()
	nc, err := dialFrom(ip, s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(waitLimit))
	return nc.(*net.TCPConn)
}

func dialFrom(ip, addr string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	return d.Dial("tcp", addr)
}

// pair connects a client and returns both ends of its stream.
func (s *sidecar) pair(app *app) (client, server *net.TCPConn) {
	s.t.Helper()
	client = s.dial()
	return client, receive(s.t, app.conns, "the application to get the connection")
}

func receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(waitLimit):
		t.Fatalf("timeout waiting for %s", what)
		panic("unreachable")
	}
}

// app is an application that gives its connections to the test.
type app struct {
	addr  string
	conns chan *net.TCPConn
}

func newApp(t *testing.T) *app {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &app{addr: ln.Addr().String(), conns: make(chan *net.TCPConn, 1024)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			_ = nc.SetDeadline(time.Now().Add(waitLimit))
			a.conns <- nc.(*net.TCPConn)
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
		for len(a.conns) > 0 {
			(<-a.conns).Close()
		}
	})
	return a
}

// handle returns the address of an application with a handler.
func handle(t *testing.T, h http.HandlerFunc) (addr string) {
	t.Helper()
	app := httptest.NewServer(h)
	t.Cleanup(app.Close)
	return app.Listener.Addr().String()
}

// refusingAddr returns an address that refuses connections until the end of the test.
func refusingAddr(t *testing.T) string {
	t.Helper()
	addr, release, err := freeport.Refusing()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return addr
}

// wantError checks the status and the code of a response; no code means that the sidecar has not made the response.
func wantError(t *testing.T, to string, resp *http.Response, status int, code string) {
	t.Helper()
	if got := resp.Header.Get("X-Remora-Error"); resp.StatusCode != status || got != code {
		t.Errorf("%s got %s %q, want %d %q", to, resp.Status, got, status, code)
	}
}

// wantReset checks that nc ends with a reset.
func wantReset(t *testing.T, who string, nc net.Conn) {
	t.Helper()
	if _, err := io.ReadAll(nc); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%s read to %v, want a reset", who, err)
	}
}

// wantRefused checks that a client is reset.
func (s *sidecar) wantRefused() {
	s.t.Helper()
	s.wantRefusedFrom("127.0.0.1")
}

// wantRefusedFrom is wantRefused for a client at an address of loopback. Connecting may already
// return the reset.
func (s *sidecar) wantRefusedFrom(ip string) {
	s.t.Helper()
	nc, err := dialFrom(ip, s.addr)
	if errors.Is(err, syscall.ECONNRESET) {
		return
	}
	if err != nil {
		s.t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(waitLimit))
	wantReset(s.t, "a client that can't be served", nc)
}

// waitFilesClosed waits until no more descriptors are open than before. Package net
// keeps the pipes of splice until the next garbage collections.
func (s *sidecar) waitFilesClosed(before int) {
	s.t.Helper()
	s.eventually("descriptors to be closed", func() error {
		runtime.GC()
		if n := openFiles(s.t); n > before {
			return fmt.Errorf("%d open, %d before", n, before)
		}
		return nil
	})
}

func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc/self/fd")
	}
	return len(all)
}

// endpoint returns a plain endpoint.
func endpoint(addr string) registry.Endpoint { return registry.Endpoint{Addr: addr, Weight: 1} }

// listen serves the first listener of the configuration.
func listen(srv *Server) (*Listener, error) {
	c := &srv.config().Listeners[0]
	ln, err := net.Listen("tcp", c.Address)
	if err != nil {
		return nil, err
	}
	return srv.Serve(ln, c)
}
