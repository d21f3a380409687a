package stats

// AttemptOutcome is how an attempt ended for its endpoint. It is dense, to index arrays.
type AttemptOutcome uint8

const (
	AttemptNone    AttemptOutcome = iota // no response, without a fault of the endpoint
	AttemptBroken                        // no response: unreachable, or a violation of the protocol
	AttemptUnseen                        // a response that no caller waited for
	AttemptServed                        // a response
	AttemptFailure                       // a response with status 5xx, or of gRPC one that counts as such
	AttemptClosed                        // no response: nobody waited for one, and the connection was closed for that

	// AttemptOutcomes is the number of outcomes.
	AttemptOutcomes = int(AttemptClosed) + 1
)

var attemptOutcomeNames = [AttemptOutcomes]string{"none", "broken", "unseen", "served", "failure", "closed"}

// String returns the outcome's stable name, as metrics have it.
func (o AttemptOutcome) String() string { return attemptOutcomeNames[o] }

// EndpointStats are the counts of one endpoint on one loop, since the loop got to know it.
type EndpointStats struct {
	Outcomes [AttemptOutcomes]uint64 // attempts that ended
	Latency  Histogram               // of all responses below 500, also of those that no caller waited for
	Retries  uint64                  // attempts after a failed one
	Hedges   uint64
	BytesIn  uint64 // of requests: headers and body, as a loop holds them
	BytesOut uint64 // of responses, without streams
}

// Add adds o to s.
func (s *EndpointStats) Add(o *EndpointStats) {
	for i, n := range o.Outcomes {
		s.Outcomes[i] += n
	}
	s.Latency.Add(&o.Latency)
	s.Retries += o.Retries
	s.Hedges += o.Hedges
	s.BytesIn += o.BytesIn
	s.BytesOut += o.BytesOut
}

// Ended returns the number of attempts that have ended.
func (s *EndpointStats) Ended() (n uint64) {
	for _, k := range s.Outcomes {
		n += k
	}
	return n
}

// Failed counts the attempts that the endpoint failed: no response, or one with status 5xx.
func (s *EndpointStats) Failed() uint64 {
	return s.Outcomes[AttemptBroken] + s.Outcomes[AttemptFailure]
}
