package fallback_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/registry"
)

func TestMain(m *testing.M) { proxytest.Main(m) }

const (
	all    = "on: [breaker, deadline, no_endpoint, overload, reset, 5xx], "
	static = all + `respond: {status: 203, body: "later\n", headers: {x-from: fallback}}`
	other  = all + "service: other, timeout: 300ms"
)

// newMesh returns a mesh whose route to compute, with application 0, has a fallback. The service other
// has application 1.
func newMesh(t *testing.T, direct bool, fallback, compute, otherService string) *proxytest.Mesh {
	t.Helper()
	if !strings.HasPrefix(compute, "timeout: ") {
		compute = proxytest.Fields("timeout: 500ms", compute)
	}
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, OneHop: direct, Limits: proxytest.LogAll})
	m.Consumer.Reload(proxytest.ReloadYAML(m, "{service: compute, fallback: {"+fallback+"}}",
		"compute: {%[1]s, "+compute+"}, other: {"+proxytest.Fields("%[1]s", otherService)+"}") + "\n" + proxytest.LogAll)
	m.Consumer.Update("compute", m.Endpoint(0))
	m.Consumer.Update("other", m.Endpoint(1))
	m.W.Run(time.Millisecond)
	return m
}

// do sends a call, and returns what it got: the status, the reason of the fallback, and the error.
func do(m *proxytest.Mesh, c *proxytest.Call) string {
	m.T.Helper()
	m.Complete(c)
	return strings.Join(strings.Fields(fmt.Sprint(c.Status, " ", string(protocol.Find(c.Headers, "x-remora-fallback")), " ", c.Code)), " ")
}

// failure makes requests of compute fail.
type failure struct {
	name, compute string
	setup         func(m *proxytest.Mesh)
	reason, code  string // code is that of the access log, and of the response without a fallback
	status        string
	seen          bool // the application may have seen it
}

var failures = []failure{
	{"breaker open", "breaker: {consecutive: 1, open: 1m}", func(m *proxytest.Mesh) {
		m.Apps[0].Status = 500
		do(m, m.Get("/"))
		m.Apps[0].Status = 200
	}, "breaker", "breaker-open", "503", false},
	{"frozen", "", func(m *proxytest.Mesh) { m.Apps[0].FrozenUntil = time.Hour }, "deadline", "deadline", "504", true},
	{"too slow", "retry: {per_try_timeout: 20ms}", func(m *proxytest.Mesh) { m.Apps[0].FrozenUntil = time.Hour }, "deadline", "upstream-timeout", "504", true},
	{"no endpoint", "", func(m *proxytest.Mesh) { m.Consumer.Update("compute") }, "no_endpoint", "no-endpoint", "503", false},
	{"no connection", "", func(m *proxytest.Mesh) {
		m.Consumer.Update("compute", registry.Endpoint{Addr: "10.0.9.9:1", Weight: 1})
	}, "no_endpoint", "upstream-connect", "502", false},
	{"too many", "max_pending: 1", func(m *proxytest.Mesh) {
		m.Apps[0].FrozenUntil = m.W.Now() + 400*time.Millisecond
		m.Do(m.Get("/"))
		m.W.Run(time.Millisecond)
	}, "overload", "overloaded", "503", false},
	{"lost connection", "", func(m *proxytest.Mesh) { m.Apps[0].ResetAll = true }, "reset", "upstream-reset", "502", true},
	{"bad response", "", func(m *proxytest.Mesh) { m.Apps[0].Status = 502 }, "5xx", "", "502", true},
}

func each(t *testing.T, f func(t *testing.T, direct bool, why *failure)) {
	for _, direct := range []bool{true, false} {
		for i := range failures {
			t.Run(fmt.Sprintf("%s, direct %t", failures[i].name, direct), func(t *testing.T) { f(t, direct, &failures[i]) })
		}
	}
}

