package exchange

import (
	"bytes"
	"slices"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// traced is the record of an exchange that is sampled.
type traced struct {
	trace.Record
	text [trace.TextLen]byte // memory of the request's traceparent
}

// sample begins a record of the exchange if the caller records the trace, or at random without
// one. For a request over a link the first sidecar has decided.
func (ex *Exchange) sample(by *Listener) {
	w, req := ex.shard, &ex.Request
	if w.Process.Sink == nil {
		return
	}
	from, at, ok := trace.ContextOf(req.Headers)
	switch {
	case ok && !from.Sampled():
		return
	case ok:
	case by.Sidecars || !w.Sampler.Draw():
		return
	default: // no valid trace: it starts here (section 3.2 of the specification)
		from = trace.Context{Trace: w.Sampler.NewTraceID(), Flags: trace.FlagSampled}
		req.Headers = slices.DeleteFunc(req.Headers, trace.IsContext)
		at = len(req.Headers)
		req.Headers = append(req.Headers, protocol.Header{})
	}
	path, _, _ := bytes.Cut(req.Path, []byte("?"))
	t := &traced{Record: trace.Record{
		Context: trace.Context{Trace: from.Trace, Span: w.Sampler.NewSpanID(), Flags: from.Flags},
		Parent:  from.Span, Began: ex.began,
		Protocol: by.Protocol, RPC: req.Codec != protocol.CodecHTTP,
		Method: clip(req.Method), Path: clip(path), Authority: clip(req.Authority),
		RequestID: clip(trace.RequestIDOf(req.Headers)),
		Attempts:  make([]trace.Attempt, maxAttempts),
	}}
	if now := w.Process.Now(); !now.IsZero() {
		t.Zero = now.UnixNano() - int64(ex.began)
	}
	t.carry(t.Span)
	req.Headers[at] = protocol.Header{Name: trace.NameParent, Value: t.text[:]}
	ex.traced = t
}

// maxClip is the longest text in a record, in bytes: many records may be queued.
const maxClip = 512

func clip(text []byte) string { return string(text[:min(len(text), maxClip)]) }

// carry makes span the parent in the request's traceparent.
func (t *traced) carry(span trace.SpanID) {
	c := trace.Context{Trace: t.Trace, Span: span, Flags: t.Flags}
	c.Append(t.text[:0])
}

// endSpan notes the end of the exchange for its caller.
func (ex *Exchange) endSpan(c *result) {
	t := ex.traced
	if t == nil {
		return
	}
	t.Ended = ex.shard.Loop.Now()
	if ex.Route != nil {
		t.Service = ex.Route.ServiceName()
	}
	switch {
	case c.by == nil && c.res != nil:
		t.Status = c.res.Status
	case c.res != nil:
		t.Status = c.res.Status
		c.by.noteResponse(trace.Won, c.res)
	case c.failure != nil:
		t.Status, t.Error = c.failure.Status, c.failure.Code
	}
	t.GRPC = trace.GRPC{Known: c.grpc, Code: c.code}
}

// noteResponse notes the outcome of the attempt, and the response that it had.
func (a *Attempt) noteResponse(o trace.Outcome, res *Response) {
	if s := a.span(); s != nil {
		s.Note(o, res.Status, "")
		s.GRPC = trace.GRPC{Known: res.grpc, Code: res.code}
	}
}

// exportTrace passes the record on, after the last attempt has ended.
func (ex *Exchange) exportTrace() {
	if t := ex.traced; t != nil {
		ex.traced = nil
		ex.shard.Process.Sink.Put(&t.Record)
	}
}

// span is the attempt's part of the record, or nil.
func (a *Attempt) span() *trace.Attempt {
	if t := a.ex.traced; t != nil {
		return &t.Attempts[a.index]
	}
	return nil
}

func (a *Attempt) beginSpan() {
	s := a.span()
	if s == nil {
		return
	}
	*s = trace.Attempt{
		Span: a.ex.shard.Sampler.NewSpanID(), Kind: spanKinds[a.kind], Number: int(a.wireAttempt()),
		Endpoint: a.ep.Addr, Protocol: a.ep.Ext.(*Endpoint).protocol, Sent: a.sent,
	}
}

var spanKinds = [...]trace.Kind{primaryAttempt: trace.Primary, retryAttempt: trace.Retry, hedgeAttempt: trace.Hedge}

func spanOutcome(f *fault.Failure) trace.Outcome {
	switch {
	case f.Retry == fault.RetryPaid, f.Retry == fault.RetryPaidElsewhere, f.Retry == fault.RetryFreeElsewhere:
		return trace.Refused
	case f == fault.NoSlot, f == fault.QueueFull, f == fault.Draining, f == fault.GoAway:
		return trace.Refused
	}
	return trace.Failed
}

func (a *Attempt) endSpan(now time.Duration) {
	if s := a.span(); s != nil {
		s.Ended = now
	}
}

// Request is the exchange's request with this attempt's fields, until the next is encoded.
func (a *Attempt) Request() *protocol.Request {
	ex := a.ex
	req := &ex.Request
	// Hedge says that another attempt is in flight, here or upstream of the caller.
	req.Attempt, req.Hedge = a.wireAttempt(), ex.hedged || a.kind == hedgeAttempt
	if req.Attempt > 0 && !ex.marked {
		ex.markTrace()
	}
	if a.index > 0 && string(req.Method) == "POST" && protocol.IsGRPC(req.Headers) {
		more := int(a.index) - int(ex.previous)
		req.Headers = protocol.AddGRPCPrevious(req.Headers, more, ex.previousText[:0])
		ex.previous = a.index
	}
	if s := a.span(); s != nil {
		ex.traced.carry(s.Span)
	}
	return req
}

// markTrace puts trace.Member before the tracestate of a request that is sent more than once,
// to stay there. Without a valid traceparent, tracestate means nothing (section 3.3).
func (ex *Exchange) markTrace() {
	ex.marked = true
	req := &ex.Request
	if _, _, ok := trace.ContextOf(req.Headers); !ok {
		return
	}
	ex.traceState.Begin(trace.Member)
	for i := range req.Headers {
		if h := req.Headers[i]; trace.IsState(h) {
			ex.traceState.Add(h.Value)
		}
	}
	req.Headers = slices.DeleteFunc(req.Headers, trace.IsState)
	req.Headers = append(req.Headers, protocol.Header{Name: trace.NameState, Value: ex.traceState.Text})
}
