package proxy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/trace"
)

// records are what a node has recorded, in the order in which requests were over.
type records []*trace.Record

func (l *records) Put(r *trace.Record) { *l = append(*l, r) }

// tracing is the YAML of a sidecar that samples a share of what comes without a
// trace.
func tracing(share float64) string {
	return fmt.Sprintf(`tracing: {endpoint: "http://192.0.2.1:4318", sample: %g}`, share)
}

// spy has the node's records go to a list.
func (n *node) spy() *records {
	l := new(records)
	n.proc.SetSpans(l)
	return l
}

// spyAll has every node's, by its host.
func (m *mesh) spyAll() map[string]*records {
	all := map[string]*records{}
	for _, n := range m.nodes {
		all[n.host] = n.spy()
	}
	return all
}

// only is the one record that there is.
func (l *records) only(t *testing.T) *trace.Record {
	t.Helper()
	if len(*l) != 1 {
		t.Fatalf("%d records, want 1", len(*l))
	}
	return (*l)[0]
}

// attempts are those that were sent.
func attempts(r *trace.Record) (sent []trace.Attempt) {
	for _, a := range r.Attempts {
		if a.Span != (trace.SpanID{}) {
			sent = append(sent, a)
		}
	}
	return sent
}

// told is what an attempt came to, in one line.
func told(a trace.Attempt) string {
	return fmt.Sprintf("%d %s %s %s %d %s", a.Number, a.Kind, a.Protocol, a.Outcome, a.Status, a.Error)
}

func want(t *testing.T, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// seen collects the values that applications get of a header, one for each request.
func (m *mesh) seen(name string) *[]string {
	values := new([]string)
	for _, a := range m.apps {
		a.seen = func(req *protocol.Request) {
			var lines []string
			for _, h := range req.Headers {
				if protocol.EqualFold(h.Name, name) {
					lines = append(lines, string(h.Value))
				}
			}
			*values = append(*values, strings.Join(lines, " and "))
		}
	}
	return values
}

func parent(c trace.Context, span trace.SpanID) string {
	c.Span = span
	return string(c.Append(nil))
}

const (
	theirTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	theirSpan  = "00f067aa0ba902b7"
	sampledBy  = "00-" + theirTrace + "-" + theirSpan + "-01"
)

// A plain request through two sidecars is a chain: the consumer's exchange, its
// attempt, the provider's exchange, its attempt, and what the application makes of it.
func TestSpansOfAPlainRequest(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, limits: tracing(1)})
	all, app := m.spyAll(), m.seen("traceparent")
	c := m.get("/x/y?token=secret", "x-request-id: r1")
	m.do(c)
	m.finish(c)
	m.ok(c)
	m.settled()

	at, beside := all["10.0.0.1"].only(t), all["10.0.1.1"].only(t)
	want(t, "parent of the root", at.Parent, trace.SpanID{})
	want(t, "the request", fmt.Sprint(at.Protocol, at.RPC, at.Method, at.Path, at.Authority, at.RequestID, at.Service),
		fmt.Sprint("http", false, "GET", "/x/y", "compute", "r1", "compute"))
	want(t, "its end", fmt.Sprint(at.Status, at.Error), "200")
	first := attempts(at)
	want(t, "attempts", len(first), 1)
	want(t, "the attempt", told(first[0]), "0 primary link won 200 ")
	want(t, "its endpoint", first[0].Endpoint, "10.0.1.1:15006")

	want(t, "the provider's trace", beside.Trace, at.Trace)
	want(t, "the provider's parent", beside.Parent, first[0].Span)
	want(t, "the provider's request", fmt.Sprint(beside.Protocol, beside.Service, beside.Status), "linklocal200")
	second := attempts(beside)
	want(t, "attempts", len(second), 1)
	want(t, "the attempt", told(second[0]), "0 primary http won 200 ")
	want(t, "what the application got", strings.Join(*app, ", "), parent(at.Context, second[0].Span))
	ids := map[trace.SpanID]bool{at.Span: true, first[0].Span: true, beside.Span: true, second[0].Span: true}
	want(t, "different ids", len(ids), 4)

	// Each lies within the one before, on the wall clock of all.
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
	if wall := epoch.Add(at.Began); at.Zero+int64(at.Began) != wall.UnixNano() {
		t.Errorf("began at %v, want %v", time.Unix(0, at.Zero+int64(at.Began)).UTC(), wall)
	}
}

