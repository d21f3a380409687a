package lb

import (
	"time"

	"github.com/remora-proxy/remora/lb/log2"
)

// The capacity of a replica shows when requests wait. A sidecar that limits its application
// reports its queue. Others show it by their latency, which grows with a queue and on a slow
// machine. Both scale the load that LeastPending compares, so that unequal replicas are used
// by their capacity, without configured weights (TestUnequalReplicas).

const (
	// paceLife is the time over which a pace is averaged. In a shorter time the freezes of one
	// replica and not of another look like a difference between them.
	paceLife = 20 * time.Second

	// pacePrior is the number of samples for which the mean of all endpoints counts in each
	// endpoint's pace: a few latencies say little.
	pacePrior = 64

	// paceWait is the time since the first sample until a pace has its whole effect: before, one
	// freeze is much of what is known.
	paceWait = 5 * time.Second

	// paceMost limits a sample to four times the mean, or a quarter, as a power of 2: a freeze is
	// no lasting slowness.
	paceMost = 2

	// pacePower is the power of the relative slowness by which the load counts. A higher power
	// brings the load of replicas with queues closer to that of others, but where equal replicas
	// are busy it makes much of a difference by chance, and leaves one idle while others queue.
	pacePower = 2

	queueCost = 2 // additional load of a request that has to queue

	// capacityShare is the weight of a new report in the capacity: one report may catch the
	// moment between two requests.
	capacityShare = 1.0 / 4
)

// pace is the long-term geometric mean of latencies.
type pace struct {
	mean    float64 // binary logarithm of nanoseconds
	samples float64 // that mean is made of: rare ones count more
	at      time.Duration
	since   time.Duration // of the first sample
}

// observePace learns the binary logarithm of a latency in nanoseconds.
func (e *Endpoint) observePace(now time.Duration, log float64) {
	all := &e.set.pace
	if all.samples > 0 {
		log = min(max(log, all.mean-paceMost), all.mean+paceMost)
	}
	e.pace.add(now, log)
	all.add(now, log)
	n := e.pace.samples
	trust := n / (n + pacePrior) * min(1, float64(now-e.pace.since)/float64(paceWait))
	slower := trust * (e.pace.mean - all.mean)
	e.usual = log2.Exp(all.mean + slower)
	e.loadFactor = log2.Exp(pacePower * slower)
}

func (p *pace) add(now time.Duration, log float64) {
	if p.samples == 0 {
		p.since = now
	}
	share := min(1, max(1/(p.samples+1), float64(now-p.at)/float64(paceLife)))
	p.mean += (log - p.mean) * share
	p.samples = 1 / share
	p.at = now
}

// observeQueue estimates the capacity from a report: the requests that were not queued
// while others were, or more without a queue.
func (e *Endpoint) observeQueue(l *Load) {
	running := float64(max(1, l.Pending-l.Queued))
	switch {
	case l.Queued > 0 && e.capacity > 0:
		e.capacity += (running - e.capacity) * capacityShare
	case l.Queued > 0:
		e.capacity = running
	case e.capacity > 0:
		e.capacity = max(e.capacity, running)
	}
}

// queueing returns how many of load requests plus one would have to queue.
func (e *Endpoint) queueing(load float64) float64 {
	if e.capacity == 0 {
		return 0
	}
	return max(0, load+1-e.capacity)
}
