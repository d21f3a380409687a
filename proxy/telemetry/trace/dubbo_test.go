package trace_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// The trace of a Dubbo call is in its attachments. The sidecars read it and pass the
// attachments on unchanged.
func TestSpansOfADubboCall(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Limits: tracing(0)})
	all := m.RecordAllSpans()
	body := proxytest.FastjsonCall(proxytest.DemoService, "", "", "echo", "hello")
	body = bytes.Replace(body, []byte(`{"path"`), []byte(`{"traceparent":"`+proxytest.SampledParent+`","path"`), 1)
	var got []byte
	m.Apps[0].OnCall = func(f *dubbo.Frame) { got = bytes.Clone(f.Body) }
	c := m.DialDubbo(proxytest.EgressDubbo)
	c.CheckResult(c.Call(dubbo.Fastjson, body), dubbo.StatusOK, "")
	m.Settled()
	if !bytes.Equal(got, body) {
		t.Errorf("the provider got %q, want %q", got, body)
	}
	at, beside := all["10.0.0.1"].Only(t), all["10.0.1.1"].Only(t)
	proxytest.Equal(t, "trace and parent", fmt.Sprintf("%x-%x", at.Trace, at.Parent), proxytest.ParentTraceID+"-"+proxytest.ParentSpanID)
	proxytest.Equal(t, "the call", fmt.Sprint(at.Protocol, at.RPC, at.Path, at.Method), fmt.Sprint("dubbo", true, proxytest.DemoService, "echo"))
	proxytest.Equal(t, "the attempt", summary(attempts(at)[0]), "0 primary link won 200 ")
	proxytest.Equal(t, "the provider's parent", beside.Parent, attempts(at)[0].Span)
	proxytest.Equal(t, "the provider's attempt", summary(attempts(beside)[0]), "0 primary dubbo won 200 ")
}

// The fields that a later version of trace context adds are for the provider only. They may
// be longer than the headers of a request may be.
func TestDubboCallOfALaterTraceContext(t *testing.T) {
	for _, flags := range []string{"00", "01"} {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Limits: tracing(0)})
		all := m.RecordAllSpans()
		later := "cc-" + proxytest.ParentTraceID + "-" + proxytest.ParentSpanID + "-" + flags + "-" + strings.Repeat("x", 200_000)
		body := bytes.Replace(proxytest.FastjsonCall(proxytest.DemoService, "", "", "echo", "hello"), []byte(`{"path"`), []byte(`{"traceparent":"`+later+`","path"`), 1)
		c := m.DialDubbo(proxytest.EgressDubbo)
		c.CheckResult(c.Call(dubbo.Fastjson, body), dubbo.StatusOK, "")
		m.Settled()
		if flags == "01" {
			proxytest.Equal(t, "the trace at the provider's", fmt.Sprintf("%x", all["10.0.1.1"].Only(t).Trace), proxytest.ParentTraceID)
		}
	}
}

// A request that is converted to Dubbo has the attempt's span as an attachment.
func TestSpansOfAConvertedCall(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Limits: tracing(1)})
	all := m.RecordAllSpans()
	var got []byte
	m.Apps[0].OnCall = func(f *dubbo.Frame) { got = bytes.Clone(f.Body) }
	k := m.FormCall("echo", "hello")
	m.Do(k)
	m.Finish(k)
	m.Settled()
	beside := all["10.0.1.1"].Only(t)
	if value := parent(beside.Context, attempts(beside)[0].Span); !bytes.Contains(got, []byte(value)) {
		t.Errorf("the provider got %q, want the attachment %s", got, value)
	}
}
