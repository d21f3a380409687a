package exchange

import (
	"bytes"
	"slices"

	"github.com/remora-proxy/remora/protocol"
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
	ex.race.traced = t
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
	t := ex.race.traced
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

// exportTrace passes the record on, after the last attempt has ended.
func (ex *Exchange) exportTrace() {
	if t := ex.race.traced; t != nil {
		ex.race.traced = nil
		ex.shard.Process.Sink.Put(&t.Record)
	}
}