// TestStatic: each failure gets the response of the configuration if on names it, and else its error.
func TestStatic(t *testing.T) {
	each(t, func(t *testing.T, direct bool, why *failure) {
		m := newMesh(t, direct, static, why.compute, "")
		why.setup(m)
		errs := errorsOf(m)
		c := m.Post(10)
		if got := do(m, c); got != "203 "+why.reason || string(c.Body) != "later\n" || string(protocol.Find(c.Headers, "x-from")) != "fallback" {
			t.Fatalf("got %s, %q, %s", got, c.Body, c.Headers)
		}
		if n := errorsOf(m); n != errs {
			t.Errorf("%d errors are said to be given", n-errs)
		}
		lines := m.Consumer.AccessLines()
		line := lines[len(lines)-1]
		if line.Status != 203 || line.Error != why.code || line.Fallback != why.reason || line.Outcome != "2xx" {
			t.Errorf("the access log has %+v", line)
		}
		s := m.Consumer.Stats("compute")
		if n := counted(s.FallbackAnswered, why.reason); n == 0 || counted(s.FallbackFailed, why.reason) != 0 {
			t.Errorf("%d answered: %+v", n, s.FilterStats)
		}
		m.W.Run(time.Second)
		m.Apps[0].FrozenUntil = 0
		m.Settled()

		one := strings.ReplaceAll(static, all, "on: ["+config.FallbackReasons[0]+"], ")
		if why.reason == "breaker" {
			one = strings.ReplaceAll(static, all, "on: [deadline], ")
		}
		m = newMesh(t, direct, one, why.compute, "")
		why.setup(m)
		if got, want := do(m, m.Post(10)), strings.TrimSpace(why.status+" "+why.code); got != want {
			t.Errorf("without the reason in on: got %s, want %s", got, want)
		}
	})
}

// errorsOf counts the error responses of the consumer.
func errorsOf(m *proxytest.Mesh) (n uint64) {
	for _, more := range m.Consumer.Report().Stats.Errors {
		n += more
	}
	return n
}

// counted returns the count of a reason.
func counted(of [stats.FallbackReasons]uint64, reason string) uint64 {
	for i, name := range config.FallbackReasons {
		if name == reason {
			return of[i]
		}
	}
	return 0
}

// TestOtherService: another service gets what no application may have seen, or what may be sent twice.
func TestOtherService(t *testing.T) {
	each(t, func(t *testing.T, direct bool, why *failure) {
		for _, idempotent := range []bool{true, false} {
			m := newMesh(t, direct, other, why.compute, "")
			why.setup(m)
			var got []string
			m.Apps[1].OnRequest = func(req *protocol.Request) {
				got = append(got, fmt.Sprintf("%s %s %d %s%s", req.Method, req.Path, len(req.Body), protocol.Find(req.Headers, "x-a"), protocol.Find(req.Headers, "x-remora-attempt")))
			}
			m.Apps[1].ExtraHeaders = "x-by: other\r\nx-remora-fallback: forged\r\n"
			c := m.Post(10, "x-a: b")
			if idempotent {
				c = m.Post(10, "x-a: b", "x-remora-idempotent: 1")
			}
			says := do(m, c)
			s := m.Consumer.Stats("compute")
			if why.seen && !idempotent {
				if want := strings.TrimSpace(why.status + " " + why.code); says != want || got != nil || counted(s.FallbackFailed, why.reason) != 1 {
					t.Errorf("not idempotent: the caller got %s, want %s; the other application got %q, %+v", says, want, got, s.FilterStats)
				}
				continue
			}
			if says != "200 "+why.reason || string(protocol.Find(c.Headers, "x-by")) != "other" || strings.Join(got, ", ") != "POST /compute 10 b" {
				t.Fatalf("idempotent %t: the caller got %s, the other application %q", idempotent, says, got)
			}
			if counted(s.FallbackAnswered, why.reason) == 0 {
				t.Errorf("%+v", s.FilterStats)
			}
			m.W.Run(time.Second)
			m.Apps[0].FrozenUntil = 0
			m.Settled()
		}
	})
}

