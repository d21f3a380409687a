package mirror_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/registry"
)

func TestMain(m *testing.M) { proxytest.Main(m) }

// seen counts the requests that applications get: those of callers, and copies.
type seen struct{ requests, copies int }

// newMesh returns a mesh whose route to compute, with application 0, mirrors to the service shadow,
// with application 1, and what both have got.
func newMesh(t *testing.T, o proxytest.MeshOptions, route, shadow string) (*proxytest.Mesh, *[2]seen) {
	t.Helper()
	o.Apps = 2
	m := proxytest.NewMesh(t, o)
	m.Consumer.Reload(proxytest.ReloadYAML(m, "{service: compute, mirror: {service: shadow, "+route+"}}",
		"compute: {%[1]s}, shadow: {%[1]s, "+shadow+"}"))
	m.Consumer.Update("compute", m.Endpoint(0))
	m.Consumer.Update("shadow", m.Endpoint(1))
	m.W.Run(time.Millisecond)
	got := new([2]seen)
	for i, a := range m.Apps {
		a.OnRequest = func(req *protocol.Request) {
			switch mark := protocol.Find(req.Headers, "x-remora-mirror"); string(mark) {
			case "":
				got[i].requests++
			case "1":
				got[i].copies++
			default:
				t.Errorf("the mark is %q", mark)
			}
		}
	}
	return m, got
}

func counts(m *proxytest.Mesh) stats.FilterStats { return m.Consumer.Stats("shadow").FilterStats }

// TestCopies: the second service gets a marked copy of each request, and callers get the responses
// of the first. Copies have no access line.
func TestCopies(t *testing.T) {
	for _, direct := range []bool{true, false} {
		m, got := newMesh(t, proxytest.MeshOptions{OneHop: direct, Limits: proxytest.LogAll}, "", "")
		var copies []string
		count := m.Apps[1].OnRequest
		m.Apps[1].OnRequest = func(req *protocol.Request) {
			count(req)
			copies = append(copies, fmt.Sprintf("%s %s %s %d %s", req.Method, req.Path, req.Authority, len(req.Body), protocol.Find(req.Headers, "x-request-id")))
		}
		calls := []*proxytest.Call{m.Post(300, "X-Request-Id: a"), m.Get("/x?y=1", "X-Request-Id: b"), m.Post(100_000, "X-Request-Id: c")}
		m.Do(calls...)
		m.OK(calls...)
		m.Settled()
		if *got != [2]seen{{requests: 3}, {copies: 3}} {
			t.Errorf("direct %t: the applications got %+v", direct, *got)
		}
		if all, want := strings.Join(copies, ", "), "POST /compute compute 300 a, GET /x?y=1 compute 0 b, POST /compute compute 100000 c"; all != want {
			t.Errorf("direct %t: copies %q, want %q", direct, all, want)
		}
		if c := counts(m); c != (stats.FilterStats{Mirrors: true, MirrorAnswered: 3}) {
			t.Errorf("counted %+v", c)
		}
		if s := m.Consumer.Stats("shadow"); s.Requests != 3 || s.Outcomes[stats.Outcome2xx] != 3 {
			t.Errorf("the service counts %d requests, %v", s.Requests, s.Outcomes)
		}
		if s := m.Consumer.Report().Stats; s.Requests != 3 {
			t.Errorf("the process counts %d requests, want those of callers", s.Requests)
		}
		if lines := m.Consumer.AccessLines(); len(lines) != 3 {
			t.Errorf("the access log has %+v", lines)
		}
	}
}

// TestLoginNotCopied: credentials that log in a connection are used once.
func TestLoginNotCopied(t *testing.T) {
	m, got := newMesh(t, proxytest.MeshOptions{}, "", "")
	calls := []*proxytest.Call{m.Get("/", "Authorization: Negotiate YII"), m.Get("/", "Authorization: Basic eA==")}
	m.Do(calls...)
	m.OK(calls...)
	m.Settled()
	if *got != [2]seen{{requests: 2}, {copies: 1}} {
		t.Errorf("the applications got %+v", *got)
	}
}

// TestShare: about a share of the requests is copied.
func TestShare(t *testing.T) {
	m, got := newMesh(t, proxytest.MeshOptions{}, "share: 0.1", "")
	m.Finish(m.Crowd(10, 100, 10)...)
	m.Settled()
	if n := got[1].copies; n < 60 || n > 140 || got[0].requests != 1000 {
		t.Errorf("the applications got %+v", *got)
	}
}

