package trace

import "time"

// Record is one sampled request at one sidecar: the span of its exchange, and
// those of its attempts, which are children of it side by side. It owns all that it
// refers to. Times are of the loop's clock.
type Record struct {
	Context        // Trace, and Span as the exchange's own
	Parent  SpanID // of the exchange's span; zero: it is the root
	Began   time.Duration
	Ended   time.Duration // for the caller: losers may end later
	Zero    int64         // when the loop's clock was 0, in Unix nanoseconds

	Protocol  string // that the request came by: http, dubbo or link
	RPC       bool   // a Dubbo call: Method is that of an interface, and Path the interface
	Method    string
	Path      string // without query, which may hold secrets
	Authority string // HTTP alone
	RequestID string // "": none is known
	Service   string // "": it had no route

	Status int    // towards the caller; 0: the caller went away first
	Error  string // the stable code of an answer of the sidecar's own; "": the application's

	// Attempts by their number. Those that were never sent have no Span.
	Attempts []Attempt
}

// Attempt is one attempt of the exchange of a Record.
type Attempt struct {
	Span      SpanID
	Kind      Kind
	Number    int // as the next hop and the application see it
	Endpoint  string
	Protocol  string // that the endpoint speaks
	Sent      time.Duration
	Withdrawn time.Duration // when it was no more needed; 0: it was until its end
	Ended     time.Duration // when the endpoint had answered, or had said that it dropped it

	Status  int // of the answer; 0: there was none that anybody saw
	Outcome Outcome
	Error   string // the stable code of a failure; "": none
}

// Note notes what came of the attempt, unless it had been withdrawn. A nil Attempt is
// that of a request which is not sampled.
func (a *Attempt) Note(o Outcome, status int, code string) {
	if a != nil && a.Outcome != Cancelled {
		a.Outcome, a.Status, a.Error = o, status, code
	}
}

// Withdraw notes that the attempt is no more needed from now on.
func (a *Attempt) Withdraw(now time.Duration) {
	if a != nil {
		a.Outcome, a.Withdrawn = Cancelled, now
	}
}

// Kind is why there is an attempt.
type Kind uint8

// The kinds.
const (
	Primary Kind = iota
	Retry
	Hedge
)

var kindNames = [...]string{"primary", "retry", "hedge"}

// String returns the kind's stable name.
func (k Kind) String() string { return kindNames[k] }

// Outcome is what came of an attempt.
type Outcome uint8

// The outcomes.
const (
	Unknown   Outcome = iota
	Won               // its answer is the caller's
	Cancelled         // another one's answer was sooner, or the caller went away
	Failed            // no answer, or one of 5xx that is not the caller's
	Refused           // turned away before the application saw it
)

var outcomeNames = [...]string{"unknown", "won", "cancelled", "failed", "refused"}

// String returns the outcome's stable name.
func (o Outcome) String() string { return outcomeNames[o] }

// Spans is how many spans the record is.
func (r *Record) Spans() int {
	n := 1
	for i := range r.Attempts {
		if r.Attempts[i].Span != (SpanID{}) {
			n++
		}
	}
	return n
}
