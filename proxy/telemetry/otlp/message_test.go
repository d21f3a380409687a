package otlp

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// attributes returns the list as key=value.
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

// format returns a span as text.
func format(s *tracepb.Span) string {
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

// spans returns the spans of r as text, after encoding and decoding.
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
		out = append(out, format(s))
	}
	return out
}

var update = flag.Bool("update", false, "write the expected spans anew")

// compare compares spans with the lines of a file in testdata.
func compare(t *testing.T, name string, spans []string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	got := strings.Join(spans, "\n") + "\n"
	if *update {
		must.WriteFile(t, path, got)
	}
	want := must.ReadFile(t, path)
	if got != string(want) {
		t.Errorf("got\n%swant\n%s", got, want)
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
	compare(t, "hedged.spans", spans(t, r))
}

func TestFailedRequest(t *testing.T) {
	r := record(1)
	r.Status, r.Error, r.Method = 502, "upstream-reset", "BREW"
	a := sent(r, 1)
	a.Outcome, a.Error, a.Endpoint = trace.Failed, "upstream-reset", "/run/app"
	compare(t, "failed.spans", spans(t, r))
}

// A status of 4xx is an error of the client span, but not of the server span.
func TestStatus(t *testing.T) {
	for _, c := range []struct {
		status                   int
		serverError, clientError bool
	}{{200, false, false}, {302, false, false}, {399, false, false}, {400, false, true}, {499, false, true}, {500, true, true}, {0, false, false}} {
		r := record(1)
		r.Status = c.status
		sent(r, 1).Status = c.status
		got := spans(t, r)
		if strings.Contains(got[0], "ERROR") != c.serverError || strings.Contains(got[1], "ERROR") != c.clientError {
			t.Errorf("%d:\n%s", c.status, strings.Join(got, "\n"))
		}
		for i, wrong := range []bool{c.serverError, c.clientError} {
			if says := fmt.Sprintf(" error.type=%d] ERROR %d", c.status, c.status); strings.HasSuffix(got[i], says) != wrong {
				t.Errorf("%d: the end of %s", c.status, got[i])
			}
		}
		if cancelled := strings.Contains(got[0], "remora.outcome=cancelled"); cancelled != (c.status == 0) {
			t.Errorf("%d: cancelled: %v", c.status, cancelled)
		}
	}
}

// The same holds for the sidecar's own responses. Their span always has the code.
func TestLocalReplyStatus(t *testing.T) {
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
	*sent(r, 2) = trace.Attempt{Span: trace.SpanID{2}, Kind: trace.Retry, Number: 1, Endpoint: "10.0.0.1:20880", Protocol: "dubbo", Outcome: trace.Won, Status: 200}
	compare(t, "dubbo.spans", spans(t, r))
}

// An address has a port, or none.
func TestServerAddress(t *testing.T) {
	for addr, want := range map[string]string{
		"a.test:65535": "server.address=a.test server.port=65535", "a.test:65536": "server.address=a.test", "a.test": "server.address=a.test",
		"[::1]:80": "server.address=::1 server.port=80", "unix:/run/app": "server.address=/run/app network.transport=unix",
	} {
		if got := strings.Join(attributes(serverAttributes(addr)), " "); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}

// A string that is not UTF-8 must not make a batch invalid.
func TestInvalidText(t *testing.T) {
	r := record(1)
	r.Path, r.RPC, r.Method = "/\xff", true, "\xfe"
	if got := spans(t, r)[0]; !strings.HasPrefix(got, "/\ufffd/\ufffd ") {
		t.Error(got)
	}
}

// TestCall: a gRPC call says its code. Whether that is an error depends on whose it is.
func TestCall(t *testing.T) {
	for _, c := range []struct {
		code     protocol.GRPCCode
		exchange string // what the span of the request ends with, and that of the attempt
		attempt  string
	}{
		{protocol.GRPCOK, "rpc.system=grpc rpc.grpc.status_code=0 http.response.status_code=200]", "rpc.system=grpc rpc.grpc.status_code=0 http.response.status_code=200]"},
		{protocol.GRPCNotFound, "rpc.grpc.status_code=5 http.response.status_code=200]", "http.response.status_code=200 error.type=not-found] ERROR not-found"},
		{protocol.GRPCUnavailable, "http.response.status_code=200 error.type=unavailable] ERROR unavailable", "error.type=unavailable] ERROR unavailable"},
	} {
		r := record(1)
		r.Status, r.GRPC = 200, trace.GRPC{Known: true, Code: c.code}
		a := sent(r, 1)
		a.Status, a.GRPC, a.Endpoint, a.Number = 200, r.GRPC, "unix:/run/app", 1
		got := spans(t, r)
		if !strings.HasSuffix(got[0], c.exchange) || !strings.HasSuffix(got[1], c.attempt) {
			t.Errorf("%s:\n%s\n%s", c.code, got[0], got[1])
		}
		for _, part := range []string{" server.address=/run/app network.transport=unix ", " remora.attempt=1 ", " http.request.resend_count=1 "} {
			if !strings.Contains(got[1], part) {
				t.Errorf("no%sin %s", part, got[1])
			}
		}
	}
}

// TestRejectedSpans: the number is found behind other fields, and a malformed response has none.
func TestRejectedSpans(t *testing.T) {
	for response, want := range map[string]uint64{
		"": 0, "\x0a\x02\x08\x07": 7, "\x12\x01x\x0a\x02\x08\x07": 7, "\x0a\x05\x12\x01x\x08\x07": 7, "\x08\x01\x0a\x02\x08\x07": 7,
		"\x0a\x02\x10\x07": 0, "\xff": 0, "\x12\x09x": 0, "\x0a\x03\x08": 0,
	} {
		if got := rejectedSpans([]byte(response)); got != want {
			t.Errorf("%q: %d, want %d", response, got, want)
		}
	}
}

// TestOperations: spans have few names, whatever clients send, and say which other method it was.
func TestOperations(t *testing.T) {
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY", "get", "BREW", ""} {
		r := record(1)
		r.Method = method
		*sent(r, 1) = trace.Attempt{Span: trace.SpanID{1}, Kind: trace.Retry}
		name, says := method, "[http.request.method="+method+" "
		if !strings.Contains("GET HEAD POST PUT DELETE CONNECT OPTIONS TRACE PATCH QUERY", method) || method == "" {
			name, says = "HTTP", "[http.request.method=_OTHER http.request.method_original="+method+" "
		}
		got := spans(t, r)
		if !strings.HasPrefix(got[0], name+" SERVER ") || !strings.HasPrefix(got[1], name+" retry CLIENT ") || !strings.Contains(got[0], says) || !strings.Contains(got[1], says) {
			t.Errorf("%q:\n%s\n%s", method, got[0], got[1])
		}
	}
}

// TestKnownAttributes: what is not known of a request has no attribute.
func TestKnownAttributes(t *testing.T) {
	for _, c := range []struct {
		service, id string
		want        string
	}{{"", "", "remora.downstream=http http."}, {"s", "", "remora.downstream=http remora.service=s http."}, {"", "i", "remora.downstream=http remora.request_id=i http."}} {
		r := record(1)
		r.Protocol, r.Service, r.RequestID = "http", c.service, c.id
		if got := spans(t, r)[0]; !strings.Contains(got, c.want) || strings.Contains(got, "<0") {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}
