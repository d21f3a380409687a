package exchange

import (
	"bytes"
	"slices"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

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
	t := &race.Traced{Record: trace.Record{
		Context: trace.Context{Trace: from.Trace, Span: w.Sampler.NewSpanID(), Flags: from.Flags},
		Parent:  from.Span, Began: ex.began,
		Protocol: by.Protocol, RPC: req.Codec != protocol.CodecHTTP,
		Method: clip(req.Method), Path: clip(path), Authority: clip(req.Authority),
		RequestID: clip(trace.RequestIDOf(req.Headers)),
		Attempts:  make([]trace.Attempt, race.MaxAttempts),
	}}
	if now := w.Process.Now(); !now.IsZero() {
		t.Zero = now.UnixNano() - int64(ex.began)
	}
	t.Carry(t.Span)
	req.Headers[at] = t.Header()
	ex.race.Traced = t
}

// maxClip is the longest text in a record, in bytes: many records may be queued.
const maxClip = 512

func clip(text []byte) string { return string(text[:min(len(text), maxClip)]) }

// endSpan notes the end of the exchange for its caller.
func (c *result) endSpan(ex *Exchange) {
	t := ex.race.Traced
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
		t.NoteResponse(c.by, trace.Won, c.res)
	case c.failure != nil:
		t.Status, t.Error = c.failure.Status, c.failure.Code
	}
	t.GRPC = trace.GRPC{Known: c.grpc, Code: c.code}
}

// exportTrace passes the record on, after the last attempt has ended.
func (ex *Exchange) exportTrace() {
	if t := ex.race.Traced; t != nil {
		ex.race.Traced = nil
		ex.shard.Process.Sink.Put(&t.Record)
	}
}
