package proxy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/trace"
)

// Who sends a request with a trace decides whether it is recorded. What makes no
// sense is as nothing; it is passed on unless a trace of ours takes its place.
func TestSamplingByParent(t *testing.T) {
	const state = "tracestate: a=b"
	unsampled := strings.TrimSuffix(sampledBy, "1") + "0"
	for _, c := range []struct {
		name    string
		share   float64
		headers []string
		records int
		ours    bool   // the trace begins here
		app     string // gets that; "": the attempt's span
		state   string
	}{
		{"sampled by them", 0, []string{"Traceparent: " + sampledBy, state}, 1, false, "", "a=b"},
		{"not sampled by them", 1, []string{"traceparent: " + unsampled, state}, 0, false, unsampled, "a=b"},
		{"of a version to come", 0, []string{"traceparent: cc" + sampledBy[2:] + "-x", state}, 1, false, "", "a=b"},
		{"malformed, sampled by us", 1, []string{"traceparent: " + sampledBy + "-x", state}, 1, true, "", ""},
		{"malformed, not sampled", 0, []string{"traceparent: " + sampledBy + "-x", state}, 0, false, sampledBy + "-x", "a=b"},
		{"two, sampled by us", 1, []string{"traceparent: " + sampledBy, "traceparent: " + sampledBy}, 1, true, "", ""},
		{"none, not sampled", 0, nil, 0, false, "", ""},
		{"trace state alone, sampled by us", 1, []string{state}, 1, true, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachTopology(t, meshOptions{apps: 1, limits: tracing(c.share)}, func(t *testing.T, m *mesh) {
				all, app, states := m.spyAll(), m.seen("traceparent"), []string(nil)
				values := m.apps[0].seen
				m.apps[0].seen = func(req *protocol.Request) {
					values(req)
					states = append(states, string(protocol.Find(req.Headers, "tracestate")))
				}
				k := m.post(10, c.headers...)
				m.do(k)
				m.finish(k)
				m.ok(k)
				m.settled()
				for host, l := range all {
					if len(*l) != c.records {
						t.Fatalf("%s has %d records, want %d", host, len(*l), c.records)
					}
				}
				want(t, "the application's trace state", strings.Join(states, ", "), c.state)
				if c.records == 0 {
					want(t, "the application's trace", strings.Join(*app, ", "), c.app)
					return
				}
				last := all[m.nodes[len(m.nodes)-1].host].only(t)
				want(t, "the application's trace", strings.Join(*app, ", "), parent(last.Context, attempts(last)[0].Span))
				first := all["10.0.0.1"].only(t)
				if theirs := fmt.Sprintf("%x-%x", first.Trace, first.Parent) == theirTrace+"-"+theirSpan; theirs == c.ours {
					t.Errorf("trace %x, parent %x", first.Trace, first.Parent)
				}
				want(t, "sampled", first.Sampled(), true)
			})
		})
	}
}

func TestSamplingByChance(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, direct: true, limits: tracing(0.25)})
	l := m.consumer.spy()
	m.warm(400)
	if n := len(*l); n < 60 || n > 140 {
		t.Errorf("%d of 400 are sampled, want about 100", n)
	}
	traces := map[trace.TraceID]bool{}
	for _, r := range *l {
		traces[r.Trace] = true
	}
	want(t, "different traces", len(traces), len(*l))
}

// The access log has the trace of a sampled request also when that reached nobody.
func TestTraceOfARefusedRequest(t *testing.T) {
	for _, c := range []struct {
		share   float64
		headers []string
	}{{0, []string{"traceparent: " + sampledBy}}, {1, nil}} {
		o := meshOptions{apps: 1, direct: true, match: "match: {path: /none}, ", limits: tracing(c.share) + "\n" + logAll}
		m := newMesh(t, o)
		l := m.consumer.spy()
		k := m.get("/", c.headers...)
		m.do(k)
		m.finish(k)
		line := m.consumer.line()
		want(t, "the refusal", line.Error, "no-route")
		want(t, "its trace", line.TraceID, fmt.Sprintf("%x", l.only(t).Trace))
	}
}

// What is no trace id is not logged as one.
func TestTraceThatMakesNoSenseIsNotLogged(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, direct: true, limits: logAll})
	k := m.get("/", "traceparent: 00-"+strings.Repeat("?", 32)+"-"+theirSpan+"-01")
	m.do(k)
	m.finish(k)
	want(t, "the trace", m.consumer.line().TraceID, "")
}
