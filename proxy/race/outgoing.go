package race

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// marks are what attempts write into the request, with the memory for it.
type marks struct {
	timeLeft     []byte      // headers that say the time left, and the number of the attempt
	previous     uint8       // attempts that grpc-previous-rpc-attempts counts beside the client's own
	previousText [8]byte     // memory for that header
	traceState   trace.State // of a request that is marked: its tracestate with trace.Member; else empty
	marked       bool        // markTrace was called, and unmarkTrace was not
}

// maxTraceState bounds the memory for a marked tracestate that is kept for the next request.
const maxTraceState = 512

func (m *marks) reset() {
	m.timeLeft, m.previous, m.marked = m.timeLeft[:0], 0, false
	if cap(m.traceState.Text) > maxTraceState {
		m.traceState.Text = nil
	}
}

// Outgoing is the request of an attempt, as its carrier sends it.
type Outgoing struct{ a *Attempt }

// Outgoing returns the request of the attempt.
func (a *Attempt) Outgoing() Outgoing { return Outgoing{a} }

// Codec is the wire format of the request.
func (o Outgoing) Codec() protocol.Codec { return o.a.race.request.Codec }

// LogsIn reports whether the request may log in the connection that it is sent on. No other request may be
// sent on that.
func (o Outgoing) LogsIn() bool { return o.a.race.request.Login }

// ToHead reports whether the request is a HEAD. Its response has no body.
func (o Outgoing) ToHead() bool { return string(o.a.race.request.Method) == "HEAD" }

// Client returns who the request came from.
func (o Outgoing) Client() shard.Client { return o.a.race.owner.Client() }

// Timeout is the route's timeout of a request.
func (o Outgoing) Timeout() time.Duration { return o.a.race.Policy.Timeout }

// TimeLeft returns how long the caller still waits, as far as this sidecar knows.
func (o Outgoing) TimeLeft() time.Duration {
	return o.a.race.request.Deadline - o.a.race.shard.Loop.Now()
}

// Repeatable reports whether the request may be sent again, if the budget allows, after its connection was
// lost.
func (o Outgoing) Repeatable() bool {
	on := &o.a.race.Policy.retryOn
	return o.a.race.request.Idempotent && (on.connect || on.reset)
}

// number is the attempt number for the next hop, which includes the attempts that led to
// this race. It leaves room below 255, since older sidecars add theirs in eight bits.
func (o Outgoing) number() uint8 {
	return uint8(min(int(o.a.race.CallerAttempt)+int(o.a.index), math.MaxUint8-MaxAttempts))
}

// setTimeLeft makes the headers of the request say the time left, in memory of the race.
func (o Outgoing) setTimeLeft() {
	req, m := o.a.race.request, &o.a.race.marks
	req.Headers, m.timeLeft = protocol.SetTimeLeft(req.Headers, o.TimeLeft(), m.timeLeft)
}

// Request is the request with this attempt's fields, until the next is encoded.
func (o Outgoing) Request() *protocol.Request {
	a, r := o.a, o.a.race
	req, m := r.request, &r.marks
	// Hedge says that another attempt is in flight, here or upstream of the caller.
	req.Attempt, req.Hedge = o.number(), r.CallerHedged || a.kind == hedgeAttempt
	switch {
	case req.Attempt > 0:
		req.Tied = a.kind == hedgeAttempt && r.ties.tie == tied && mayWait(a.visit.ep)
		if !m.marked {
			m.markTrace(req)
		}
	case m.marked && !req.Hedge: // the first attempt is encoded after others: it waited for a connection or for answers
		req.Tied = false
		m.unmarkTrace(req)
	}
	if a.index != m.previous && string(req.Method) == "POST" && protocol.IsGRPC(req.Headers) {
		more := int(a.index) - int(m.previous)
		req.Headers = protocol.AddGRPCPrevious(req.Headers, more, m.previousText[:0])
		m.previous = a.index
	}
	if s := r.Traced.span(a); s != nil {
		r.Traced.Carry(s.Span)
	}
	return req
}

// markTrace puts trace.Member before the tracestate of a request that is sent more than once,
// to stay there until unmarkTrace. Without a valid traceparent, tracestate means nothing (section 3.3).
func (m *marks) markTrace(req *protocol.Request) {
	m.marked, m.traceState.Text = true, m.traceState.Text[:0]
	if _, _, ok := trace.ContextOf(req.Headers); !ok {
		return
	}
	m.traceState.Begin(trace.Member) // a value of unmarkTrace in the same memory keeps its place
	for i := range req.Headers {
		if h := req.Headers[i]; trace.IsState(h) {
			m.traceState.Add(h.Value)
		}
	}
	req.Headers = slices.DeleteFunc(req.Headers, trace.IsState)
	req.Headers = append(req.Headers, protocol.Header{Name: trace.NameState, Value: m.traceState.Text})
}

// unmarkTrace takes trace.Member from the tracestate.
func (m *marks) unmarkTrace(req *protocol.Request) {
	m.marked = false
	if len(m.traceState.Text) == 0 {
		return
	}
	i := slices.IndexFunc(req.Headers, trace.IsState)
	if rest := m.traceState.Text[len(trace.Member):]; len(rest) > 0 {
		req.Headers[i].Value = rest[1:] // behind the comma
	} else {
		req.Headers = slices.Delete(req.Headers, i, i+1)
	}
}

// attemptHeader has the number of an attempt that is not the first. An application that passes
// it on prevents further hedges by the sidecars of the services that it calls.
var attemptHeader = []byte(protocol.HeaderAttempt)

// batchHeader tells the application that its own calls for the request are batch, too.
var batchHeader = protocol.Header{Name: []byte(protocol.HeaderPriority), Value: []byte(protocol.PriorityBatch)}

// ForApplication returns the request for an application that speaks HTTP: with the time left, and the
// sidecar's own headers behind the first own. Once it is encoded, the caller cuts them off.
func (o Outgoing) ForApplication() (req *protocol.Request, own int) {
	r := o.a.race
	req = o.Request()
	if req.Timed || r.Service.Config.TimeoutHeader {
		o.setTimeLeft()
	}
	own = len(req.Headers)
	if req.Attempt > 0 {
		m := &r.marks
		n := len(m.timeLeft)
		m.timeLeft = strconv.AppendUint(m.timeLeft, uint64(req.Attempt), 10)
		req.Headers = append(req.Headers, protocol.Header{Name: attemptHeader, Value: m.timeLeft[n:len(m.timeLeft):len(m.timeLeft)]})
	}
	if req.Batch {
		req.Headers = append(req.Headers, batchHeader)
	}
	return req, own
}
