package proxy

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/trace"
)

// Spans takes the records of sampled requests. proxy/otlp implements it.
type Spans interface {
	// Put takes r over. Loops call it, so it does not block: what there is no
	// room for is dropped.
	Put(r *trace.Record)
}

// tracer decides which requests are sampled on one loop, and makes ids.
type tracer struct {
	on    bool
	share uint64 // of 2^shareBits, of the requests that come without a trace
	rnd   rand.PCG
}

const shareBits = 53 // what a float64 between 0 and 1 is precise to

func (t *tracer) configure(c *config.Tracing) {
	t.on, t.share = c.Endpoint != "", uint64(c.Sample*(1<<shareBits))
}

func (t *tracer) draw() bool { return t.rnd.Uint64()>>(64-shareBits) < t.share }

func (t *tracer) spanID() (id trace.SpanID) {
	t.fill(id[:])
	return id
}

func (t *tracer) traceID() (id trace.TraceID) {
	t.fill(id[:8])
	t.fill(id[8:])
	return id
}

// fill fills eight bytes at random, but not all with 0: that would be no id.
func (t *tracer) fill(b []byte) {
	x := t.rnd.Uint64() | 1
	for i := range b {
		b[i] = byte(x >> (8 * i))
	}
}

// traced is the record of an exchange that is sampled.
type traced struct {
	trace.Record
	text [trace.TextLen]byte // the value of the request's traceparent
}

var (
	nameTraceParent = []byte("traceparent")
	nameTraceState  = []byte("tracestate")
)

// sample begins a record of the exchange: if whoever sent the request records its
// trace, and of those that come without one for some, by chance. On a link that was
// decided where the request came in.
func (ex *exchange) sample(by *listener) {
	w, req := ex.w, &ex.req
	if w.shared.spans == nil {
		return
	}
	from, at, ok := traceContext(req.Headers)
	switch {
	case ok && !from.Sampled():
		return
	case ok:
	case by.sidecars || !w.tracer.draw():
		return
	default: // no trace, or none that makes sense: section 3.2 of the specification has it restarted
		from = trace.Context{Trace: w.tracer.traceID(), Flags: trace.FlagSampled}
		req.Headers = slices.DeleteFunc(req.Headers, isTraceContext)
		at = len(req.Headers)
		req.Headers = append(req.Headers, protocol.Header{})
	}
	path, _, _ := bytes.Cut(req.Path, []byte("?"))
	t := &traced{Record: trace.Record{
		Context: trace.Context{Trace: from.Trace, Span: w.tracer.spanID(), Flags: from.Flags},
		Parent:  from.Span, Began: ex.began,
		Protocol: by.protocol, RPC: req.Codec != protocol.CodecHTTP,
		Method: clip(req.Method), Path: clip(path), Authority: clip(req.Authority),
		RequestID: clip(requestIDOf(req.Headers)),
		Attempts:  make([]trace.Attempt, maxAttempts),
	}}
	if now := w.shared.now(); !now.IsZero() {
		t.Zero = now.UnixNano() - int64(ex.began)
	}
	t.carry(t.Span)
	req.Headers[at] = protocol.Header{Name: nameTraceParent, Value: t.text[:]}
	ex.traced = t
}

// maxClip is how much of a text a record keeps: many of them may wait to be sent.
const maxClip = 512

func clip(text []byte) string { return string(text[:min(len(text), maxClip)]) }

// traceContext finds the one traceparent. With more than one there is none (section
// 3.2.2.1 wants one).
func traceContext(hs []protocol.Header) (c trace.Context, at int, ok bool) {
	found := 0
	for i := range hs {
		if len(hs[i].Name) == len(nameTraceParent) && protocol.EqualFold(hs[i].Name, "traceparent") {
			at = i
			found++
		}
	}
	if found == 1 {
		c, ok = trace.Parse(hs[at].Value)
	}
	return c, at, ok
}

func isTraceContext(h protocol.Header) bool {
	return protocol.EqualFold(h.Name, "traceparent") || isTraceState(h)
}

func isTraceState(h protocol.Header) bool { return protocol.EqualFold(h.Name, "tracestate") }

// carry makes span the parent of what is done for the request.
func (t *traced) carry(span trace.SpanID) {
	c := trace.Context{Trace: t.Trace, Span: span, Flags: t.Flags}
	c.Append(t.text[:0])
}

// endSpan: the exchange is over for its caller.
func (ex *exchange) endSpan(c *conclusion) {
	t := ex.traced
	if t == nil {
		return
	}
	t.Ended = ex.w.loop.Now()
	if ex.route != nil {
		t.Service = ex.route.svc.cfg.Name
	}
	switch {
	case c.ans != nil:
		t.Status = c.ans.Status
		c.by.span().Note(trace.Won, c.ans.Status, "")
	case c.failure != nil:
		t.Status, t.Error = c.failure.Status, c.failure.Code
	}
}

// report hands the record over: the last attempt has ended.
func (ex *exchange) report() {
	if t := ex.traced; t != nil {
		ex.traced = nil
		ex.w.shared.spans.Put(&t.Record)
	}
}

// span is the attempt's in the record, nil if there is none.
func (a *attempt) span() *trace.Attempt {
	if t := a.ex.traced; t != nil {
		return &t.Attempts[a.index]
	}
	return nil
}

// beginSpan: the attempt is about to leave for its endpoint.
func (a *attempt) beginSpan() {
	s := a.span()
	if s == nil {
		return
	}
	*s = trace.Attempt{
		Span: a.ex.w.tracer.spanID(), Kind: spanKinds[a.kind], Number: int(a.wireAttempt()),
		Endpoint: a.ep.Addr, Protocol: a.ep.Ext.(*endpoint).protocol, Sent: a.sent,
	}
}

var spanKinds = [...]trace.Kind{primaryAttempt: trace.Primary, retryAttempt: trace.Retry, hedgeAttempt: trace.Hedge}

// spanOutcome is what an attempt that failed so came to.
func spanOutcome(f *Failure) trace.Outcome {
	switch {
	case f.retry == retryRefused, f.retry == retryElsewhere, f.retry == retryUnsent:
		return trace.Refused
	case f == FailNoSlot, f == FailQueueFull, f == FailDraining, f == FailUnprocessed:
		return trace.Refused
	}
	return trace.Failed
}

// endSpan notes when the attempt was over.
func (a *attempt) endSpan(now time.Duration) {
	if s := a.span(); s != nil {
		s.Ended = now
	}
}

// request is the exchange's, with what is the attempt's own.
func (a *attempt) request() *protocol.Request {
	ex := a.ex
	req := &ex.req
	req.Attempt, req.Hedge = a.wireAttempt(), a.wireHedge()
	if req.Attempt > 0 && !ex.marked {
		ex.mark()
	}
	if s := a.span(); s != nil {
		ex.traced.carry(s.Span)
	}
	return req
}

// mark puts traceMember in front of the trace state of a request that was sent
// before, or is hedged. It stays there: all attempts from now on are such ones, but
// for a first one whose connection is not open yet. Trace state means nothing
// without a traceparent that makes sense (section 3.3).
func (ex *exchange) mark() {
	ex.marked = true
	req := &ex.req
	if _, _, ok := traceContext(req.Headers); !ok {
		return
	}
	ex.traceState.Begin(traceMember)
	for i := range req.Headers {
		if h := req.Headers[i]; isTraceState(h) {
			ex.traceState.Add(h.Value)
		}
	}
	req.Headers = slices.DeleteFunc(req.Headers, isTraceState)
	req.Headers = append(req.Headers, protocol.Header{Name: nameTraceState, Value: ex.traceState.Text})
}