// TestFailures: whatever becomes of the copies, callers notice nothing: no response, no error and
// no wait. A copy is neither retried nor hedged.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		shadow string
		setup  func(m *proxytest.Mesh)
		want   seen
		failed uint64
	}{
		"errors": {proxytest.HedgeOn + ", retry: {on: [5xx]}", func(m *proxytest.Mesh) {
			m.Apps[1].Status, m.Apps[1].Delay = 500, func() time.Duration { return 30 * time.Millisecond }
		}, seen{copies: 5}, 5},
		"resets":      {"idempotent: true", func(m *proxytest.Mesh) { m.Apps[1].ResetAll = true }, seen{copies: 5}, 5},
		"no endpoint": {"", func(m *proxytest.Mesh) { m.Consumer.Update("shadow") }, seen{}, 5},
		"not there":   {"", func(m *proxytest.Mesh) { m.Consumer.Update("shadow", registry.Endpoint{Addr: "10.0.9.9:1", Weight: 1}) }, seen{}, 5},
		"too slow":    {"timeout: 50ms", func(m *proxytest.Mesh) { m.Apps[1].Delay = func() time.Duration { return time.Minute } }, seen{copies: 5}, 5},
		"limited":     {"rate_limit: {rate: 1, burst: 2}", func(*proxytest.Mesh) {}, seen{copies: 2}, 3},
		"max_pending": {"max_pending: 1", func(m *proxytest.Mesh) { m.Apps[1].Delay = func() time.Duration { return time.Second } }, seen{copies: 1}, 4},
		"breaker open": {"breaker: {consecutive: 1, open: 1m}", func(m *proxytest.Mesh) {
			m.Apps[1].Status, m.Apps[0].Delay = 500, func() time.Duration { return 5 * time.Millisecond }
		}, seen{copies: 1}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			m, got := newMesh(t, proxytest.MeshOptions{OneHop: true}, "", c.shadow)
			c.setup(m)
			m.W.Run(time.Millisecond)
			var calls []*proxytest.Call
			for range 5 {
				calls = append(calls, m.Post(10))
			}
			m.Do(calls...)
			m.OK(calls...)
			for _, k := range calls {
				if k.Took > 10*time.Millisecond {
					t.Errorf("a caller waited for %v", k.Took)
				}
			}
			m.Settled()
			if got[1] != c.want || got[0].requests != 5 {
				t.Errorf("the applications got %+v, want %+v", *got, c.want)
			}
			if s := counts(m); s.MirrorFailed != c.failed || s.MirrorAnswered != 5-c.failed || s.MirrorDropped != 0 {
				t.Errorf("counted %+v, want %d failed", s, c.failed)
			}
			if errs := m.Consumer.Report().Stats.Errors; len(errs) > 0 {
				t.Errorf("callers are said to have got errors: %v", errs)
			}
		})
	}
}

// TestReserve: copies leave the last eighth of max_pending to requests.
func TestReserve(t *testing.T) {
	m, got := newMesh(t, proxytest.MeshOptions{OneHop: true}, "", "max_pending: 16")
	m.Apps[1].Delay = func() time.Duration { return time.Second }
	calls := m.Burst(20, 10)
	m.OK(calls...)
	m.Settled()
	if got[1].copies != 14 || counts(m).MirrorFailed != 6 {
		t.Errorf("%d copies, %+v; want 14, and 6 that failed", got[1].copies, counts(m))
	}
}

// TestBounds: requests for whose copies there is no room, by number or by bytes, are not copied. What a copy has had is given back.
func TestBounds(t *testing.T) {
	for _, c := range []struct{ clients, size, want int }{{200, 10, 64}, {20, 1_000_000, 8}} {
		m, got := newMesh(t, proxytest.MeshOptions{OneHop: true}, "", "")
		for round := range 3 {
			m.Apps[1].FrozenUntil = m.W.Now() + 10*time.Second
			m.Apps[0].Delay = func() time.Duration { return time.Second }
			before, dropped := got[1].copies, counts(m).MirrorDropped
			calls := m.Burst(c.clients, c.size)
			m.OK(calls...)
			copies, missing := got[1].copies-before, counts(m).MirrorDropped-dropped
			if copies != c.want || missing != uint64(c.clients-c.want) {
				t.Errorf("round %d: %d requests of %d bytes: %d copies, %d dropped; want %d copies", round, c.clients, c.size, copies, missing, c.want)
			}
			m.Settled()
		}
	}
}

