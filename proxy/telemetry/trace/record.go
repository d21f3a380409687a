package trace

import (
	"time"

	"github.com/remora-proxy/remora/protocol"
)

// Record describes one sampled request at one sidecar: the span of its exchange, and
// the spans of its attempts, which are children of the exchange's span. It owns its
// memory. Times are those of the loop's clock.
type Record struct {
	Context        // Trace, Flags, and in Span the exchange's span
	Parent  SpanID // parent of the exchange's span; zero if that is the root
	Began   time.Duration
	Ended   time.Duration // when the caller's response was complete; an attempt may end later
	Zero    int64         // when the loop's clock was 0, in Unix nanoseconds

	Protocol  string // protocol of the caller: http, dubbo or link
	RPC       bool   // reports whether it is a Dubbo call: Path is then the interface
	Method    string
	Path      string // without the query, which may contain secrets
	Authority string // HTTP only
	RequestID string // empty if there is none
	Service   string // empty if no route matched

	Status int // sent to the caller; 0 if the caller disconnected first
	GRPC   GRPC
	Error  string // stable code, if the sidecar itself made the response; empty otherwise

	// Attempts is indexed by their number. Attempts that were not sent have no Span.
	Attempts []Attempt
}

// Attempt describes one attempt of the exchange of a Record.
type Attempt struct {
	Span      SpanID
	Kind      Kind
	Number    int // as the next hop and the application see it
	Endpoint  string
	Protocol  string // protocol of the endpoint
	Sent      time.Duration
	Withdrawn time.Duration // when it was cancelled; 0 means never
	Ended     time.Duration // when the endpoint had sent its response, or confirmed the cancel

	Status  int // of the response; 0 means none
	GRPC    GRPC
	Outcome Outcome
	Error   string // stable code of a failure; empty means none
}

// GRPC is the outcome of a gRPC call.
type GRPC struct {
	Known bool // reports whether it is a gRPC call, and has ended
	Code  protocol.GRPCCode
}

// Wrong reports whether the call is an error, by OpenTelemetry's conventions: to a client every code
// but ok is, to a server only those that are not the fault of its client.
func (g GRPC) Wrong(client bool) bool {
	switch g.Code {
	case protocol.GRPCOK:
		return false
	case protocol.GRPCUnknown, protocol.GRPCDeadlineExceeded, protocol.GRPCUnimplemented, protocol.GRPCInternal,
		protocol.GRPCUnavailable, protocol.GRPCDataLoss, protocol.GRPCOther:
		return g.Known
	}
	return g.Known && client
}

// Note sets the outcome of the attempt, unless it was cancelled before. The requests
// that are not sampled have nil Attempts, on which it does nothing.
func (a *Attempt) Note(o Outcome, status int, code string) {
	if a != nil && a.Outcome != Cancelled {
		a.Outcome, a.Status, a.Error = o, status, code
	}
}

// Withdraw records that the attempt is cancelled at the time now.
func (a *Attempt) Withdraw(now time.Duration) {
	if a != nil {
		a.Outcome, a.Withdrawn = Cancelled, now
	}
}

// Kind is the reason for an attempt.
type Kind uint8

const (
	Primary Kind = iota
	Retry
	Hedge
)

var kindNames = [...]string{"primary", "retry", "hedge"}

// String returns the kind's stable name.
func (k Kind) String() string { return kindNames[k] }

// Outcome is the result of an attempt.
type Outcome uint8

const (
	Unknown   Outcome = iota
	Won               // the caller got its response
	Cancelled         // another attempt won, or the caller disconnected
	Failed            // no response, or a 5xx that the caller did not get
	Refused           // refused before the application saw it
)

var outcomeNames = [...]string{"unknown", "won", "cancelled", "failed", "refused"}

// String returns the outcome's stable name.
func (o Outcome) String() string { return outcomeNames[o] }

// Spans returns the number of spans of the record.
func (r *Record) Spans() int {
	n := 1
	for i := range r.Attempts {
		if r.Attempts[i].Span != (SpanID{}) {
			n++
		}
	}
	return n
}