// The attempts of a hedged request stand side by side, the loser until its endpoint is
// done with it; and only the hedge is marked for the application.
func TestSpansOfAHedge(t *testing.T) {
	eachTopology(t, meshOptions{service: hedgeOn, limits: tracing(0)}, func(t *testing.T, m *mesh) {
		m.warm(20)
		all, states := m.spyAll(), m.seen("tracestate")
		m.apps[0].frozen = m.w.Now() + 50*time.Millisecond
		var calls []*call
		for range 3 { // one of them meets the frozen replica
			c := m.post(10, "traceparent: "+sampledBy, "tracestate: a=b")
			m.do(c)
			calls = append(calls, c)
		}
		m.finish(calls...)
		m.ok(calls...)
		m.settled()
		protocolName := "link"
		if m.direct {
			protocolName = "http"
		}
		hedged := 0
		for _, r := range *all["10.0.0.1"] {
			sent := attempts(r)
			if len(sent) == 1 {
				want(t, "one alone", told(sent[0]), "0 primary "+protocolName+" won 200 ")
				continue
			}
			hedged++
			want(t, "the loser", told(sent[0]), "0 primary "+protocolName+" cancelled 0 ")
			want(t, "the hedge", told(sent[1]), "1 hedge "+protocolName+" won 200 ")
			want(t, "the loser is withdrawn", sent[0].Withdrawn, r.Ended)
			if sent[0].Ended < m.apps[0].frozen {
				t.Errorf("the loser ends at %v, before its endpoint thaws at %v", sent[0].Ended, m.apps[0].frozen)
			}
			for _, a := range sent {
				if m.direct {
					continue
				}
				beside := all[strings.TrimSuffix(a.Endpoint, ":15006")]
				found := false
				for _, p := range *beside {
					if found = found || p.Parent == a.Span; p.Parent == a.Span && a.Outcome == trace.Cancelled {
						want(t, "the loser's end at the provider", p.Status, 0)
						want(t, "its attempt", told(attempts(p)[0]), "0 primary http cancelled 0 ")
					}
				}
				if !found {
					t.Errorf("the attempt at %s is the parent of nothing there", a.Endpoint)
				}
			}
		}
		want(t, "hedged requests", hedged, 1)
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
		want(t, "marked attempts", marked, 1)
	})
}

// Without tracing the application is told of a hedge or retry all the same, where the
// request belongs to a trace.
func TestTraceStateMarksRetries(t *testing.T) {
	for _, c := range []struct {
		name    string
		headers []string
		want    string // of the retry
	}{
		{"no trace", nil, ""},
		{"a trace without a state", []string{"traceparent: " + sampledBy}, "remora=h"},
		{"a trace with a state", []string{"traceparent: " + sampledBy, "TraceState: a=b"}, "remora=h,a=b"},
		{"marked before", []string{"traceparent: " + sampledBy, "tracestate: a=b,remora=h"}, "remora=h,a=b"},
		{"in two lines", []string{"tracestate: a=b", "traceparent: " + sampledBy, "tracestate: remora=h,c=d"}, "remora=h,a=b,c=d"},
		{"full", []string{"traceparent: " + sampledBy, "tracestate: x=y" + strings.Repeat(",a=b", 31)}, "remora=h,x=y" + strings.Repeat(",a=b", 30)},
		{"a trace that makes no sense", []string{"traceparent: 00", "tracestate: a=b"}, "a=b"},
		{"two traces", []string{"traceparent: " + sampledBy, "traceparent: " + sampledBy, "tracestate: a=b"}, "a=b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := meshOptions{service: ", idempotent: true, retry: {attempts: 1, on: [5xx]}"}
			eachTopology(t, o, func(t *testing.T, m *mesh) {
				states := m.seen("tracestate")
				for _, a := range m.apps {
					a.status = 503
				}
				k := m.post(10, c.headers...)
				m.do(k)
				m.finish(k)
				m.settled()
				want(t, "requests at applications", len(*states), 2)
				want(t, "the retry's trace state", (*states)[1], c.want)
			})
		})
	}
}

