package admin

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/freeport"
	"github.com/remora-proxy/remora/internal/leaktest"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/overload"
	"github.com/remora-proxy/remora/proxy/reactor"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/proxy/telemetry/otlp"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/registry"
)

func TestMain(m *testing.M) {
	leaktest.Main(m)
}

// sidecar is the core on real loops, with the admin API.
type sidecar struct {
	t       testing.TB
	reactor *reactor.Reactor
	proc    *proxy.Process
	api     *Server
	egress  string
	drains  atomic.Int32
	cups    atomic.Int64 // the use of its one resource, of 100
	sources []SourceStats
}

const loopCount = 2

// waitLimit is how long a test waits before it fails.
const waitLimit = time.Minute

// newSidecar starts a sidecar with the configuration. Its only listener gets a free
// address, which is egress. No service has endpoints yet.
func newSidecar(t testing.TB, yaml string) *sidecar {
	t.Helper()
	return newSidecarOf(t, yaml, loopCount)
}

// newSidecarOf is newSidecar with so many loops.
func newSidecarOf(t testing.TB, yaml string, loops int) *sidecar {
	t.Helper()
	cfg, err := config.Parse("test.yaml", []byte(yaml), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	s := &sidecar{t: t, sources: []SourceStats{
		{Name: "etcd", Up: true, Since: time.Unix(1700000000, 0), Services: 2, Unusable: 5},
		{Name: "dns", Since: time.Unix(1700000000, 0), Code: "unresolved", Error: "host x: none", Services: 1, Kept: 3},
	}}
	log := slog.New(slog.DiscardHandler)
	if s.reactor, err = reactor.Start(reactor.Options{Loops: loops, Logger: log}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.reactor.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	s.proc = proxy.NewProcess(cfg, loops)
	byLoop := map[loop.Loop]*proxy.Worker{}
	for i, l := range s.reactor.Loops() {
		byLoop[l] = proxy.NewWorker(s.proc, l, log, uint64(i))
	}
	listener := s.proc.Generation().Listener(cfg.Listeners[0].Name)
	l, err := s.reactor.Listen("127.0.0.1:0", reactor.ListenOptions{}, func(l loop.Loop, _ string) loop.Receiver {
		return listener.Accept(byLoop[l])
	})
	if err != nil {
		t.Fatal(err)
	}
	s.egress = l.Addr().String()
	var accessLog accesslog.Counts
	accessLog.Lines.Add(1)
	s.api = New(Options{
		Process: s.proc, Version: "v1", Engine: "epoll", Log: log, Level: new(slog.LevelVar),
		Reactor: func() stats.DriverStats {
			st := s.reactor.Stats()
			st.TLSFailures = map[string]int64{"tls_expired": 1}
			return st
		},
		Panics: s.reactor.Panics(),
		Identities: func() []Identity {
			at := time.Unix(1700000000, 0)
			return []Identity{{Name: "listeners.ingress.tls", Loads: 1, Begins: at, Expires: at, Outdates: at}}
		},
		Refused: func() RefusedStats {
			return RefusedStats{
				Endpoints: []RefusedEndpoint{{Source: "etcd", Service: "users", Address: "127.0.0.1:80", Reason: "loopback"}},
				Counts:    []RefusedCount{{Source: "etcd", Reason: "loopback", Endpoints: 2}},
			}
		},
		Sources: func() []SourceStats { return s.sources },
		Overlay: func() OverlayStats {
			return OverlayStats{Revision: 3, Since: time.Unix(1700000000, 0), Refused: 4, Code: "invalid", Reason: "three\nfour"}
		},
		Registrations: func() []Registration {
			return []Registration{{Service: "me", Address: "10.0.0.1:1", State: "registered"}}
		},
		Reloads: func() ReloadStats {
			return ReloadStats{Since: time.Unix(1700000000, 0), Outcomes: map[string]uint64{"applied": 1}, Refused: Refusal{
				At: time.Unix(1700000001, 0), Code: "invalid", Reason: "one\ntwo",
			}}
		},
		Tracing:   func() otlp.Stats { return otlp.Stats{Exported: 7, Full: 2, Lost: 1} },
		AccessLog: &accessLog,
		Overload: overload.New(overload.Options{
			Resources: []overload.Resource{{Name: "cups", Used: s.cups.Load, Limit: func() int64 { return 100 }}},
			Shed:      func() {}, Logger: log,
		}),
		Drain: func() { s.drains.Add(1); s.api.Enter(Draining) },
	})
	s.api.loopTimeout = waitLimit
	return s
}

// update sets the endpoints of a service, and waits until all loops have them.
func (s *sidecar) update(service string, addrs ...string) {
	s.t.Helper()
	var list []registry.Endpoint
	for _, a := range addrs {
		list = append(list, registry.Endpoint{Addr: a, Weight: 1})
	}
	snap := registry.NewSnapshot(service, registry.SourceLive, time.Unix(1700000000, 0), list)
	snap.Revision = 7
	s.proc.Update(snap)
	end := time.Now().Add(waitLimit)
	for {
		reports, stuck := query(s.t.Context(), s.proc, waitLimit, func(w *proxy.Worker) stats.WorkerReport { return w.Report(stats.Counters) })
		applied := len(stuck) == 0
		for _, r := range reports {
			for _, svc := range r.Services {
				applied = applied && (svc.Name != service || svc.Version == snap.Version)
			}
		}
		if applied {
			return
		}
		if time.Now().After(end) {
			s.t.Fatal("the loops don't apply the snapshot")
		}
	}
}

// call sends a request to the API without the network.
func (s *sidecar) call(method, path string) *http.Response {
	req := httptest.NewRequest(method, "http://127.0.0.1:9901"+path, nil)
	rec := httptest.NewRecorder()
	s.api.http.Handler.ServeHTTP(rec, req)
	return rec.Result()
}

func (s *sidecar) get(path string) (status int, body string) {
	s.t.Helper()
	resp := s.call(http.MethodGet, path)
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// request sends one request through the sidecar, on a connection of its own.
func (s *sidecar) request(method, path string) (status int) {
	s.t.Helper()
	req := must.Request(s.t, method, "http://"+s.egress+path, strings.NewReader(""))
	req.Close = true
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, _ := must.Do(s.t, &client, req)
	return resp.StatusCode
}

// misuse opens an HTTP/2 connection that begins with an invalid frame, and waits for its end.
func (s *sidecar) misuse() {
	s.t.Helper()
	nc := must.Dial(s.t, "tcp", s.egress)
	defer nc.Close()
	_, _ = io.WriteString(nc, http2.Preface+"not SETTINGS")
	_, _ = io.Copy(io.Discard, nc)
}

// newApp starts an application that responds with the status in the path.
func newApp(t testing.TB) (addr string) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/302":
			w.Header().Set("Location", "/")
			w.WriteHeader(http.StatusNotModified)
		case "/404":
			w.WriteHeader(http.StatusNotFound)
		case "/grpc":
			w.Header().Set("Grpc-Status", "14")
		case "/500":
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// freeAddr returns an address without a listener, for the test alone.
func freeAddr(t testing.TB) string {
	addrs, release, err := freeport.Loopback(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return addrs[0]
}

const twoServices = `
listeners: [{name: egress, address: "127.0.0.1:15001", protocol: http}]
routes:
  - {match: {host: hedged}, service: compute, hedge: {mode: on, delay: 3ms}}
  - {match: {path: /none}, service: empty, allow: {enforce: false, rules: [{method: [GET]}]},
     fault: {delay: 1ms}, mirror: {service: unused}, cache: {}, collapse: true,
     fallback: {on: [breaker], respond: {status: 503}}}
  - {service: compute}
services:
  compute:
    {discover: static, endpoints: ["10.0.9.9:1"], protocol: http, connect_timeout: 15s, timeout: 2m, max_concurrency: 8,
     breaker: {consecutive: 100}, check: {tcp: true}}
  empty: {discover: static, endpoints: ["10.0.9.9:1"], lb: {policy: consistent_hash, hash: {path: true}}}
  unused: {discover: static, endpoints: ["10.0.9.9:1"]}
`
