package race

import (
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// Traced is the record of a request that is sampled.
type Traced struct {
	trace.Record
	text [trace.TextLen]byte // memory of the request's traceparent
}

// Header is the traceparent of the request, in memory of t.
func (t *Traced) Header() protocol.Header {
	return protocol.Header{Name: trace.NameParent, Value: t.text[:]}
}

// Carry makes span the parent in the request's traceparent.
func (t *Traced) Carry(span trace.SpanID) {
	c := trace.Context{Trace: t.Trace, Span: span, Flags: t.Flags}
	c.Append(t.text[:0])
}

// NoteResponse notes the outcome of an attempt, and the response that it had. A nil t has no spans.
func (t *Traced) NoteResponse(a *Attempt, o trace.Outcome, res *Response) {
	if s := t.span(a); s != nil {
		s.Note(o, res.Status, "")
		s.GRPC = trace.GRPC{Known: res.GRPC, Code: res.Code}
	}
}

// span returns the part of a, or nil.
func (t *Traced) span(a *Attempt) *trace.Attempt {
	if t == nil {
		return nil
	}
	return &t.Attempts[a.index]
}

func (t *Traced) begin(a *Attempt) {
	if s := t.span(a); s != nil {
		*s = trace.Attempt{
			Span: a.race.shard.Sampler.NewSpanID(), Kind: spanKinds[a.kind], Number: int(a.Outgoing().number()),
			Endpoint: a.visit.ep.Addr, Protocol: a.visit.endpoint().Protocol, Sent: a.visit.sent,
		}
	}
}

func (t *Traced) end(a *Attempt, now time.Duration) {
	if s := t.span(a); s != nil {
		s.Ended = now
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
