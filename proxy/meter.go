package proxy

import (
	"math/bits"
	"time"
)

// SizeBuckets is the number of buckets of a SizeHistogram.
const SizeBuckets = 9

// SizeHistogram counts small numbers, such as what one write carries: up to 1,
// 2, 4 and so on to 128, and more. The zero value is empty; it is a plain value,
// owned by one loop.
type SizeHistogram struct {
	Counts [SizeBuckets]uint64
	Sum    uint64
}

// Observe counts n, which is not negative.
func (h *SizeHistogram) Observe(n int) {
	h.Counts[min(bits.Len(uint(max(n-1, 0))), SizeBuckets-1)]++
	h.Sum += uint64(n)
}

// Add adds o to h.
func (h *SizeHistogram) Add(o *SizeHistogram) {
	for i, n := range o.Counts {
		h.Counts[i] += n
	}
	h.Sum += o.Sum
}

// LoopStats are a driver's counts of one loop: plain integers that only the loop
// writes.
type LoopStats struct {
	Connections int           // open or being dialled, by and from anybody
	Events      uint64        // of connections and timers
	Turns       Histogram     // how long turns took, from their first event to their last flush
	TurnEvents  SizeHistogram // events of a turn
}

// Metered is a Loop that counts its turns.
type Metered interface {
	// Stats returns a copy of the counts. It is called on the loop.
	Stats() LoopStats
}

// Ending is how an attempt ended for its endpoint. It is small and dense, fit to
// index an array of counters.
type Ending uint8

const (
	endNothing Ending = iota // no answer, which nobody can blame it for
	endBroken                // no answer: it can't be reached, or does not keep to the protocol
	endUnseen                // an answer that nobody waited for
	endServed                // an answer
	endFailure               // an answer with status 5xx

	// Endings is the number of endings.
	Endings = int(endFailure) + 1
)

var endingNames = [Endings]string{"none", "broken", "unseen", "served", "failure"}

// String returns the ending's stable name, as metrics carry it.
func (e Ending) String() string {
	if int(e) < Endings {
		return endingNames[e]
	}
	return "unknown"
}

// sent counts an attempt that is handed to the endpoint.
func (e *endpoint) sent(a *attempt) {
	s := &e.stats
	s.BytesIn += uint64(a.ex.size())
	switch a.kind {
	case retryAttempt:
		s.Retries++
	case hedgeAttempt:
		s.Hedges++
	}
}

// ended counts the end of an attempt.
func (e *endpoint) ended(how Ending, latency time.Duration) {
	e.stats.Endings[how]++
	if how >= endUnseen {
		e.stats.Latency.Observe(latency)
	}
}

// EndpointStats are the counts of one endpoint on one loop, since the endpoint is
// known.
type EndpointStats struct {
	Endings  [Endings]uint64 // attempts that ended
	Latency  Histogram       // of answers, failures and those that nobody waited for included
	Retries  uint64          // attempts after a failed one
	Hedges   uint64
	BytesIn  uint64 // of requests: headers and body, as a loop holds them
	BytesOut uint64 // of answers, streams left out
}

// Add adds o to s.
func (s *EndpointStats) Add(o *EndpointStats) {
	for i, n := range o.Endings {
		s.Endings[i] += n
	}
	s.Latency.Add(&o.Latency)
	s.Retries += o.Retries
	s.Hedges += o.Hedges
	s.BytesIn += o.BytesIn
	s.BytesOut += o.BytesOut
}

// Ended is how many attempts have ended.
func (s *EndpointStats) Ended() (n uint64) {
	for _, k := range s.Endings {
		n += k
	}
	return n
}

// Failed is how many of them speak against the endpoint: it gave no answer, or
// one with a status of 5xx.
func (s *EndpointStats) Failed() uint64 { return s.Endings[endBroken] + s.Endings[endFailure] }
