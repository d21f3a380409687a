package proxy_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol/dubbo"
)

// A Dubbo call's trace is in its attachments, which pass unread: the sidecars go by
// it, and the provider gets it as it came.
func TestSpansOfADubboCall(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 1, limits: tracing(0)})
	all := m.spyAll()
	body := fastjsonCall(demo, "", "", "echo", "hello")
	body = bytes.Replace(body, []byte(`{"path"`), []byte(`{"traceparent":"`+sampledBy+`","path"`), 1)
	var got []byte
	m.apps[0].seen = func(f *dubbo.Frame) { got = bytes.Clone(f.Body) }
	c := m.caller(egressDubbo)
	c.wants(c.call(dubbo.Fastjson, body), dubbo.StatusOK, "")
	m.settled()
	if !bytes.Equal(got, body) {
		t.Errorf("the provider got %q, want %q", got, body)
	}
	at, beside := all["10.0.0.1"].only(t), all["10.0.1.1"].only(t)
	want(t, "trace and parent", fmt.Sprintf("%x-%x", at.Trace, at.Parent), theirTrace+"-"+theirSpan)
	want(t, "the call", fmt.Sprint(at.Protocol, at.RPC, at.Path, at.Method), fmt.Sprint("dubbo", true, demo, "echo"))
	want(t, "the attempt", told(attempts(at)[0]), "0 primary link won 200 ")
	want(t, "the provider's parent", beside.Parent, attempts(at)[0].Span)
	want(t, "the provider's attempt", told(attempts(beside)[0]), "0 primary dubbo won 200 ")
}

// What a later version of trace context puts behind concerns the provider alone: it may
// be longer than the headers of a request can be.
func TestDubboCallOfALaterTraceContext(t *testing.T) {
	for _, flags := range []string{"00", "01"} {
		m := newDubboMesh(t, dubboOptions{apps: 1, limits: tracing(0)})
		all := m.spyAll()
		later := "cc-" + theirTrace + "-" + theirSpan + "-" + flags + "-" + strings.Repeat("x", 200_000)
		body := bytes.Replace(fastjsonCall(demo, "", "", "echo", "hello"), []byte(`{"path"`), []byte(`{"traceparent":"`+later+`","path"`), 1)
		c := m.caller(egressDubbo)
		c.wants(c.call(dubbo.Fastjson, body), dubbo.StatusOK, "")
		m.settled()
		if flags == "01" {
			want(t, "the trace at the provider's", fmt.Sprintf("%x", all["10.0.1.1"].only(t).Trace), theirTrace)
		}
	}
}

// A call that is converted to Dubbo takes the attempt's span along as an attachment.
func TestSpansOfAConvertedCall(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{apps: 1, limits: tracing(1)})
	all := m.spyAll()
	var got []byte
	m.apps[0].seen = func(f *dubbo.Frame) { got = bytes.Clone(f.Body) }
	k := m.form("echo", "hello")
	m.do(k)
	m.finish(k)
	m.settled()
	beside := all["10.0.1.1"].only(t)
	if value := parent(beside.Context, attempts(beside)[0].Span); !bytes.Contains(got, []byte(value)) {
		t.Errorf("the provider got %q, want the attachment %s", got, value)
	}
}
