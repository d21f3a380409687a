package otlp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// attributes are shown as key=value.
func attributes(list []*common.KeyValue) (out []string) {
	for _, kv := range list {
		var v any
		switch x := kv.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			v = x.StringValue
		case *common.AnyValue_IntValue:
			v = x.IntValue
		case *common.AnyValue_BoolValue:
			v = x.BoolValue
		}
		out = append(out, fmt.Sprintf("%s=%v", kv.Key, v))
	}
	return out
}

// show is a span as text.
func show(s *tracepb.Span) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %x<%x %d-%d", s.Name, strings.TrimPrefix(s.Kind.String(), "SPAN_KIND_"), s.SpanId, s.ParentSpanId,
		s.StartTimeUnixNano, s.EndTimeUnixNano)
	fmt.Fprintf(&b, " [%s]", strings.Join(attributes(s.Attributes), " "))
	for _, e := range s.Events {
		fmt.Fprintf(&b, " %s@%d", e.Name, e.TimeUnixNano)
	}
	if s.Status != nil {
		fmt.Fprintf(&b, " %s %s", strings.TrimPrefix(s.Status.Code.String(), "STATUS_CODE_"), s.Status.Message)
	}
	return b.String()
}

// spans are those of r, by way of the wire.
func spans(t *testing.T, r *trace.Record) (out []string) {
	t.Helper()
	b, err := proto.Marshal(message([]*trace.Record{r}, &Options{Node: "n1", Version: "v1"}, "shop"))
	if err != nil {
		t.Fatal(err)
	}
	var d tracepb.TracesData
	if err := proto.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	scoped := d.ResourceSpans[0].ScopeSpans[0]
	if scoped.Scope.Version != "v1" {
		t.Errorf("scope %v", scoped.Scope)
	}
	for _, s := range scoped.Spans {
		if string(s.TraceId) != string(r.Trace[:]) {
			t.Errorf("trace %x", s.TraceId)
		}
		out = append(out, show(s))
	}
	return out
}

func compare(t *testing.T, got []string, want ...string) {
	t.Helper()
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}

func TestHedgedRequest(t *testing.T) {
	r := record(9)
	r.Parent, r.Zero = trace.SpanID{8}, 1000
	r.Began, r.Ended = 1*time.Nanosecond, 20*time.Nanosecond
	r.Protocol, r.Authority, r.RequestID, r.Service = "http", "compute:80", "r1", "compute"
	*sent(r, 1) = trace.Attempt{
		Span: trace.SpanID{1}, Endpoint: "10.0.0.1:15006", Protocol: "link", Sent: 2, Withdrawn: 20, Ended: 50, Outcome: trace.Cancelled,
	}
	*sent(r, 3) = trace.Attempt{
		Span: trace.SpanID{3}, Kind: trace.Hedge, Number: 2, Endpoint: "[::1]:15006", Protocol: "link", Sent: 10, Ended: 19,
		Outcome: trace.Won, Status: 200,
	}
	compare(t, spans(t, r),
		"GET SERVER 0902000000000000<0800000000000000 1001-1020 [http.request.method=GET url.path=/ url.scheme=http"+
			" server.address=compute server.port=80 remora.downstream=http remora.service=compute remora.request_id=r1"+
			" http.response.status_code=200]",
		"GET CLIENT 0100000000000000<0902000000000000 1002-1050 [http.request.method=GET server.address=10.0.0.1 server.port=15006"+
			" remora.upstream=link remora.attempt=0 remora.hedge=false remora.kind=primary remora.outcome=cancelled] withdrawn@1020",
		"GET hedge CLIENT 0300000000000000<0902000000000000 1010-1019 [http.request.method=GET server.address=::1 server.port=15006"+
			" remora.upstream=link remora.attempt=2 remora.hedge=true remora.kind=hedge remora.outcome=won"+
			" http.request.resend_count=2 http.response.status_code=200]")
}

func TestErrors(t *testing.T) {
	r := record(1)
	r.Status, r.Error, r.Method = 502, "upstream-reset", "BREW"
	a := sent(r, 1)
	a.Outcome, a.Error, a.Endpoint = trace.Failed, "upstream-reset", "/run/app"
	compare(t, spans(t, r),
		"HTTP SERVER 0102000000000000< 0-0 [http.request.method=_OTHER http.request.method_original=BREW url.path=/ url.scheme=http"+
			" server.address= remora.downstream= http.response.status_code=502 error.type=upstream-reset] ERROR upstream-reset",
		"HTTP CLIENT 0100000000000000<0102000000000000 0-0 [http.request.method=_OTHER http.request.method_original=BREW"+
			" server.address=/run/app remora.upstream= remora.attempt=0 remora.hedge=false remora.kind=primary remora.outcome=failed"+
			" error.type=upstream-reset] ERROR upstream-reset")
}

// A client's mistake is an error of who asked, not of who answered.
func TestStatus(t *testing.T) {
	for _, c := range []struct {
		status                   int
		serverError, clientError bool
	}{{200, false, false}, {302, false, false}, {404, false, true}, {500, true, true}, {0, false, false}} {
		r := record(1)
		r.Status = c.status
		sent(r, 1).Status = c.status
		got := spans(t, r)
		if strings.Contains(got[0], "ERROR") != c.serverError || strings.Contains(got[1], "ERROR") != c.clientError {
			t.Errorf("%d:\n%s", c.status, strings.Join(got, "\n"))
		}
		if cancelled := strings.Contains(got[0], "remora.outcome=cancelled"); cancelled != (c.status == 0) {
			t.Errorf("%d: cancelled: %v", c.status, cancelled)
		}
	}
}

// So it is where the sidecar itself answers, whose code stays to be seen.
func TestOwnStatus(t *testing.T) {
	for _, c := range []struct {
		status int
		wrong  bool
	}{{404, false}, {429, false}, {501, true}, {503, true}} {
		r := record(1)
		r.Status, r.Error = c.status, "some-code"
		got := spans(t, r)[0]
		if strings.Contains(got, "ERROR") != c.wrong || !strings.Contains(got, "error.type=some-code") {
			t.Errorf("%d: %s", c.status, got)
		}
	}
}

func TestDubboCall(t *testing.T) {
	r := record(1)
	r.RPC, r.Protocol, r.Path, r.Method = true, "dubbo", "com.acme.Demo", "echo"
	compare(t, spans(t, r),
		"com.acme.Demo/echo SERVER 0102000000000000< 0-0 [rpc.system=apache_dubbo rpc.service=com.acme.Demo rpc.method=echo"+
			" remora.downstream=dubbo]")
}

// One text that is no UTF-8 does not cost a batch.
func TestInvalidText(t *testing.T) {
	r := record(1)
	r.Path, r.RPC, r.Method = "/\xff", true, "\xfe"
	if got := spans(t, r)[0]; !strings.HasPrefix(got, "/\ufffd/\ufffd ") {
		t.Error(got)
	}
}