func TestSpansOfFailures(t *testing.T) {
	const retry = ", idempotent: true, retry: {attempts: 1, on: [refused, reset, 5xx]}"
	for _, c := range []struct {
		name     string
		o        meshOptions
		arrange  func(m *mesh)
		status   int
		code     string
		attempts []string
	}{
		{"a retry wins", meshOptions{apps: 1, direct: true, service: retry}, func(m *mesh) { m.apps[0].dropNext = true }, 200, "",
			[]string{"0 primary http failed 0 upstream-reset", "1 retry http won 200 "}},
		{"the application's error", meshOptions{apps: 1}, func(m *mesh) { m.apps[0].status = 500 }, 500, "",
			[]string{"0 primary link won 500 "}},
		{"the best of two errors", meshOptions{apps: 2, direct: true, service: retry}, func(m *mesh) {
			m.apps[0].status, m.apps[1].status = 500, 500
		}, 500, "", []string{"0 primary http won 500 ", "1 retry http failed 500 "}},
		{"all broken", meshOptions{apps: 1, direct: true}, func(m *mesh) { m.apps[0].resetAll = true }, 502, "upstream-reset",
			[]string{"0 primary http failed 0 upstream-reset"}},
		{"refused", meshOptions{apps: 1, provider: ", rate_limit: {rate: 1, burst: 1}"}, func(m *mesh) { m.warm(1) }, 429, "rate-limited",
			[]string{"0 primary link refused 0 rate-limited", "1 retry link refused 0 rate-limited"}},
		{"no time left", meshOptions{apps: 1, direct: true, service: ", timeout: 20ms"}, func(m *mesh) {
			m.apps[0].frozen = m.w.Now() + time.Second
		}, 504, "deadline", []string{"0 primary http failed 0 deadline"}},
		{"no endpoint", meshOptions{apps: 1, direct: true}, func(m *mesh) { m.consumer.update("compute") }, 503, "no-endpoint", nil},
		{"no route", meshOptions{apps: 1, direct: true, match: "match: {path: /none}, "}, func(*mesh) {}, 404, "no-route", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.limits = tracing(1)
			m := newMesh(t, c.o)
			c.arrange(m)
			l := m.consumer.spy()
			k := m.post(10)
			m.do(k)
			m.finish(k)
			m.settled()
			r := l.only(t)
			want(t, "the caller's status", k.status, c.status)
			want(t, "the exchange", fmt.Sprint(r.Status, " ", r.Error), fmt.Sprint(c.status, " ", c.code))
			var got []string
			for _, a := range attempts(r) {
				got = append(got, told(a))
			}
			want(t, "attempts", strings.Join(got, "; "), strings.Join(c.attempts, "; "))
		})
	}
}

// A caller that goes away ends its span without a status.
func TestSpanOfAnAbandonedRequest(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, direct: true, limits: tracing(1)})
	l := m.consumer.spy()
	m.apps[0].frozen = m.w.Now() + 50*time.Millisecond
	c := m.do(m.post(10))
	m.w.Run(10 * time.Millisecond)
	m.clients.Do(func() { c.conn.Close() })
	m.settled()
	r := l.only(t)
	want(t, "status", fmt.Sprint(r.Status, r.Error), "0")
	want(t, "the attempt", told(attempts(r)[0]), "0 primary http cancelled 0 ")
}

// What is copied of a request is bounded: many records may wait.
func TestRecordsAreBounded(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, direct: true, limits: tracing(1)})
	l := m.consumer.spy()
	k := m.get("/" + strings.Repeat("x", 10_000))
	m.do(k)
	m.finish(k)
	if n := len(l.only(t).Path); n > 512 {
		t.Errorf("%d bytes of the path are kept", n)
	}
}