// TestOtherServiceFails: if the other service gives no good response in time, the caller gets what it
// would have got without the fallback.
func TestOtherServiceFails(t *testing.T) {
	for _, c := range []struct {
		name, service string
		setup         func(m *proxytest.Mesh)
		took          time.Duration
	}{
		{"no endpoint", "", func(m *proxytest.Mesh) { m.Consumer.Update("other") }, 0},
		{"not admitted", "rate_limit: {rate: 1, burst: 1}", func(m *proxytest.Mesh) {}, 0},
		{"bad response", "", func(m *proxytest.Mesh) { m.Apps[1].Status = 500 }, 0},
		{"lost", "", func(m *proxytest.Mesh) { m.Apps[1].ResetAll = true }, 0},
		{"slow", "", func(m *proxytest.Mesh) { m.Apps[1].FrozenUntil = time.Hour }, 300 * time.Millisecond},
	} {
		for _, code := range []string{"no-endpoint", ""} {
			t.Run(c.name+" "+code, func(t *testing.T) {
				m := newMesh(t, true, other, "", c.service)
				want := "503 no-endpoint"
				if code == "" {
					m.Apps[0].Status, want = 502, "502"
				} else {
					m.Consumer.Update("compute")
				}
				m.W.Run(time.Millisecond)
				if c.service != "" {
					do(m, m.Get("/"))
				}
				c.setup(m)
				call := m.Get("/")
				if got := do(m, call); got != want || call.Took < c.took || call.Took > c.took+50*time.Millisecond {
					t.Errorf("got %s after %v, want %s after %v", got, call.Took, want, c.took)
				}
				if s := m.Consumer.Stats("compute"); counted(s.FallbackFailed, "no_endpoint")+counted(s.FallbackFailed, "5xx") != 1 {
					t.Errorf("counted %+v", s.FilterStats)
				}
				m.Apps[1].FrozenUntil = 0
				m.Settled()
			})
		}
	}
}

// TestTimeouts: the other service has the rest of the route's timeout. After that has passed, it has
// the fallback's timeout.
func TestTimeouts(t *testing.T) {
	for _, c := range []struct {
		name string
		// The first application fails after so long, the second one responds after so long.
		fails, answers time.Duration
		want           string
		took           time.Duration
	}{
		{"in time", 400 * time.Millisecond, 50 * time.Millisecond, "200 5xx", 450 * time.Millisecond},
		{"the rest is short", 400 * time.Millisecond, 150 * time.Millisecond, "", 500 * time.Millisecond},
		{"after the deadline", time.Minute, 250 * time.Millisecond, "200 deadline", 750 * time.Millisecond},
		{"too late after the deadline", time.Minute, 350 * time.Millisecond, "504 deadline", 800 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMesh(t, true, other, "", "")
			m.Apps[0].Status = 502
			m.Apps[0].Delay = func() time.Duration { return c.fails }
			m.Apps[1].Delay = func() time.Duration { return c.answers }
			call := m.Get("/")
			got := do(m, call)
			if c.want != "" && got != c.want || c.want == "" && got != "502" && got != "504 deadline" {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if call.Took < c.took || call.Took > c.took+20*time.Millisecond {
				t.Errorf("it took %v, want %v", call.Took, c.took)
			}
			m.W.Run(time.Minute)
			m.Settled()
		})
	}
}

// TestMaxPending: clients with one request may fill the other service, the last eighth of max_pending included.
func TestMaxPending(t *testing.T) {
	m := newMesh(t, true, other, "", "max_pending: 16")
	m.Consumer.Update("compute")
	m.Apps[1].Delay = func() time.Duration { return 100 * time.Millisecond }
	calls := m.Burst(17, 10)
	m.Finish(calls...)
	if codes := proxytest.CountCodes(calls); codes[""] != 16 || codes["no-endpoint"] != 1 {
		t.Errorf("got %v, want 16 responses of the other service", codes)
	}
	m.Settled()
}

