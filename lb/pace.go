package lb

import "time"

// The capacity of a replica shows when requests wait. A sidecar that limits its application
// reports its queue. Others show it by their latency, which grows with a queue and on a slow
// machine. Both scale the load that LeastPending compares, so that unequal replicas are used
// by their capacity, without configured weights (TestUnequalReplicas).

const (
	// paceShare is the weight of a new sample in a pace. It is low, because requests differ
	// more than replicas, and the pace counts to the fifth power.
	paceShare = 1.0 / 512

	paceLife = 20 * time.Second // how long a pace is remembered if samples are rare

	// pacePrior is the number of samples for which the mean of all endpoints counts in each
	// endpoint's pace: a few latencies say little.
	pacePrior = 64

	// paceMost limits a sample to this multiple of the pace: a freeze is no lasting slowness.
	paceMost = 4

	queueCost = 2 // additional load of a request that has to queue

	// capacityShare is the weight of a new report in the capacity: one report may catch the
	// moment between two requests.
	capacityShare = 1.0 / 4
)

// pace is the long-term mean latency.
type pace struct {
	mean    float64 // nanoseconds
	samples float64 // samples in mean, up to 1/paceShare
	at      time.Duration
}

func (e *Endpoint) observePace(now, latency time.Duration) {
	if e.set == nil {
		return
	}
	all := &e.set.pace
	x := float64(latency)
	if all.samples > 0 {
		x = min(x, paceMost*max(e.pace.mean, all.mean))
	}
	e.pace.add(now, x)
	all.add(now, x)
}

func (p *pace) add(now time.Duration, x float64) {
	share := max(1/(p.samples+1), paceShare, float64(now-p.at)/float64(paceLife))
	share = min(share, 1)
	p.mean += (x - p.mean) * share
	p.samples = min(1/share, 1/paceShare)
	p.at = now
}

// loadFactor returns how much more the endpoint's load counts than that of an average one: the
// fifth power of its relative slowness. A higher power brings the load of replicas with queues
// closer to that of others, but underuses replicas that are only slow (TestUnequalReplicas).
func (e *Endpoint) loadFactor() float64 {
	n := e.pace.samples
	if n == 0 || e.set == nil {
		return 1
	}
	ratio := (n*e.pace.mean/e.set.pace.mean + pacePrior) / (n + pacePrior)
	square := ratio * ratio
	return square * square * ratio
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
