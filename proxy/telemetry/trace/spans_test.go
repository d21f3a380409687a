package trace_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
	"github.com/remora-proxy/remora/registry"
)

// tracing returns the YAML of a sidecar that samples a share of the requests without a
// trace.
func tracing(share float64) string {
	return fmt.Sprintf(`tracing: {endpoint: "http://192.0.2.1:4318", sample: %g}`, share)
}

// attempts returns the attempts that were sent.
func attempts(r *trace.Record) (sent []trace.Attempt) {
	for _, a := range r.Attempts {
		if a.Span != (trace.SpanID{}) {
			sent = append(sent, a)
		}
	}
	return sent
}

// summary returns the end of an attempt in one line.
func summary(a trace.Attempt) string {
	return fmt.Sprintf("%d %s %s %s %d %s", a.Number, a.Kind, a.Protocol, a.Outcome, a.Status, a.Error)
}

func parent(c trace.Context, span trace.SpanID) string {
	c.Span = span
	return string(c.Append(nil))
}

// The spans of a plain request through two sidecars are a chain: the consumer's exchange,
// its attempt, the provider's exchange, its attempt, and the span of the application.
func TestSpansOfAPlainRequest(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: tracing(1)})
	all, app := m.RecordAllSpans(), m.Apps.CollectHeader("traceparent")
	c := m.Get("/x/y?token=secret", "x-request-id: r1")
	m.Do(c)
	m.OK(c)
	m.Settled()

	at, beside := all["10.0.0.1"].Only(t), all["10.0.1.1"].Only(t)
	proxytest.Equal(t, "parent of the root", at.Parent, trace.SpanID{})
	proxytest.Equal(t, "the request", fmt.Sprint(at.Protocol, at.RPC, at.Method, at.Path, at.Authority, at.RequestID, at.Service),
		fmt.Sprint("http", false, "GET", "/x/y", "compute", "r1", "compute"))
	proxytest.Equal(t, "its end", fmt.Sprint(at.Status, at.Error), "200")
	first := attempts(at)
	proxytest.Equal(t, "attempts", len(first), 1)
	proxytest.Equal(t, "the attempt", summary(first[0]), "0 primary link won 200 ")
	proxytest.Equal(t, "its endpoint", first[0].Endpoint, "10.0.1.1:15006")

	proxytest.Equal(t, "the provider's trace", beside.Trace, at.Trace)
	proxytest.Equal(t, "the provider's parent", beside.Parent, first[0].Span)
	proxytest.Equal(t, "the provider's request", fmt.Sprint(beside.Protocol, beside.Service, beside.Status), "linklocal200")
	second := attempts(beside)
	proxytest.Equal(t, "attempts", len(second), 1)
	proxytest.Equal(t, "the attempt", summary(second[0]), "0 primary http won 200 ")
	proxytest.Equal(t, "what the application got", strings.Join(*app, ", "), parent(at.Context, second[0].Span))
	ids := map[trace.SpanID]bool{at.Span: true, first[0].Span: true, beside.Span: true, second[0].Span: true}
	proxytest.Equal(t, "different ids", len(ids), 4)

	// Each span lies within the one before, by the wall clock.
	last := int64(0)
	for _, r := range []*trace.Record{at, beside} {
		a := attempts(r)[0]
		for _, began := range []time.Duration{r.Began, a.Sent} {
			if r.Zero+int64(began) < last {
				t.Error("a span begins before its parent")
			}
			last = r.Zero + int64(began)
		}
		if a.Ended > r.Ended || a.Ended <= a.Sent {
			t.Errorf("the attempt from %v to %v of an exchange until %v", a.Sent, a.Ended, r.Ended)
		}
	}
	if wall := proxytest.Epoch.Add(at.Began); at.Zero+int64(at.Began) != wall.UnixNano() {
		t.Errorf("began at %v, want %v", time.Unix(0, at.Zero+int64(at.Began)).UTC(), wall)
	}
}