// TestTimeoutNotAdmitted: a request that was not admitted has the timeout of the route.
func TestTimeoutNotAdmitted(t *testing.T) {
	m := newMesh(t, true, other, "timeout: 100ms, max_pending: 1", "")
	m.Apps[0].FrozenUntil, m.Apps[1].FrozenUntil = time.Minute, time.Minute
	m.Do(m.Post(10))
	m.W.Run(time.Millisecond)
	call := m.Get("/")
	if got := do(m, call); got != "503 overloaded" || call.Took < 100*time.Millisecond || call.Took > 110*time.Millisecond {
		t.Errorf("got %s after %v, want 503 overloaded after 100ms", got, call.Took)
	}
	m.W.Run(time.Minute)
	m.Settled()
}

// TestCallerGone: when the caller leaves, so does the request to the other service.
func TestCallerGone(t *testing.T) {
	m := newMesh(t, false, other, "", "")
	m.Apps[0].Status = 502
	asked := false
	m.Apps[1].OnRequest = func(*protocol.Request) { asked = true }
	m.Apps[1].FrozenUntil = m.W.Now() + 100*time.Millisecond
	client := m.Do(m.Get("/"))
	m.RunUntil("the other application to be asked", func() bool { return asked })
	client.Leave()
	m.Settled()
	if s := m.Consumer.Stats("compute"); s.Outcomes[stats.OutcomeCancelled] != 1 || counted(s.FallbackFailed, "5xx") != 1 {
		t.Errorf("%v, %+v", s.Outcomes, s.FilterStats)
	}
}

// TestBreaker: what the service did counts for its breaker, not what the fallback made of it. A failure that is none of the
// service's counts for nothing.
func TestBreaker(t *testing.T) {
	for _, c := range []struct {
		name, fallback, status string
		fail                   func(m *proxytest.Mesh)
		reason                 string
		opens                  bool
	}{
		{"bad response", static, "203", func(m *proxytest.Mesh) { m.Apps[0].Status = 500 }, "5xx", true},
		{"bad response, another service", other, "200", func(m *proxytest.Mesh) { m.Apps[0].Status = 500 }, "5xx", true},
		{"lost connection", static, "203", func(m *proxytest.Mesh) { m.Apps[0].ResetAll = true }, "reset", true},
		{"lost connection, another service", other, "200", func(m *proxytest.Mesh) { m.Apps[0].ResetAll = true }, "reset", true},
		{"no endpoint", static, "203", func(m *proxytest.Mesh) { m.Consumer.Update("compute") }, "no_endpoint", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMesh(t, true, c.fallback, "retry: {on: []}, breaker: {consecutive: 2, open: 1m}", "")
			c.fail(m)
			m.W.Run(time.Millisecond)
			arrived := 0
			m.Apps[0].OnRequest = func(*protocol.Request) { arrived++ }
			third, want := c.status+" "+c.reason, 0
			if c.opens {
				third, want = c.status+" breaker", 2
			}
			for _, want := range []string{c.status + " " + c.reason, c.status + " " + c.reason, third} {
				if got := do(m, m.Get("/")); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			}
			if arrived != want {
				t.Errorf("the application has %d requests, want %d", arrived, want)
			}
			if l := m.Consumer.Stats("compute").Latency; l.Count() != 0 {
				t.Error("the answers of the fallback count as latencies of the service")
			}
			m.Settled()
		})
	}
}

// TestInjectedAbort: a fallback can be tried with a fault. Faults that are no 5xx are none for a fallback.
func TestInjectedAbort(t *testing.T) {
	for abort, want := range map[int]string{418: "418 fault-injected", 499: "499 fault-injected", 500: "203 5xx", 503: "203 5xx"} {
		m := newMesh(t, true, fmt.Sprintf("%s}, fault: {abort: %d", static, abort), "", "")
		if got := do(m, m.Get("/")); got != want {
			t.Errorf("abort %d: got %s, want %s", abort, got, want)
		}
		m.Settled()
	}
}

