package stats

import (
	"github.com/remora-proxy/remora/lb/outlier"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/hedge"
)

// Outcome is how a request ended for its caller. It is dense, to index arrays of counters.
type Outcome uint8

const (
	Outcome2xx       Outcome = iota // a response of the application, by class
	Outcome3xx                      //
	Outcome4xx                      //
	Outcome5xx                      //
	OutcomeFailed                   // an error response of this sidecar; Errors counts its code
	OutcomeCancelled                // the caller closed its connection or cancelled the request

	// Outcomes is the number of outcomes.
	Outcomes = int(OutcomeCancelled) + 1
)

var outcomeNames = [Outcomes]string{"2xx", "3xx", "4xx", "5xx", "failed", "cancelled"}

// String returns the outcome's stable name, as metrics have it.
func (o Outcome) String() string { return outcomeNames[o] }

// OutcomeOf returns the outcome of a response with an HTTP status.
func OutcomeOf(status int) Outcome {
	return Outcome(min(max(status/100, 2), 5) - 2)
}

// Failed reports whether o is a failure of the application or the sidecar.
func (o Outcome) Failed() bool { return o == Outcome5xx || o == OutcomeFailed }

// GRPCCodes counts gRPC calls by code.
type GRPCCodes [protocol.GRPCCodes]uint64

// ServiceStats are the counts of one service on one loop.
type ServiceStats struct {
	Requests          uint64 // admitted: not refused because of a limit of the process or service; with those that a cache answered
	Outcomes          [Outcomes]uint64
	Batch             [Outcomes]uint64 // of these, batch requests
	GRPC              GRPCCodes        // of these, gRPC calls by their code
	Latency           Histogram        // from the complete request to the complete response; of failures only timeouts
	BytesIn           uint64           // of requests admitted: headers and body, as a loop holds them
	BytesOut          uint64           // of responses of the application, without streams
	Retries           uint64           // attempts after a failed one, free ones included
	RetriesPaid       uint64           // of these, retries that cost a token
	RetriesAhead      uint64           // of these, retries whose token was owed
	RetriesOverBudget uint64           // retries that were not sent for want of a token
	RetriesCascade    uint64           // paid retries that were not sent: the request is a hedge or retry itself

	TiedQueued       uint64 // tied hedges of consumers that waited for a slot
	TiedWithdrawn    uint64 // of these, hedges that left the queue without a slot
	UnwantedClosed   uint64 // attempts that nobody awaited, and whose connection was closed for that
	UnwantedFinished uint64 // attempts that nobody awaited, and that were left to finish

	hedge.Counts // of all routes that lead to the service

	Ejections  [outlier.Reasons]uint64 // of endpoints, by reason
	PassedOver uint64                  // requests that the endpoint of their key did not get at first

	FilterStats

	Probes ProbeCounts

	Streams        uint64 // streams that an endpoint accepted
	StreamsOpen    int    // of these, streams open now
	StreamsFailed  uint64 // streams that failed, before or after an endpoint accepted them
	StreamBytesIn  uint64 // to endpoints, of streams that ended
	StreamBytesOut uint64 // from endpoints, of streams that ended
}

// Continues reports whether s may be later counts of the service of before. If a count of requests or hedges has fallen, a reload has
// replaced the service, and s counts from 0.
func (s *ServiceStats) Continues(before *ServiceStats) bool {
	for i, n := range before.Outcomes {
		if s.Outcomes[i] < n {
			return false
		}
	}
	for i, n := range before.Latency.Counts {
		if s.Latency.Counts[i] < n {
			return false
		}
	}
	return s.Requests >= before.Requests && s.Hedges >= before.Hedges && s.HedgesMissed >= before.HedgesMissed &&
		s.HedgesWon >= before.HedgesWon
}

// Add adds o to s.
func (s *ServiceStats) Add(o *ServiceStats) {
	s.Requests += o.Requests
	for i, n := range o.Outcomes {
		s.Outcomes[i] += n
	}
	for i, n := range o.Batch {
		s.Batch[i] += n
	}
	for i, n := range o.GRPC {
		s.GRPC[i] += n
	}
	s.Latency.Add(&o.Latency)
	s.BytesIn += o.BytesIn
	s.BytesOut += o.BytesOut
	s.Retries += o.Retries
	s.RetriesPaid += o.RetriesPaid
	s.RetriesAhead += o.RetriesAhead
	s.RetriesOverBudget += o.RetriesOverBudget
	s.RetriesCascade += o.RetriesCascade
	s.TiedQueued += o.TiedQueued
	s.TiedWithdrawn += o.TiedWithdrawn
	s.UnwantedClosed += o.UnwantedClosed
	s.UnwantedFinished += o.UnwantedFinished
	s.Counts.Add(&o.Counts)
	s.FilterStats.Add(&o.FilterStats)
	s.Probes.Add(&o.Probes)
	for i, n := range o.Ejections {
		s.Ejections[i] += n
	}
	s.PassedOver += o.PassedOver
	s.Streams += o.Streams
	s.StreamsOpen += o.StreamsOpen
	s.StreamsFailed += o.StreamsFailed
	s.StreamBytesIn += o.StreamBytesIn
	s.StreamBytesOut += o.StreamBytesOut
}