// The attempts of a hedged request have the same parent. The loser ends when its endpoint
// has finished it. Only the hedge is marked for the application.
func TestSpansOfAHedge(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Service: proxytest.HedgeOn, Limits: tracing(0)}, func(t *testing.T, m *proxytest.Mesh) {
		m.WarmUp(20)
		all, states := m.RecordAllSpans(), m.Apps.CollectHeader("tracestate")
		m.Apps[0].FrozenUntil = m.W.Now() + 50*time.Millisecond
		var calls []*proxytest.Call
		for range 3 { // one of them goes to the frozen replica
			c := m.Post(10, "traceparent: "+proxytest.SampledParent, "tracestate: a=b")
			m.Do(c)
			calls = append(calls, c)
		}
		m.OK(calls...)
		m.Settled()
		protocolName := "link"
		if m.OneHop {
			protocolName = "http"
		}
		hedged := 0
		for _, r := range *all["10.0.0.1"] {
			sent := attempts(r)
			if len(sent) == 1 {
				proxytest.Equal(t, "one alone", summary(sent[0]), "0 primary "+protocolName+" won 200 ")
				continue
			}
			hedged++
			proxytest.Equal(t, "the loser", summary(sent[0]), "0 primary "+protocolName+" cancelled 0 ")
			proxytest.Equal(t, "the hedge", summary(sent[1]), "1 hedge "+protocolName+" won 200 ")
			proxytest.Equal(t, "the loser is withdrawn", sent[0].Withdrawn, r.Ended)
			if sent[0].Ended < m.Apps[0].FrozenUntil {
				t.Errorf("the loser ends at %v, before its endpoint thaws at %v", sent[0].Ended, m.Apps[0].FrozenUntil)
			}
			for _, a := range sent {
				if m.OneHop {
					continue
				}
				beside := all[strings.TrimSuffix(a.Endpoint, ":15006")]
				found := false
				for _, p := range *beside {
					if found = found || p.Parent == a.Span; p.Parent == a.Span && a.Outcome == trace.Cancelled {
						proxytest.Equal(t, "the loser's end at the provider", p.Status, 0)
						proxytest.Equal(t, "its attempt", summary(attempts(p)[0]), "0 primary http cancelled 0 ")
					}
				}
				if !found {
					t.Errorf("the attempt at %s is the parent of no span there", a.Endpoint)
				}
			}
		}
		proxytest.Equal(t, "hedged requests", hedged, 1)
		marked := 0
		for _, s := range *states {
			switch s {
			case "a=b":
			case "remora=h,a=b":
				marked++
			default:
				t.Errorf("an application got the trace state %q", s)
			}
		}
		proxytest.Equal(t, "marked attempts", marked, 1)
	})
}

// Also without tracing a hedge or retry is marked for the application, if the request has
// a trace.
func TestTraceStateMarksRetries(t *testing.T) {
	for _, c := range []struct {
		name    string
		headers []string
		want    string // at the retry
	}{
		{"no trace", nil, ""},
		{"a trace without a state", []string{"traceparent: " + proxytest.SampledParent}, "remora=h"},
		{"a trace with a state", []string{"traceparent: " + proxytest.SampledParent, "TraceState: a=b"}, "remora=h,a=b"},
		{"marked before", []string{"traceparent: " + proxytest.SampledParent, "tracestate: a=b,remora=h"}, "remora=h,a=b"},
		{"in two lines", []string{"tracestate: a=b", "traceparent: " + proxytest.SampledParent, "tracestate: remora=h,c=d"}, "remora=h,a=b,c=d"},
		{"full", []string{"traceparent: " + proxytest.SampledParent, "tracestate: x=y" + strings.Repeat(",a=b", 31)}, "remora=h,x=y" + strings.Repeat(",a=b", 30)},
		{"a trace that makes no sense", []string{"traceparent: 00", "tracestate: a=b"}, "a=b"},
		{"two traces", []string{"traceparent: " + proxytest.SampledParent, "traceparent: " + proxytest.SampledParent, "tracestate: a=b"}, "a=b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := proxytest.MeshOptions{Apps: 1, Service: "lb: {policy: random}"}
			proxytest.EachTopology(t, o, func(t *testing.T, m *proxytest.Mesh) {
				states := m.Apps.CollectHeader("tracestate")
				closed := registry.Endpoint{Addr: "10.0.1.1:9", Weight: 1e6} // the first attempt is sent there
				m.Consumer.Update("compute", closed, m.Endpoint(0))
				m.W.Run(time.Millisecond)
				k := m.Post(10, c.headers...)
				m.Do(k)
				m.Finish(k)
				m.Settled()
				proxytest.Equal(t, "requests at applications", len(*states), 1)
				proxytest.Equal(t, "the retry's trace state", (*states)[0], c.want)
			})
		})
	}
}

