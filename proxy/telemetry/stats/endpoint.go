package stats

// AttemptOutcome is how an attempt ended for its endpoint. It is small and dense, fit to
// index an array of counters.
type AttemptOutcome uint8

const (
	AttemptNone    AttemptOutcome = iota // no answer, which nobody can blame it for
	AttemptBroken                        // no answer: it can't be reached, or does not keep to the protocol
	AttemptUnseen                        // an answer that nobody waited for
	AttemptServed                        // an answer
	AttemptFailure                       // an answer with status 5xx

	// AttemptOutcomes is the number of endings.
	AttemptOutcomes = int(AttemptFailure) + 1
)

var attemptOutcomeNames = [AttemptOutcomes]string{"none", "broken", "unseen", "served", "failure"}

// String returns the ending's stable name, as metrics carry it.
func (e AttemptOutcome) String() string {
	if int(e) < AttemptOutcomes {
		return attemptOutcomeNames[e]
	}
	return "unknown"
}

// EndpointStats are the counts of one endpoint on one loop, since the endpoint is
// known.
type EndpointStats struct {
	Outcomes [AttemptOutcomes]uint64 // attempts that ended
	Latency  Histogram               // of answers, failures and those that nobody waited for included
	Retries  uint64                  // attempts after a failed one
	Hedges   uint64
	BytesIn  uint64 // of requests: headers and body, as a loop holds them
	BytesOut uint64 // of answers, streams left out
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

// Ended is how many attempts have ended.
func (s *EndpointStats) Ended() (n uint64) {
	for _, k := range s.Outcomes {
		n += k
	}
	return n
}

// Failed is how many of them speak against the endpoint: it gave no answer, or
// one with a status of 5xx.
func (s *EndpointStats) Failed() uint64 {
	return s.Outcomes[AttemptBroken] + s.Outcomes[AttemptFailure]
}
