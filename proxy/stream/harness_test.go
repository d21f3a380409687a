package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/freeport"
	"github.com/remora-proxy/remora/internal/leaktest"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/registry"
)

func TestMain(m *testing.M) {
	leaktest.Main(m)
}

// waitLimit is how long a test waits before it fails.
const waitLimit = time.Minute

// sidecar runs the core on real loops, with a stream Server.
type sidecar struct {
	clients // of its first listener
	counts  counts
	entry   entry
	log     *accessLog // nil if there is none

	reactor *reactor.Reactor
	proc    *proxy.Process
	srv     *Server
	ln      *Listener
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
	s := &sidecar{clients: clients{t: t}}
	log := slog.New(slog.DiscardHandler)
	o.Loops, o.Logger = 2, log
	if s.reactor, err = reactor.Start(o); err != nil {
		t.Fatal(err)
	}
	s.proc = proxy.NewProcess(cfg, 2)
	if cfg.AccessLog.Path != "" {
		s.log = openAccessLog(t, s.proc)
	}
	for i, l := range s.reactor.Loops() {
		proxy.NewWorker(s.proc, l, log, uint64(i))
	}
	s.srv = New(Options{Process: s.proc, Dial: s.reactor.SocketDialer().Dial, Reserver: s.reactor.Connections().Reserver, Logger: log, Panics: s.reactor.Panics()})
	s.counts = counts{t, s.reactor, s.proc, s.srv}
	s.entry = entry{t, s.srv, s.reactor.Loops()[0]}
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
		for _, r := range s.counts.reports() {
			if r.Services[0].Version != snap.Version {
				return errors.New("not yet")
			}
		}
		return nil
	})
}

func (s *sidecar) eventually(what string, try func() error) {
	s.t.Helper()
	eventually.Nil(s.t, what, try)
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
	a := &app{conns: make(chan *net.TCPConn, 1024)}
	t.Cleanup(func() { // after the last connection was accepted
		for len(a.conns) > 0 {
			(<-a.conns).Close()
		}
	})
	a.addr = acceptEach(t, func(nc *net.TCPConn) {
		_ = nc.SetDeadline(time.Now().Add(waitLimit))
		a.conns <- nc
	})
	return a
}

// acceptEach returns an address whose connections are given to take until the end of the test.
func acceptEach(t *testing.T, take func(nc *net.TCPConn)) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			take(nc.(*net.TCPConn))
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr().String()
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

// waitFilesClosed waits until no more descriptors are open than before. Package net
// keeps the pipes of splice until the next garbage collections.
func waitFilesClosed(t *testing.T, before int) {
	t.Helper()
	eventually.Nil(t, "descriptors to be closed", func() error {
		runtime.GC()
		if n := openFiles(t); n > before {
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

// dialBy makes the sidecar connect to its endpoints by Sockets that wrap returns. n counts them from 1 on.
func (s *sidecar) dialBy(wrap func(n int32, nc socket) (loop.Socket, error)) {
	var dials atomic.Int32
	s.srv.opt.Dial = func(_ context.Context, addr, _, _ string, _ []byte) (loop.Socket, error) {
		n := dials.Add(1)
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			return nil, err
		}
		return wrap(n, socket{nc.(*net.TCPConn)})
	}
}

// onlyPair waits until the only stream of s is as check wants it.
func (s *sidecar) onlyPair(what string, check func(p *pair) bool) (found *pair) {
	s.t.Helper()
	s.eventually(what, func() error {
		for p := range s.srv.pairs() {
			if check(p) {
				found = p
				return nil
			}
		}
		return errors.New("not yet")
	})
	return found
}

// put returns a request with a body that h frames.
func (s *sidecar) put(h http1.Head) *downstream.StreamRequest {
	framing := "Transfer-Encoding: chunked"
	if h.Framing == http1.FixedLength {
		framing = fmt.Sprintf("Content-Length: %d", h.Length)
	}
	r := &downstream.StreamRequest{
		Kind: stats.StreamBody, Head: []byte("PUT / HTTP/1.1\r\nHost: app\r\n" + framing + "\r\n\r\n"), Opener: s.srv.worker(),
		Service: "app", Timeout: waitLimit, Minor: 1, Buffer: buffers.Get(0), Chunks: h.Framing == http1.Chunked,
	}
	r.Body.Reset(&h, s.srv.limits())
	return r
}

// unwritable is a connection to which nothing can be written, although it is not reset.
type unwritable struct{ socket }

func (unwritable) Write([]byte) (int, error) { return 0, errors.New("nothing can be written") }

// breakable is a connection to which nothing can be written from some time on.
type breakable struct {
	socket
	broken *atomic.Bool
}

func (c breakable) Write(b []byte) (int, error) {
	if c.broken.Load() {
		return 0, errors.New("nothing can be written")
	}
	return c.socket.Write(b)
}

// bounded is a connection that notes its deadlines.
type bounded struct {
	socket
	read, write *atomic.Pointer[time.Time]
}

func newBounded(nc socket) bounded {
	return bounded{nc, new(atomic.Pointer[time.Time]), new(atomic.Pointer[time.Time])}
}

func (c bounded) SetDeadline(at time.Time) error {
	c.read.Store(&at)
	c.write.Store(&at)
	return c.socket.SetDeadline(at)
}

func (c bounded) SetReadDeadline(at time.Time) error {
	c.read.Store(&at)
	return c.socket.SetReadDeadline(at)
}

func (c bounded) SetWriteDeadline(at time.Time) error {
	c.write.Store(&at)
	return c.socket.SetWriteDeadline(at)
}
