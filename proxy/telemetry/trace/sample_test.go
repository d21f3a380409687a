package trace_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// The sender of a request with a trace decides whether it is recorded. An invalid trace
// counts as none. It is passed on unless this sidecar begins a trace.
func TestSamplingByParent(t *testing.T) {
	const state = "tracestate: a=b"
	unsampled := strings.TrimSuffix(proxytest.SampledParent, "1") + "0"
	for _, c := range []struct {
		name    string
		share   float64
		headers []string
		records int
		ours    bool   // this sidecar begins the trace
		app     string // the trace context that it gets; "" means that of the attempt's span
		state   string
	}{
		{"sampled by them", 0, []string{"Traceparent: " + proxytest.SampledParent, state}, 1, false, "", "a=b"},
		{"not sampled by them", 1, []string{"traceparent: " + unsampled, state}, 0, false, unsampled, "a=b"},
		{"of a version to come", 0, []string{"traceparent: cc" + proxytest.SampledParent[2:] + "-x", state}, 1, false, "", "a=b"},
		{"malformed, sampled by us", 1, []string{"traceparent: " + proxytest.SampledParent + "-x", state}, 1, true, "", ""},
		{"malformed, not sampled", 0, []string{"traceparent: " + proxytest.SampledParent + "-x", state}, 0, false, proxytest.SampledParent + "-x", "a=b"},
		{"two, sampled by us", 1, []string{"traceparent: " + proxytest.SampledParent, "traceparent: " + proxytest.SampledParent}, 1, true, "", ""},
		{"none, not sampled", 0, nil, 0, false, "", ""},
		{"trace state alone, sampled by us", 1, []string{state}, 1, true, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1, Limits: tracing(c.share)}, func(t *testing.T, m *proxytest.Mesh) {
				all, app, states := m.RecordAllSpans(), m.Apps.CollectHeader("traceparent"), []string(nil)
				values := m.Apps[0].OnRequest
				m.Apps[0].OnRequest = func(req *protocol.Request) {
					values(req)
					states = append(states, string(protocol.Find(req.Headers, "tracestate")))
				}
				k := m.Post(10, c.headers...)
				m.Do(k)
				m.OK(k)
				m.Settled()
				for host, l := range all {
					if len(*l) != c.records {
						t.Fatalf("%s has %d records, want %d", host, len(*l), c.records)
					}
				}
				proxytest.Equal(t, "the application's trace state", strings.Join(states, ", "), c.state)
				if c.records == 0 {
					proxytest.Equal(t, "the application's trace", strings.Join(*app, ", "), c.app)
					return
				}
				last := all[m.Nodes[len(m.Nodes)-1].Host].Only(t)
				proxytest.Equal(t, "the application's trace", strings.Join(*app, ", "), parent(last.Context, attempts(last)[0].Span))
				first := all["10.0.0.1"].Only(t)
				if theirs := fmt.Sprintf("%x-%x", first.Trace, first.Parent) == proxytest.ParentTraceID+"-"+proxytest.ParentSpanID; theirs == c.ours {
					t.Errorf("trace %x, parent %x", first.Trace, first.Parent)
				}
				proxytest.Equal(t, "sampled", first.Sampled(), true)
			})
		})
	}
}

func TestSamplingByChance(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: tracing(0.25)})
	l := m.Consumer.RecordSpans()
	m.WarmUp(400)
	if n := len(*l); n < 60 || n > 140 {
		t.Errorf("%d of 400 are sampled, want about 100", n)
	}
	traces := map[trace.TraceID]bool{}
	for _, r := range *l {
		traces[r.Trace] = true
	}
	proxytest.Equal(t, "different traces", len(traces), len(*l))
}

// The access log has the trace of a sampled request that reached no endpoint.
func TestTraceOfARefusedRequest(t *testing.T) {
	for _, c := range []struct {
		share   float64
		headers []string
	}{{0, []string{"traceparent: " + proxytest.SampledParent}}, {1, nil}} {
		o := proxytest.MeshOptions{Apps: 1, OneHop: true, Match: "match: {path: /none}", Limits: tracing(c.share) + "\n" + proxytest.LogAll}
		m := proxytest.NewMesh(t, o)
		l := m.Consumer.RecordSpans()
		k := m.Get("/", c.headers...)
		m.Do(k)
		m.Finish(k)
		line := m.Consumer.OnlyAccessLine()
		proxytest.Equal(t, "the refusal", line.Error, "no-route")
		proxytest.Equal(t, "its trace", line.TraceID, fmt.Sprintf("%x", l.Only(t).Trace))
	}
}

// An invalid trace id is not logged.
func TestInvalidTraceIsNotLogged(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: proxytest.LogAll})
	k := m.Get("/", "traceparent: 00-"+strings.Repeat("?", 32)+"-"+proxytest.ParentSpanID+"-01")
	m.Do(k)
	m.Finish(k)
	proxytest.Equal(t, "the trace", m.Consumer.OnlyAccessLine().TraceID, "")
}
