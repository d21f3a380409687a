package lb

import "time"

const (
	// A report distinguishes endpoints in picks for half of the latency that it says: by then half
	// of the requests that it counts are over. Other consumers act on it, too. If it counted longer,
	// all would move to the endpoint that was idle when it reported.
	pickFade      = 2 // the latency is divided by it
	pickFadeLeast = time.Millisecond

	// loadFade is how long it distinguishes them in the load, at least. That decides about spare
	// capacity, which only few requests need.
	loadFade = 100 * time.Millisecond

	reportLife = time.Second // how long a report counts in the means

	utilizationLife = 10 * time.Second // how long a utilization counts

	// shareMost bounds what reports of utilization make of a weight, and a quarter does: an
	// endpoint that is wrong about itself neither gets all requests nor loses them.
	shareMost = 4
)

// Report processes the load that the endpoint's sidecar reports for all consumers. own is this
// process's part of it, over all its loops. The rest is the load of others. It fades to the mean
// of all endpoints. After 1 s, or up to loadFade later, it is dropped from the mean, too. An
// endpoint without a report counts as average. A response of the application to any consumer ends
// a stall.
func (e *Endpoint) Report(now time.Duration, l Load, own int) {
	if l.SinceAnswer >= 0 {
		e.quietSince = max(e.quietSince, now-l.SinceAnswer)
	}
	if l.Latency > 0 && e.latency.At(now) == 0 {
		e.latency.Add(now, l.Latency)
	}
	e.observeQueue(&l)
	if e.set == nil {
		return
	}
	e.forget()
	if e.excess > 0 { // what it declines is no load of others
		return
	}
	e.reported, e.reportedAt, e.reportFor = true, now, max(l.Latency/pickFade, pickFadeLeast)
	e.others = float64(max(0, l.Pending-max(0, own))) / e.Weight
	e.othersCost = e.scoreOf(e.others * e.Weight)
	e.set.reports++
	e.set.othersSum += e.others
	e.set.costSum += e.othersCost
}

func (e *Endpoint) forget() {
	if !e.reported {
		return
	}
	e.reported = false
	e.set.reports--
	e.set.othersSum -= e.others
	e.set.costSum -= e.othersCost
	if e.set.reports == 0 {
		e.set.othersSum, e.set.costSum = 0, 0 // removes rounding errors
	}
}

// fresh returns how much the last report counts if it does for life, from 1 to 0: the rest is the
// mean of all.
func (e *Endpoint) fresh(now, life time.Duration) float64 {
	age := now - e.reportedAt
	if !e.reported || age >= life {
		return 0
	}
	return 1 - float64(age)/float64(life)
}

// othersLoad returns the load of others per weight.
func (e *Endpoint) othersLoad(now time.Duration) float64 {
	if e.set == nil || e.set.reports == 0 {
		return 0
	}
	mean := e.set.othersSum / float64(e.set.reports)
	return mean + (e.others-mean)*e.fresh(now, max(loadFade, e.reportFor))
}

// scoreWith returns the score with some requests more. Others balance too: what is not known of an
// endpoint is that it costs as much as the mean of all, not that it has as much load. An endpoint of
// half the capacity has less. If it counted as loaded like the others, and that twice because it
// is slow, it would get no request, and so no report, even if it were idle.
func (e *Endpoint) scoreWith(now time.Duration, more float64) float64 {
	own := e.ownLoad(now) + more
	if e.set == nil || e.set.reports == 0 {
		return e.scoreOf(own)
	}
	fresh, score := e.fresh(now, e.reportFor), 0.0
	if fresh < 1 {
		score = (1 - fresh) * (e.set.costSum/float64(e.set.reports) + e.scoreOf(own))
	}
	if fresh > 0 {
		score += fresh * e.scoreOf(own+e.others*e.Weight)
	}
	return score
}

// expire drops the reports that are too old, at most every loadFade.
func (s *Set) expire(now time.Duration) {
	if s.reports == 0 || now < s.nextExpiry {
		return
	}
	s.nextExpiry = now + loadFade
	for _, e := range s.all.endpoints {
		if e.reported && now-e.reportedAt >= max(reportLife, e.reportFor) {
			e.forget()
		}
	}
}

// Reported returns the load that the endpoint's sidecar last reported, without this process's
// part; false if there was no report within the last second.
func (e *Endpoint) Reported(now time.Duration) (others float64, ok bool) {
	if !e.reported || now-e.reportedAt >= reportLife {
		return 0, false
	}
	return e.others * e.Weight, true
}

// Utilized processes a report of the endpoint itself: the requests per second that it serves for all
// its clients take so much of its capacity. Both show what it could serve (gRFC A58). Values that
// can't be count for nothing.
func (e *Endpoint) Utilized(now time.Duration, rate, utilization float64) {
	full := rate / utilization
	if !(rate > 0 && utilization > 0 && full > 0 && full <= maxFull) {
		return
	}
	if e.full > 0 {
		full = e.full + (full-e.full)*capacityShare
	}
	e.full, e.fullAt = full, now
	if e.set != nil {
		e.set.utilized = true
	}
}

const maxFull = 1e12 // requests per second, so that sums are finite

// compareUtilizations weighs the endpoints by what they could serve, unless configured weights say it.
// One that has not said so of late has the weight of the mean.
func (s *Set) compareUtilizations(now time.Duration) {
	all, known, sum, even := s.all.endpoints, 0.0, 0.0, true
	for _, e := range all {
		even = even && e.Weight == all[0].Weight
		if now-e.fullAt >= utilizationLife {
			e.full = 0
		}
		if e.full > 0 {
			known++
			sum += e.full
		}
	}
	s.utilized = known > 0
	for _, e := range all {
		e.share = 1
		if even && e.full > 0 {
			e.share = min(max(e.full*known/sum, 1.0/shareMost), shareMost)
		}
	}
	s.weigh()
}
