package health

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/syncbuffer"
	"github.com/remora-proxy/remora/registry"
)

// revision is that of the first snapshot of each source.
const revision = 7

// source is a watcher whose snapshots the test makes.
type source struct {
	notify func(*registry.Snapshot)
	first  []registry.Endpoint
	last   *Follower // the Follower of this source
	log    syncbuffer.Buffer
}

func (s *source) Watch(_ string, notify func(*registry.Snapshot)) (stop func()) {
	s.notify = notify
	first := registry.NewSnapshot("s", registry.SourceCache, time.Unix(1, 0), s.first)
	first.Revision = revision
	notify(first)
	return func() {}
}

func (s *source) set(endpoints ...registry.Endpoint) {
	s.notify(registry.NewSnapshot("s", registry.SourceLive, time.Unix(2, 0), endpoints))
}

// follow checks the endpoints of a source. next returns the addresses of the next
// snapshot, and those of its unhealthy endpoints.
func follow(t *testing.T, c Check) (src *source, next func() (all, unhealthy []string)) {
	t.Helper()
	src = &source{}
	got := make(chan *registry.Snapshot, 100)
	f := Follow(src, "s", Options{Check: c, Protocol: "http", Logger: slog.New(slog.NewTextHandler(&src.log, nil))},
		func(s *registry.Snapshot) { got <- s })
	t.Cleanup(f.Stop)
	src.last = f
	version := uint64(0)
	next = func() (all, unhealthy []string) {
		t.Helper()
		s := receive(t, "a snapshot", got)
		if s.Version <= version {
			t.Errorf("version %d after %d", s.Version, version)
		}
		version = s.Version
		for _, e := range s.Endpoints {
			all = append(all, e.Addr)
			if e.Unhealthy {
				unhealthy = append(unhealthy, e.Addr)
			}
		}
		return all, unhealthy
	}
	if all, _ := next(); len(all) != 0 {
		t.Fatalf("began with %v", all)
	}
	return src, next
}

func expect(t *testing.T, next func() (all, unhealthy []string), all, unhealthy []string) {
	t.Helper()
	slices.Sort(all)
	gotAll, gotUnhealthy := next()
	if !slices.Equal(gotAll, all) || !slices.Equal(gotUnhealthy, unhealthy) {
		t.Fatalf("got %v, unhealthy %v; want %v, unhealthy %v", gotAll, gotUnhealthy, all, unhealthy)
	}
}

// TestThresholds checks that an endpoint becomes unhealthy with the third failure in a
// row, and healthy with the second pass. Other snapshots show the verdict before that.
func TestThresholds(t *testing.T) {
	s, other := newScripted(t), closedPort(t)
	src, next := follow(t, fast)
	one, two := registry.Endpoint{Addr: s.addr}, registry.Endpoint{Addr: other, Protocol: "link"}
	src.set(one)
	expect(t, next, []string{s.addr}, nil)
	receive(t, "the first check", s.asked)

	s.answers(200, 503, 503, 200, 503, 503)
	src.set(one, two)
	expect(t, next, []string{s.addr, other}, nil)
	s.answers(503)
	expect(t, next, []string{s.addr, other}, []string{s.addr})

	s.answers(200, 503, 200)
	src.set(one) // does not change the verdict
	expect(t, next, []string{s.addr}, []string{s.addr})
	s.answers(200)
	expect(t, next, []string{s.addr}, nil)

	// An endpoint that is removed and added again begins without a verdict.
	s.answers(503, 503, 503)
	expect(t, next, []string{s.addr}, []string{s.addr})
	src.set(two)
	expect(t, next, []string{other}, nil)
	src.set(one)
	expect(t, next, []string{s.addr}, nil)
}

