package proxy

import (
	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/hedge"
)

// WorkerStats are the counts of one loop: plain integers that only the loop
// writes. Worker.Report returns a copy.
type WorkerStats struct {
	Connections   int    // downstream connections open now
	Requests      uint64 // exchanges begun
	Replays       uint64 // requests sent again since a pooled connection had gone stale
	WriteTimeouts uint64 // connections closed since the peer took nothing
	Shed          uint64 // connections closed since they held most, far past limits.buffered
	LinkFlushes   uint64 // writes to links
	LinkBytesIn   uint64
	LinkBytesOut  uint64
	Cancels       uint64 // attempts withdrawn over a link
	CancelsSaved  uint64 // of these, dropped before the application saw them

	// LinkBatches are the requests, answers, refusals and withdrawals that left
	// on a link together.
	LinkBatches SizeHistogram

	Left [Departures]uint64 // connections and bodies that left the loop to be streams

	// Errors counts the answers that this sidecar made itself, by their stable
	// code (x-remora-error); codes that did not occur are missing.
	Errors map[string]uint64
}

// Departure is with what a connection, or the body of an answer, left its loop.
// It is small and dense, fit to index an array of counters.
type Departure uint8

// The departures, those of StreamKind first.
const (
	LeftBody      = Departure(StreamBody)      // a client's, with a request whose body is long
	LeftWebSocket = Departure(StreamWebSocket) // a client's, with a wish to upgrade
	LeftConnect   = Departure(StreamConnect)   // a client's, with a CONNECT
	LeftPass      = Departure(StreamPass)      // a redirected one, for where it was going
	LeftAnswer    = LeftPass + 1               // a client's, with an answer that is long or lasts
	LeftParked    = LeftAnswer + 1             // the body of such an answer, for another sidecar to fetch
	LeftAccepted  = LeftParked + 1             // another sidecar's, with a stream

	// Departures is the number of departures.
	Departures = int(LeftAccepted) + 1
)

var departureNames = [Departures]string{"body", "websocket", "connect", "pass", "answer", "parked", "accepted"}

// String returns the departure's stable name, as metrics carry it.
func (d Departure) String() string {
	if int(d) < Departures {
		return departureNames[d]
	}
	return "unknown"
}

func (s *WorkerStats) failed(f *Failure) {
	if s.Errors == nil {
		s.Errors = make(map[string]uint64)
	}
	s.Errors[f.Code]++
}

// Outcome is how a request ended for its caller. It is small and dense, fit to
// index an array of counters.
type Outcome uint8

// The outcomes.
const (
	Outcome2xx       Outcome = iota // the application's answer, by class
	Outcome3xx                      //
	Outcome4xx                      //
	Outcome5xx                      //
	OutcomeFailed                   // an answer or refusal of this sidecar; Errors has its code
	OutcomeCancelled                // the caller went away or withdrew the request

	// Outcomes is the number of outcomes.
	Outcomes = int(OutcomeCancelled) + 1
)

var outcomeNames = [Outcomes]string{"2xx", "3xx", "4xx", "5xx", "failed", "cancelled"}

// String returns the outcome's stable name, as metrics carry it.
func (o Outcome) String() string {
	if int(o) < Outcomes {
		return outcomeNames[o]
	}
	return "unknown"
}

func outcomeOf(status int) Outcome {
	return Outcome(min(max(status/100, 2), 5) - 2)
}

// failed tells the outcomes that are nobody's wish.
func (o Outcome) failed() bool { return o == Outcome5xx || o == OutcomeFailed }

// conclusion is the end of an exchange for its caller.
type conclusion struct {
	outcome Outcome
	ans     *answer  // nil: not the application's
	by      *attempt // that brought ans
	failure *Failure // of OutcomeFailed
}

// bytes is the size of the application's answer.
func (c *conclusion) bytes() int {
	if c.ans == nil {
		return 0
	}
	return c.ans.size()
}

// finished counts, logs and traces the end of the exchange for its caller. Without a route
// there is no service to count it for.
func (ex *exchange) finished(c *conclusion) {
	o, bytes, now := c.outcome, c.bytes(), ex.w.loop.Now()
	latency := now - ex.began
	if ex.w.access.on() {
		ex.log(c, now)
	}
	ex.endSpan(c)
	if o != OutcomeCancelled {
		ex.w.millis.now(now).answered(latency, bytes)
	}
	if ex.route == nil {
		return
	}
	s := &ex.route.svc.stats
	s.Outcomes[o]++
	s.BytesOut += uint64(bytes)
	if o != OutcomeCancelled {
		s.Latency.Observe(latency)
	}
}

// ServiceStats are the counts of one service on one loop.
type ServiceStats struct {
	Requests          uint64 // admitted: not refused for a limit of process or service
	Outcomes          [Outcomes]uint64
	Latency           Histogram // from the complete request to the complete answer, failed ones too
	BytesIn           uint64    // of requests admitted: headers and body, as a loop holds them
	BytesOut          uint64    // of answers of the application, streams left out
	Retries           uint64    // attempts after a failed one, free ones included
	RetriesPaid       uint64    // of these, the ones that cost a token
	RetriesOverBudget uint64    // retries that found no token

	hedge.Counts // of all routes that lead to the service

	Ejections [lb.Reasons]uint64 // of endpoints, by reason

	Streams        uint64 // streams that an endpoint took
	StreamsOpen    int    // of these, the ones open now
	StreamsFailed  uint64 // streams that came to nothing
	StreamBytesIn  uint64 // towards endpoints, of streams that ended
	StreamBytesOut uint64 // from endpoints, of streams that ended
}

// Add adds o to s.
func (s *ServiceStats) Add(o *ServiceStats) {
	s.Requests += o.Requests
	for i, n := range o.Outcomes {
		s.Outcomes[i] += n
	}
	s.Latency.Add(&o.Latency)
	s.BytesIn += o.BytesIn
	s.BytesOut += o.BytesOut
	s.Retries += o.Retries
	s.RetriesPaid += o.RetriesPaid
	s.RetriesOverBudget += o.RetriesOverBudget
	s.Counts.Add(&o.Counts)
	for i, n := range o.Ejections {
		s.Ejections[i] += n
	}
	s.Streams += o.Streams
	s.StreamsOpen += o.StreamsOpen
	s.StreamsFailed += o.StreamsFailed
	s.StreamBytesIn += o.StreamBytesIn
	s.StreamBytesOut += o.StreamBytesOut
}