// TestMirrored: a route may send copies and have a fallback, also by the same service.
func TestMirrored(t *testing.T) {
	m := newMesh(t, true, other+"}, mirror: {service: other", "", "")
	m.Apps[0].Status = 502
	if got := do(m, m.Get("/")); got != "200 5xx" || m.Apps[1].Served != 2 {
		t.Errorf("got %s, the other application served %d requests", got, m.Apps[1].Served)
	}
	m.Settled()
}

// TestReload: a reload changes the fallback, and that of requests in flight stays.
func TestReload(t *testing.T) {
	m := newMesh(t, true, other, "", "")
	m.Apps[0].Status = 502
	asked := false
	m.Apps[1].OnRequest = func(*protocol.Request) { asked = true }
	m.Apps[1].FrozenUntil = m.W.Now() + 100*time.Millisecond
	first := m.Get("/")
	m.Do(first)
	m.RunUntil("the other application to be asked", func() bool { return asked })
	for _, fallback := range []string{static, strings.Replace(static, "203", "299", 1)} {
		m.Consumer.Reload(proxytest.ReloadYAML(m, "{service: compute, fallback: {"+fallback+"}}", "compute: {%[1]s}"))
		m.Consumer.Update("compute", m.Endpoint(0))
		if got, want := do(m, m.Get("/")), fallback[strings.Index(fallback, "2"):][:3]+" 5xx"; got != want {
			t.Errorf("after the reload: %s, want %s", got, want)
		}
	}
	m.Finish(first)
	if first.Status != 200 {
		t.Errorf("the request that began before got %d %s", first.Status, first.Code)
	}
	m.Settled()
}

// TestDubboCaller: a call that failed goes to another service, and one for which the fallback has only
// an HTTP response fails.
func TestDubboCaller(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		for routes, answered := range map[string]bool{
			"[{match: {service: com.acme.Demo}, service: compute, fallback: {" + other + "}}]": true,
			"[{service: compute, fallback: {" + static + "}}]":                                 false, // for requests of HTTP
		} {
			m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{OneHop: direct, Apps: 1, Routes: routes})
			e := registry.Endpoint{Addr: m.Apps[0].Addr, Weight: 1}
			if !direct {
				e.Addr = strings.Replace(e.Addr, ":20880", ":15006", 1)
			}
			m.Consumer.Update("other", e)
			m.Consumer.Update("compute")
			m.W.Run(time.Millisecond)
			client := m.DialDubbo(proxytest.EgressDubbo)
			f := client.Await(client.CallHessian("echo", "x"))
			if answered != (f.Status == dubbo.StatusOK) || !answered && !bytes.Contains(f.Body, []byte("no-endpoint")) {
				t.Errorf("%s: status %d, %q", routes, f.Status, f.Body)
			}
			m.Settled()
		}
	})
}

// TestConditionsOfCache: the other service gets the client's own conditions, not those of a cache.
func TestConditionsOfCache(t *testing.T) {
	for _, c := range []struct {
		name string
		fail func(m *proxytest.Mesh)
	}{
		{"no endpoint", func(m *proxytest.Mesh) { m.Consumer.Update("compute") }},
		{"bad response", func(m *proxytest.Mesh) { m.Apps[0].Status = 500 }},
	} {
		m := newMesh(t, true, other+"}, cache: {ttl: 1s, stale: 0s", "", "")
		m.Apps[0].ExtraHeaders = "ETag: \"a\"\r\n"
		do(m, m.Get("/").Same())
		m.W.Run(2 * time.Second)
		c.fail(m)
		for _, own := range []string{"", `"b"`} {
			got := ""
			m.Apps[1].OnRequest = func(req *protocol.Request) { got = string(protocol.Find(req.Headers, "if-none-match")) }
			call := m.Get("/").Same()
			if own != "" {
				call = m.Get("/", "If-None-Match: "+own).Same()
			}
			if said := do(m, call); !strings.HasPrefix(said, "200 ") || got != own {
				t.Errorf("%s: got %s, and the other service got the condition %q, want %q", c.name, said, got, own)
			}
		}
		m.Settled()
	}
}