// TestTCP checks that a port which refuses connections is unhealthy, whatever its
// protocol, until it accepts them. The log says both once.
func TestTCP(t *testing.T) {
	c := fast
	c.Path = ""
	up := httptest.NewServer(http.NotFoundHandler())
	defer up.Close()
	src, next := follow(t, c)
	addr := closedPort(t)
	src.set(registry.Endpoint{Addr: up.Listener.Addr().String()}, registry.Endpoint{Addr: addr, Protocol: "link"})
	all := []string{addr, up.Listener.Addr().String()}
	expect(t, next, all, nil)
	expect(t, next, all, []string{addr})
	must.ListenOn(t, "tcp", addr)
	expect(t, next, all, nil)
	src.last.Stop()
	lines := strings.Split(strings.TrimSpace(src.log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "endpoint is unhealthy") || !strings.Contains(lines[0], "endpoint="+addr) ||
		!strings.Contains(lines[1], "endpoint is healthy again") || !strings.Contains(lines[1], "endpoint="+addr) {
		t.Errorf("the log has %q", lines)
	}
}

// TestParallel checks that many endpoints are all checked, with at most parallel checks
// at a time.
func TestParallel(t *testing.T) {
	const n = 4 * parallel
	var at atomic.Int64
	full, free := make(chan struct{}, 1), make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer at.Add(-1)
		if at.Add(1) >= parallel {
			select {
			case full <- struct{}{}:
			default:
			}
		}
		select {
		case <-free:
			w.WriteHeader(http.StatusServiceUnavailable)
		case <-r.Context().Done():
		}
	})
	var endpoints []registry.Endpoint
	for range n {
		srv := httptest.NewServer(handler)
		t.Cleanup(srv.Close)
		endpoints = append(endpoints, registry.Endpoint{Addr: srv.Listener.Addr().String()})
	}
	c := fast
	c.Unhealthy = 1
	src, next := follow(t, c)
	src.set(endpoints...)
	next()
	receive(t, "checks up to the bound", full)
	for range 100 { // turns in which more checks could start
		src.set(endpoints...)
		next()
	}
	if now := at.Load(); now != parallel {
		t.Errorf("%d checks at a time, the bound is %d", now, parallel)
	}
	close(free)
	for unhealthy := 0; unhealthy < n; {
		_, addrs := next()
		unhealthy = len(addrs)
	}
}

// TestVerdictsKept checks that a Follower continues with the verdicts of the one that
// it replaces, including incomplete streaks, for the endpoints that it begins with.
func TestVerdictsKept(t *testing.T) {
	s, quiet := newScripted(t), newScripted(t)
	src, next := follow(t, fast)
	src.set(registry.Endpoint{Addr: s.addr})
	next()
	receive(t, "the first check", s.asked)
	s.answers(503, 503, 503)
	expect(t, next, []string{s.addr}, []string{s.addr})
	s.answers(200)
	if src.last.Verdicts()[s.addr] != (judge{streak: 1}) {
		t.Fatalf("%+v", src.last.Verdicts())
	}
	known := Verdicts{s.addr: {streak: 1}, quiet.addr: {}}

	again := &source{first: []registry.Endpoint{{Addr: s.addr}}}
	got := make(chan *registry.Snapshot, 100)
	f := Follow(again, "s", Options{Check: fast, Protocol: "http", Verdicts: known, Logger: slog.New(slog.DiscardHandler)},
		func(s *registry.Snapshot) { got <- s })
	defer f.Stop()
	if s := receive(t, "the first snapshot", got); len(s.Endpoints) != 1 || !s.Endpoints[0].Unhealthy || s.Revision != revision {
		t.Fatalf("began with %+v", s)
	}
	if v := f.Verdicts(); v[s.addr] != known[s.addr] || len(v) != 1 {
		t.Errorf("verdicts %+v", v)
	}
	again.set(registry.Endpoint{Addr: s.addr}, registry.Endpoint{Addr: quiet.addr})
	for _, e := range receive(t, "an endpoint more", got).Endpoints {
		if e.Unhealthy != (e.Addr == s.addr) {
			t.Errorf("%+v", e)
		}
	}
}
