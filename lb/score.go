package lb

import "time"

// What picks and hedges compare of an endpoint:
//
//	measure      unit                  of what
//	ownWork      requests              this process has in flight there
//	ownLoad      requests              ownWork, and the declined requests that excess adds
//	othersLoad   requests per weight   other callers have there, as reported
//	load         requests              ownLoad, and othersLoad times Weight; for hedges: is there room?
//	score        requests per weight   ownLoad, reported load and queue; for picks of least_pending: less is better
//	rank         nanoseconds           recent latency; for picks among equal scores

// rankMemory is how long a recent latency orders endpoints, in multiples of the latency: about as long
// as the queue behind the latency may last. Without the bound, a sidecar with few requests would avoid an
// endpoint long after the queue was gone, as would all other sidecars that met the queue. Half and twice of it change P99 of
// callers with few requests by no more than a tenth (TestConstantsOfSparse).
const rankMemory = 2

// rank orders endpoints of equal load by the recent latency, divided by the discount for failures. Once
// the recent latency is old, a usual latency that is less takes its place. rank is 0 if nothing is known,
// so that the endpoint is tried.
func (v *View) rank(e *Endpoint) float64 {
	latency := float64(e.latency.At(v.Now))
	if usual := e.slowness.usual; usual > 0 && float64(v.Now-e.latency.at) > rankMemory*latency {
		latency = min(latency, usual)
	}
	if e.discount == 1 {
		return latency
	}
	if latency == 0 {
		latency = float64(latencyLife)
	}
	return latency / e.discount
}

func (e *Endpoint) load(now time.Duration) float64 {
	return e.ownLoad(now) + e.othersLoad(now)*e.Weight
}

func (e *Endpoint) ownLoad(now time.Duration) float64 {
	if e.excess.load > 0 {
		return e.ownWork() + e.excess.at(now)
	}
	return e.ownWork()
}

func (e *Endpoint) ownWork() float64 {
	if e.batch > 0 && !e.report.counts {
		return float64(e.OfProcess() + e.batch)
	}
	return float64(e.OfProcess())
}

// othersLoad returns the load of others per weight.
func (e *Endpoint) othersLoad(now time.Duration) float64 {
	if e.peers == nil || e.peers.reports.n == 0 {
		return 0
	}
	mean := e.peers.reports.others / float64(e.peers.reports.n)
	return mean + (e.report.others-mean)*e.report.fresh(now, max(loadFade, e.report.life))
}

// score is what LeastPending compares: the load per weight, scaled by the endpoint's capacity.
// It is 0 without load, so that every endpoint is tried.
func (v *View) score(e *Endpoint) float64 { return v.scoreWith(e, 0) }

func (v *View) scoreWithOne(e *Endpoint) float64 { return v.scoreWith(e, 1) }

// scoreWith returns the score with more requests. An endpoint without a fresh report is assumed to have the mean
// score of the others, not their mean load: the other callers balance, too, so an endpoint of half the capacity has
// half the load. If such an endpoint were assumed to have the mean load, its score would be twice the mean: it
// would get no request, and so no report, even if it were idle.
func (v *View) scoreWith(e *Endpoint, more float64) float64 {
	own := e.ownLoad(v.Now) + more
	if e.peers == nil || e.peers.reports.n == 0 {
		return e.scoreOf(own)
	}
	fresh, score := e.report.fresh(v.Now, e.report.life), 0.0
	if fresh < 1 {
		score = (1 - fresh) * (e.peers.reports.cost/float64(e.peers.reports.n) + e.scoreOf(own))
	}
	if fresh > 0 {
		score += fresh * e.scoreOf(own+e.report.others*e.Weight)
	}
	return score
}

func (e *Endpoint) scoreOf(load float64) float64 {
	return e.perWeight(load+e.capacity.costOfQueue(load)) * e.slowness.factor
}

// perWeight divides a load by the weight, scaled by the discount for failures: an endpoint
// that fails every second attempt immediately would seem twice as fast.
func (e *Endpoint) perWeight(load float64) float64 {
	return load / (e.effectiveWeight * e.discount)
}

// Spare reports whether the endpoint can serve one more request at once, as far as is known. An
// idle one can.
func (e *Endpoint) Spare(now time.Duration) bool { return e.hasRoom(now, false) }

// hasRoom reports whether the endpoint can serve one more request at once, or soon if the request is stuck;
// see spare.Curve. No request may wait for a slot in the endpoint's sidecar.
func (e *Endpoint) hasRoom(now time.Duration, stuck bool) bool {
	load := e.load(now)
	if e.peers == nil || load < 1 {
		return true
	}
	return e.capacity.costOfQueue(load) == 0 && e.peers.curve.HasRoom(now, load, e.usualLoad.Load(), stuck)
}
