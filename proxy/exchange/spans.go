package exchange

import (
	"slices"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// noteResponse notes the outcome of the attempt, and the response that it had.
func (a *Attempt) noteResponse(o trace.Outcome, res *Response) {
	if s := a.span(); s != nil {
		s.Note(o, res.Status, "")
		s.GRPC = trace.GRPC{Known: res.grpc, Code: res.code}
	}
}

// span is the attempt's part of the record, or nil.
func (a *Attempt) span() *trace.Attempt {
	if t := a.race.traced; t != nil {
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
		Span: a.race.shard.Sampler.NewSpanID(), Kind: spanKinds[a.kind], Number: int(a.wireAttempt()),
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

// Request is the request with this attempt's fields, until the next is encoded.
func (a *Attempt) Request() *protocol.Request {
	r := a.race
	req, m := r.request, &r.marks
	// Hedge says that another attempt is in flight, here or upstream of the caller.
	req.Attempt, req.Hedge = a.wireAttempt(), r.hedged || a.kind == hedgeAttempt
	if req.Attempt > 0 && !m.marked {
		m.markTrace(req)
	}
	if a.index > 0 && string(req.Method) == "POST" && protocol.IsGRPC(req.Headers) {
		more := int(a.index) - int(m.previous)
		req.Headers = protocol.AddGRPCPrevious(req.Headers, more, m.previousText[:0])
		m.previous = a.index
	}
	if s := a.span(); s != nil {
		r.traced.carry(s.Span)
	}
	return req
}

// markTrace puts trace.Member before the tracestate of a request that is sent more than once,
// to stay there. Without a valid traceparent, tracestate means nothing (section 3.3).
func (m *marks) markTrace(req *protocol.Request) {
	m.marked = true
	if _, _, ok := trace.ContextOf(req.Headers); !ok {
		return
	}
	m.traceState.Begin(trace.Member)
	for i := range req.Headers {
		if h := req.Headers[i]; trace.IsState(h) {
			m.traceState.Add(h.Value)
		}
	}
	req.Headers = slices.DeleteFunc(req.Headers, trace.IsState)
	req.Headers = append(req.Headers, protocol.Header{Name: trace.NameState, Value: m.traceState.Text})
}
