package lb

import (
	"time"

	"github.com/remora-proxy/remora/lb/log2"
)

// TestConstants shows what happens at twice and at half of each.
var (
	// paceLife is the time in nanoseconds over which a pace is averaged. In a shorter time the freezes of one
	// replica and not of another look like a difference between them.
	paceLife = float64(20 * time.Second)

	// pacePrior is the number of samples for which the mean of all endpoints counts in each
	// endpoint's pace: a few latencies say little.
	pacePrior = 64.0

	// paceWait is the time in nanoseconds since the first sample until a pace has its whole effect: before, one
	// freeze is much of what is known.
	paceWait = float64(5 * time.Second)

	// paceMost limits a sample to four times the mean, or a quarter, as a power of 2: a freeze is
	// no lasting slowness.
	paceMost = 2.0
)

// pacePower is the power of the relative slowness by which the load counts. A higher power
// brings the load of replicas with queues closer to that of others, but where equal replicas
// are busy it makes much of a difference by chance, and leaves one idle while others queue. At twice, replicas with unequal
// queues serve 3% more, and those of unequal speed 3% less. At half it is the opposite (TestConstantsOfHerds).
const pacePower = 2

// slowness is how much slower an endpoint is for long than the mean of its set: its latency grows with
// a queue, and on a slow machine. It scales the load that LeastPending compares, so that unequal
// replicas are used by their capacity, without configured weights (TestUnequalReplicas).
//
// The pace of an endpoint is shrunk to the mean of all by the number of its samples (James and Stein,
// 1961), so an endpoint with few of them counts as average. Five latencies of a minute change the factor
// of a fast endpoint at most twofold (TestPace).
type slowness struct {
	pace   pace
	usual  float64 // latency by the pace, in nanoseconds; 0 means unknown
	factor float64 // how much more load counts than that of an average endpoint
}

// learn learns the binary logarithm of a latency in nanoseconds. all is the pace of the set.
func (s *slowness) learn(now time.Duration, log float64, all *pace) {
	if all.samples > 0 {
		log = min(max(log, all.mean-paceMost), all.mean+paceMost)
	}
	s.pace.add(now, log)
	all.add(now, log)
	n := s.pace.samples
	trust := n / (n + pacePrior) * min(1, float64(now-s.pace.since)/paceWait)
	slower := trust * (s.pace.mean - all.mean)
	s.usual = log2.Exp(all.mean + slower)
	s.factor = log2.Exp(pacePower * slower)
}

// pace is the long-term geometric mean of latencies.
type pace struct {
	mean    float64 // binary logarithm of nanoseconds
	samples float64 // that mean is made of: rare ones count more
	at      time.Duration
	since   time.Duration // of the first sample
}

func (p *pace) add(now time.Duration, log float64) {
	if p.samples == 0 {
		p.since = now
	}
	share := min(1, max(1/(p.samples+1), float64(now-p.at)/paceLife))
	p.mean += (log - p.mean) * share
	p.samples = 1 / share
	p.at = now
}
