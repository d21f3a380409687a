package lb

import "time"

// TestConstants shows what happens at twice and at half of each.
var (
	// queueCost is the additional load of a request that has to queue. Without it, replicas of 1, 4 and 16 workers serve 3 to 4%
	// fewer requests, and P99 at 90% load is a tenth longer (TestWithoutQueueCost). Half and twice of it make no difference of 3%
	// (TestConstantsOfHerds). Where replicas are equal, queueCost makes no difference.
	queueCost = 2.0

	// capacityShare is the weight of a new report in the capacity: one report may catch the
	// moment between two requests.
	capacityShare = 1.0 / 4

	utilizationLife = 10 * time.Second // how long a utilization counts

	// Reports of utilization multiply a weight by 1/shareMost to shareMost: an endpoint that is
	// wrong about itself neither gets all requests nor loses them.
	shareMost = 4.0
)

const maxFull = 1e12 // requests per second, so that sums are finite

// capacity is how many requests the application serves at once: the number of running requests while
// others are queued. Only a sidecar that limits its application reports a queue. 0 means that no limit is known.
type capacity float64

// observe learns from a report. With a queue, the requests that were not queued show the capacity. Without
// a queue, the capacity is at least their number.
func (c *capacity) observe(l *Load) {
	running := capacity(max(1, l.Pending-l.Queued))
	switch {
	case l.Queued > 0 && *c > 0:
		*c += (running - *c) * capacity(capacityShare)
	case l.Queued > 0:
		*c = running
	case *c > 0:
		*c = max(*c, running)
	}
}

// costOfQueue returns the additional load of requests that would have to queue, if there were load requests and one more.
func (c capacity) costOfQueue(load float64) float64 {
	if c == 0 {
		return 0
	}
	return queueCost * max(0, load+1-float64(c))
}

// utilization is what the endpoint could serve by its own reports of rate and utilization (gRFC A58).
type utilization struct {
	full  float64       // requests per second at full utilization; 0 means unknown
	at    time.Duration // of the latest report
	share float64       // of the weight, by full: 1 means that of an average endpoint
}

// ReportUtilization processes a report of the endpoint itself: rate, the requests per second that it serves
// for all its clients, takes the share utilization of its capacity. Impossible values are ignored.
func (e *Endpoint) ReportUtilization(now time.Duration, rate, utilization float64) {
	full := rate / utilization
	if !(rate > 0 && full > 0 && full <= maxFull) {
		return
	}
	u := &e.utilization
	if u.full > 0 {
		full = u.full + (full-u.full)*capacityShare
	}
	u.full, u.at = full, now
	if e.peers != nil {
		e.peers.utilizations.any = true
	}
}

// utilizations compares what the endpoints of a set could serve.
type utilizations struct {
	any bool // some endpoint has reported its utilization
}

// compare finds the shares of the endpoints by what they could serve. The shares are 1 if the configured weights differ.
// An endpoint without a recent report has the mean share.
func (x *utilizations) compare(now time.Duration, all []*Endpoint) {
	known, sum, even := 0.0, 0.0, true
	for _, e := range all {
		even = even && e.Weight == all[0].Weight
		u := &e.utilization
		if now-u.at >= utilizationLife {
			u.full = 0
		}
		if u.full > 0 {
			known++
			sum += u.full
		}
	}
	x.any = known > 0
	for _, e := range all {
		u := &e.utilization
		u.share = 1
		if even && u.full > 0 {
			u.share = min(max(u.full*known/sum, 1/shareMost), shareMost)
		}
	}
}