func TestSpansOfFailures(t *testing.T) {
	const retry = "idempotent: true, retry: {attempts: 1, on: [refused, reset, 5xx]}"
	for _, c := range []struct {
		name     string
		o        proxytest.MeshOptions
		arrange  func(m *proxytest.Mesh)
		status   int
		code     string
		attempts []string
	}{
		{"a retry wins", proxytest.MeshOptions{Apps: 1, OneHop: true, Service: retry}, func(m *proxytest.Mesh) { m.Apps[0].DropNext = true }, 200, "",
			[]string{"0 primary http failed 0 upstream-reset", "1 retry http won 200 "}},
		{"the application's error", proxytest.MeshOptions{Apps: 1}, func(m *proxytest.Mesh) { m.Apps[0].Status = 500 }, 500, "",
			[]string{"0 primary link won 500 "}},
		{"the best of two errors", proxytest.MeshOptions{Apps: 2, OneHop: true, Service: retry}, func(m *proxytest.Mesh) {
			m.Apps[0].Status, m.Apps[1].Status = 500, 500
		}, 500, "", []string{"0 primary http won 500 ", "1 retry http failed 500 "}},
		{"all broken", proxytest.MeshOptions{Apps: 1, OneHop: true}, func(m *proxytest.Mesh) { m.Apps[0].ResetAll = true }, 502, "upstream-reset",
			[]string{"0 primary http failed 0 upstream-reset"}},
		{"refused", proxytest.MeshOptions{Apps: 1, Provider: "rate_limit: {rate: 1, burst: 1}"}, func(m *proxytest.Mesh) { m.WarmUp(1) }, 429, "rate-limited",
			[]string{"0 primary link refused 0 rate-limited", "1 retry link refused 0 rate-limited"}},
		{"no time left", proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "timeout: 20ms"}, func(m *proxytest.Mesh) {
			m.Apps[0].FrozenUntil = m.W.Now() + time.Second
		}, 504, "deadline", []string{"0 primary http failed 0 deadline"}},
		{"a try that takes too long", proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "timeout: 5s, retry: {per_try_timeout: 20ms}"}, func(m *proxytest.Mesh) {
			m.Apps[0].FrozenUntil = m.W.Now() + time.Second
		}, 504, "upstream-timeout", []string{"0 primary http failed 0 upstream-timeout"}},
		{"no endpoint", proxytest.MeshOptions{Apps: 1, OneHop: true}, func(m *proxytest.Mesh) { m.Consumer.Update("compute") }, 503, "no-endpoint", nil},
		{"no route", proxytest.MeshOptions{Apps: 1, OneHop: true, Match: "match: {path: /none}"}, func(*proxytest.Mesh) {}, 404, "no-route", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Limits = tracing(1)
			m := proxytest.NewMesh(t, c.o)
			c.arrange(m)
			l := m.Consumer.RecordSpans()
			k := m.Post(10)
			m.Do(k)
			m.Finish(k)
			m.Settled()
			r := l.Only(t)
			proxytest.Equal(t, "the caller's status", k.Status, c.status)
			proxytest.Equal(t, "the exchange", fmt.Sprint(r.Status, " ", r.Error), fmt.Sprint(c.status, " ", c.code))
			var got []string
			for _, a := range attempts(r) {
				got = append(got, summary(a))
			}
			proxytest.Equal(t, "attempts", strings.Join(got, "; "), strings.Join(c.attempts, "; "))
		})
	}
}

// The span of a request whose caller closes its connection has no status.
func TestSpanOfAnAbandonedRequest(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: tracing(1)})
	l := m.Consumer.RecordSpans()
	m.Apps[0].FrozenUntil = m.W.Now() + 50*time.Millisecond
	c := m.Do(m.Post(10))
	m.W.Run(10 * time.Millisecond)
	c.Leave()
	m.Settled()
	r := l.Only(t)
	proxytest.Equal(t, "status", fmt.Sprint(r.Status, r.Error), "0")
	proxytest.Equal(t, "the attempt", summary(attempts(r)[0]), "0 primary http cancelled 0 ")
}

// A record copies a bounded part of its request, because many records may be queued.
func TestRecordsAreBounded(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: tracing(1)})
	l := m.Consumer.RecordSpans()
	k := m.Get("/" + strings.Repeat("x", 10_000))
	m.Do(k)
	m.Finish(k)
	if n := len(l.Only(t).Path); n > 512 {
		t.Errorf("%d bytes of the path are kept", n)
	}
}

// TestSpansOfAShedRequest: a request that is given up because memory is short is no late one.
func TestSpansOfAShedRequest(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: tracing(1)})
	app, provider := m.Apps[0], m.Nodes[1]
	all := provider.RecordSpans()
	w, p := m.DialLink()
	send := func(id uint64, size int, takes time.Duration) {
		app.Delay = func() time.Duration { return takes }
		req := *proxytest.LinkRequest
		req.Method, req.Body = []byte("POST"), make([]byte, size)
		req.Headers = []protocol.Header{{Name: []byte("traceparent"), Value: []byte(proxytest.SampledParent)}}
		w.Request(id, &req, time.Minute, nil)
		m.Clients.Do(func() { p.Conn.Write(w.Append(nil, 1<<20)) })
		m.W.Run(20 * time.Millisecond)
	}
	send(1, 100<<10, time.Second)
	app.Body = func(*protocol.Request) []byte { return make([]byte, 1<<20) }
	send(2, 10, 30*time.Millisecond)
	provider.Proc.Charge(1 << 30)
	m.W.Run(20 * time.Millisecond) // the sidecar notices as the response to the second request comes
	provider.Proc.Charge(-1 << 30)
	m.Settled()
	first := attempts((*all)[0])
	proxytest.Equal(t, "attempts", len(first), 1)
	proxytest.Equal(t, "the attempt", summary(first[0]), "0 primary http failed 0 shed")
	if n := provider.Report().Services[0].Routes[0].Latency.Censored; n != 0 {
		t.Errorf("%d requests count as slower than all others", n)
	}
}
