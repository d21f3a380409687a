package lb

import "time"

// What a replica can carry shows where requests wait. A sidecar that limits its
// application reports its queue; of others there is the latency, which grows with
// a queue and is longer on a slow machine. Both scale the load that LeastPending
// compares, so that unequal replicas are used by what they can carry, with no
// weights set (TestUnequalReplicas).

const (
	// paceShare is the weight of a new sample in a pace. It is low, for requests
	// differ by more than replicas do, and the pace counts to the fifth power.
	paceShare = 1.0 / 512

	// paceLife is how long a pace is remembered where samples are few.
	paceLife = 20 * time.Second

	// pacePrior is for how many samples of each endpoint's the mean of all counts:
	// a few latencies say little.
	pacePrior = 64

	// paceMost is how many times its pace a sample counts at most: a freeze is no
	// trait of the endpoint.
	paceMost = 4

	// queueCost is what a request that has to queue counts, beside itself.
	queueCost = 2

	// fullShare is the weight of a new report in full: one may be of the moment
	// between two requests.
	fullShare = 1.0 / 4
)

// pace is the mean latency of late, as a trait: slow to learn and to forget.
type pace struct {
	mean    float64 // nanoseconds
	samples float64 // in mean, up to 1/paceShare
	at      time.Duration
}

// observePace takes a latency into the endpoint's pace, and into that of all.
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

// drag is how much heavier the endpoint's load weighs than that of a mean one: the
// fifth power of how much slower it is. A higher one brings the load of replicas
// with queues nearer to that of those without, and gives replicas that are merely
// slow less than they can carry; this one serves both (TestUnequalReplicas).
func (e *Endpoint) drag() float64 {
	n := e.pace.samples
	if n == 0 || e.set == nil {
		return 1
	}
	ratio := (n*e.pace.mean/e.set.pace.mean + pacePrior) / (n + pacePrior)
	square := ratio * ratio
	return square * square * ratio
}

// observeQueue learns from a report how many requests the application takes at
// once: those that were not queued when others were, or more without a queue.
func (e *Endpoint) observeQueue(l *Load) {
	running := float64(max(1, l.Pending-l.Queued))
	switch {
	case l.Queued > 0 && e.full > 0:
		e.full += (running - e.full) * fullShare
	case l.Queued > 0:
		e.full = running
	case e.full > 0:
		e.full = max(e.full, running)
	}
}

// queueing is how many of load requests and one more would have to queue.
func (e *Endpoint) queueing(load float64) float64 {
	if e.full == 0 {
		return 0
	}
	return max(0, load+1-e.full)
}
