package probe

import "time"

// TestConstants shows what happens at twice and at half of each.
var (
	// rateMost is the rate of a loop's requests to a service, per second, from which on it sends no probe. At
	// that rate Asked probes for each request are 200 a second. A busier loop has newer reports, and probes would cost it more.
	rateMost = 50.0

	// rateLife is the time over which the rate is averaged: several requests of a loop with 3 a second.
	rateLife = time.Second

	// othersLeast is the mean load of other callers at an endpoint, in requests, from which on probes help. Without others, a loop
	// knows the load of its endpoints by itself. With fewer, three of four picks find no request of others anyway.
	othersLeast = 0.25

	// othersShare is the weight of a new mean in that load: a second has some three reports, of which all may have met
	// nothing by chance.
	othersShare = 1.0 / 8

	// latencyLeast is the mean latency from which on probes help. A probe takes the round trip of a link, some
	// 0.2 ms, and two wake-ups. A request that takes less than ten times that would gain little.
	latencyLeast = 2 * time.Millisecond

	// reportLife is how long a report that comes with a response says something, as a share of the latency.
	reportLife = 0.5
)

// Traffic is what a loop knows of its requests to a service.
type Traffic struct {
	Requests  uint64        // so far
	Endpoints int           // of the service
	Others    float64       // mean load of others at an endpoint, in requests, as recent responses have reported
	Known     bool          // there is such a report
	Latency   time.Duration // mean; 0 means unknown
}

// Sparse decides whether a loop sends probes: its traffic is sparse if the reports that come with responses are old when
// the next pick needs them. The zero value has seen no traffic.
type Sparse struct {
	on       bool
	began    bool
	at       time.Duration // of the last Observe
	requests uint64        // so far, at that time
	rate     float64       // requests per second
	others   float64
}

// On reports whether the traffic is sparse.
func (s *Sparse) On() bool { return s.on }

// Observe decides anew. It is called every 100 ms, or with each request if these are rarer.
func (s *Sparse) Observe(now time.Duration, t *Traffic) {
	took := now - s.at
	if s.began && took <= 0 {
		return
	}
	if s.began {
		share := min(1, float64(took)/float64(rateLife))
		s.rate += (float64(t.Requests-s.requests)/took.Seconds() - s.rate) * share
	} else {
		s.rate = rateMost // not sparse until a second has shown that
	}
	s.began, s.at, s.requests = true, now, t.Requests
	if t.Known {
		s.others += (t.Others - s.others) * othersShare
	}
	s.on = t.Endpoints > 1 && s.rate < rateMost && s.others >= othersLeast && t.Latency >= latencyLeast && s.old(t)
}

// old reports whether the report of an endpoint is old before the next report of the same endpoint comes. Each request
// brings a report of one endpoint.
func (s *Sparse) old(t *Traffic) bool {
	return s.rate*reportLife*t.Latency.Seconds() < float64(t.Endpoints)
}