// TestRoomAfterFailures: copies that fail give their room back.
func TestRoomAfterFailures(t *testing.T) {
	m, got := newMesh(t, proxytest.MeshOptions{OneHop: true}, "", "")
	m.Consumer.Update("shadow")
	m.W.Run(time.Millisecond)
	const failing = 70 // more than may be in flight
	for range failing {
		m.OK(m.Complete(m.Get("/")))
	}
	m.Consumer.Update("shadow", m.Endpoint(1))
	m.W.Run(time.Millisecond)
	m.OK(m.Complete(m.Get("/")))
	m.Settled()
	want := stats.FilterStats{Mirrors: true, MirrorFailed: failing, MirrorAnswered: 1}
	if c := counts(m); got[1].copies != 1 || c != want {
		t.Errorf("%d copies after %d that failed, counted %+v", got[1].copies, failing, c)
	}
}

// stuckApp is a connection to an application that stops in the middle of each response.
type stuckApp struct{ conn loop.Conn }

func (a *stuckApp) OnOpen(c loop.Conn) { a.conn = c }
func (a *stuckApp) OnClose(error)      {}
func (a *stuckApp) OnData([]byte) {
	if a.conn != nil {
		a.conn.Write(append([]byte("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"), make([]byte, 900_000)...))
		a.conn = nil
	}
}

// TestMemoryShort: while half of limits.buffered is in use nothing is copied. Copies in flight end
// before any connection is closed for its memory.
func TestMemoryShort(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, OneHop: true, Limits: proxytest.SmallBudget})
	m.Consumer.Reload(proxytest.ReloadYAML(m, "{service: compute, mirror: {service: shadow}}", "compute: {%[1]s}, shadow: {%[1]s}") + "\n" + proxytest.SmallBudget)
	m.Consumer.Update("compute", m.Endpoint(0))
	m.Consumer.Update("shadow", m.Endpoint(1))
	m.Apps[1].Stop()
	m.W.Net.Listen(m.Apps[1].Addr, m.Apps[1].Loop, func() loop.Receiver { return &stuckApp{} })
	m.W.Run(time.Millisecond)
	calls := m.Burst(14, 30_000)
	m.OK(calls...)
	m.W.Run(time.Second)
	if s := counts(m); s.MirrorDropped == 0 || s.MirrorFailed == 0 || s.MirrorFailed+s.MirrorDropped >= 14 {
		t.Errorf("counted %+v, want some dropped, some abandoned and some in flight", s)
	}
	m.Consumer.CheckBelowHardMark()
	m.Settled()
}

// TestReload: copies in flight end as they began when the mirror or its service goes.
func TestReload(t *testing.T) {
	m, got := newMesh(t, proxytest.MeshOptions{Loops: 2}, "", "")
	m.Apps[1].Delay = func() time.Duration { return 200 * time.Millisecond }
	calls := m.Burst(10, 10)
	m.OK(calls...)
	before := got[1].copies
	m.Consumer.Reload(proxytest.ReloadYAML(m, `{service: compute}`, `compute: {%s}`))
	m.Consumer.Update("compute", m.Endpoint(0))
	calls = m.Burst(10, 10)
	m.OK(calls...)
	m.Settled()
	if before == 0 || got[1].copies != before {
		t.Errorf("%d copies before and %d after the mirror was removed", before, got[1].copies)
	}
}

// TestWithFault: a request that is aborted is not copied.
func TestWithFault(t *testing.T) {
	m, got := newMesh(t, proxytest.MeshOptions{}, "", "")
	m.Consumer.Reload(proxytest.ReloadYAML(m, "{service: compute, mirror: {service: shadow}, fault: {delay: 5ms, abort: 503}}", "compute: {%[1]s}, shadow: {%[1]s}"))
	c := m.Complete(m.Post(10))
	m.Settled()
	if c.Code != "fault-injected" || *got != [2]seen{} {
		t.Errorf("%s, and the applications got %+v", c.Code, *got)
	}
}
