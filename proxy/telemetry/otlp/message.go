package otlp

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/remora-proxy/remora/internal/unixaddr"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// scope names the code that makes the spans.
const scope = "github.com/remora-proxy/remora"

// message returns the spans of batch as an ExportTraceServiceRequest, which has the
// same encoding as TracesData.
func message(batch []*trace.Record, o *Options, service string) *tracepb.TracesData {
	scoped := &tracepb.ScopeSpans{Scope: &common.InstrumentationScope{Name: scope, Version: o.Version}}
	for _, r := range batch {
		scoped.Spans = append(scoped.Spans, exchangeSpan(r))
		for i := range r.Attempts {
			if a := &r.Attempts[i]; a.Span != (trace.SpanID{}) {
				scoped.Spans = append(scoped.Spans, attemptSpan(r, a))
			}
		}
	}
	return &tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource: &resource.Resource{Attributes: []*common.KeyValue{
			text("service.name", service), text("service.instance.id", o.Node),
		}},
		ScopeSpans: []*tracepb.ScopeSpans{scoped},
	}}}
}

// exchangeSpan returns the span of a request at this sidecar. Attribute names are those of
// OpenTelemetry's semantic conventions for HTTP and RPC, and remora.* for anything else.
func exchangeSpan(r *trace.Record) *tracepb.Span {
	s := &tracepb.Span{
		TraceId: r.Trace[:], SpanId: r.Span[:], Kind: tracepb.Span_SPAN_KIND_SERVER, Name: operation(r),
		StartTimeUnixNano: unix(r, r.Began), EndTimeUnixNano: unix(r, r.Ended), Attributes: methodAttributes(r),
	}
	if r.Parent != (trace.SpanID{}) {
		s.ParentSpanId = r.Parent[:]
	}
	if !r.RPC {
		s.Attributes = append(s.Attributes, text("url.path", r.Path), text("url.scheme", "http"))
		s.Attributes = append(s.Attributes, serverAttributes(r.Authority)...)
	}
	s.Attributes = append(s.Attributes, text("remora.downstream", r.Protocol))
	for _, known := range []struct{ key, value string }{{"remora.service", r.Service}, {"remora.request_id", r.RequestID}} {
		if known.value != "" {
			s.Attributes = append(s.Attributes, text(known.key, known.value))
		}
	}
	if r.Status == 0 {
		s.Attributes = append(s.Attributes, text("remora.outcome", trace.Cancelled.String()))
	}
	setResult(s, r, r.Status, r.GRPC, r.Error)
	return s
}

// attemptSpan returns the span of an attempt, a child of the exchange's span.
func attemptSpan(r *trace.Record, a *trace.Attempt) *tracepb.Span {
	s := &tracepb.Span{
		TraceId: r.Trace[:], SpanId: a.Span[:], ParentSpanId: r.Span[:], Kind: tracepb.Span_SPAN_KIND_CLIENT,
		Name:              operation(r),
		StartTimeUnixNano: unix(r, a.Sent), EndTimeUnixNano: unix(r, a.Ended), Attributes: methodAttributes(r),
	}
	if a.Kind != trace.Primary {
		s.Name += " " + a.Kind.String()
	}
	s.Attributes = append(s.Attributes, serverAttributes(a.Endpoint)...)
	s.Attributes = append(s.Attributes,
		text("remora.upstream", a.Protocol), number("remora.attempt", a.Number), boolean("remora.hedge", a.Kind == trace.Hedge),
		text("remora.kind", a.Kind.String()), text("remora.outcome", a.Outcome.String()))
	if a.Withdrawn != 0 {
		s.Events = []*tracepb.Span_Event{{Name: "withdrawn", TimeUnixNano: unix(r, a.Withdrawn)}}
	}
	if a.Number > 0 && !r.RPC {
		s.Attributes = append(s.Attributes, number("http.request.resend_count", a.Number))
	}
	setResult(s, r, a.Status, a.GRPC, a.Error)
	return s
}

// setResult sets the HTTP status, if there is one, and the code of a failure. The span
// is an error if it failed without a response. A client span (an attempt) is also one
// with a status from 400, a server span (the exchange) with a status from 500.
func setResult(s *tracepb.Span, r *trace.Record, status int, call trace.GRPC, code string) {
	client := s.Kind == tracepb.Span_SPAN_KIND_CLIENT
	if call.Known {
		s.Attributes = append(s.Attributes, text("rpc.system", "grpc"), number("rpc.grpc.status_code", int(call.Code)))
	}
	if status != 0 && !r.RPC {
		s.Attributes = append(s.Attributes, number("http.response.status_code", status))
	}
	wrong := status >= 500 || status >= 400 && client || status == 0 && code != "" || call.Wrong(client)
	switch {
	case !wrong || code != "":
	case call.Known:
		code = call.Code.String()
	default:
		code = strconv.Itoa(status)
	}
	if code != "" {
		s.Attributes = append(s.Attributes, text("error.type", code))
	}
	if wrong {
		s.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: code}
	}
}

// methods name spans. Clients may send any number of others; the names of spans must be few.
var methods = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"}

func operation(r *trace.Record) string {
	switch {
	case r.RPC:
		return valid(r.Path + "/" + r.Method)
	case slices.Contains(methods, r.Method):
		return r.Method
	}
	return "HTTP"
}

func methodAttributes(r *trace.Record) []*common.KeyValue {
	switch {
	case r.RPC:
		return []*common.KeyValue{
			text("rpc.system", "apache_dubbo"), text("rpc.service", r.Path), text("rpc.method", r.Method),
		}
	case slices.Contains(methods, r.Method):
		return []*common.KeyValue{text("http.request.method", r.Method)}
	}
	return []*common.KeyValue{text("http.request.method", "_OTHER"), text("http.request.method_original", r.Method)}
}

// serverAttributes returns the attributes of an address, which may have a port. That of a Unix socket
// is its name.
func serverAttributes(addr string) []*common.KeyValue {
	if network, name := unixaddr.Split(addr); network == "unix" {
		return []*common.KeyValue{text("server.address", name), text("network.transport", network)}
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	out := []*common.KeyValue{text("server.address", host)}
	if n, err := strconv.ParseUint(port, 10, 16); err == nil {
		out = append(out, number("server.port", int(n)))
	}
	return out
}

func unix(r *trace.Record, at time.Duration) uint64 { return uint64(r.Zero + int64(at)) }

// valid returns s as valid UTF-8: one invalid string would invalidate the protobuf message.
func valid(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

func text(key, value string) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: valid(value)}}}
}

func number(key string, value int) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: int64(value)}}}
}

func boolean(key string, value bool) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_BoolValue{BoolValue: value}}}
}
