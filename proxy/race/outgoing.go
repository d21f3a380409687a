package race

import (
	"slices"
	"strconv"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// marks are what attempts write into the request, with the memory for it.
type marks struct {
	timeLeft     []byte      // headers that say the time left, and the number of the attempt
	previous     uint8       // attempts that grpc-previous-rpc-attempts counts beside the client's own
	previousText [8]byte     // memory for that header
	traceState   trace.State // of the request, if it is marked
	marked       bool        // traceState was looked at, and has trace.Member if it can
}

// maxTraceState bounds the memory for a marked tracestate that is kept for the next request.
const maxTraceState = 512

func (m *marks) reset() {
	m.timeLeft, m.previous, m.marked = m.timeLeft[:0], 0, false
	if cap(m.traceState.Text) > maxTraceState {
		m.traceState.Text = nil
	}
}

// Request is the request with this attempt's fields, until the next is encoded.
func (a *Attempt) Request() *protocol.Request {
	r := a.race
	req, m := r.request, &r.marks
	// Hedge says that another attempt is in flight, here or upstream of the caller.
	req.Attempt, req.Hedge = a.wireAttempt(), r.CallerHedged || a.kind == hedgeAttempt
	if req.Attempt > 0 {
		req.Tied = a.kind == hedgeAttempt && r.hedging.tie == tied && mayWait(a.ep)
		if !m.marked {
			m.markTrace(req)
		}
	}
	if a.index > 0 && string(req.Method) == "POST" && protocol.IsGRPC(req.Headers) {
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

// attemptHeader has the number of an attempt that is not the first. An application that passes
// it on prevents further hedges by the sidecars of the services that it calls.
var attemptHeader = []byte(protocol.HeaderAttempt)

// batchHeader tells the application that its own calls for the request are batch, too.
var batchHeader = protocol.Header{Name: []byte(protocol.HeaderPriority), Value: []byte(protocol.PriorityBatch)}

// Outgoing returns the request for an application that speaks HTTP: with the time left, and the
// sidecar's own headers behind the first own. Once it is encoded, the caller cuts them off.
func (a *Attempt) Outgoing() (req *protocol.Request, own int) {
	r := a.race
	req = a.Request()
	if req.Timed || r.Service.Config.TimeoutHeader {
		a.SetTimeLeft()
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
