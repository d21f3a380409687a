package lb

import "time"

// peakLife is the time after which half of a peak is forgotten. With Finagle's 10 s, replicas
// that freeze for tens of milliseconds would be avoided far longer than they were slow.
const peakLife = time.Second

// PeakEWMA picks the endpoint with the least latency × (load + 1) / weight. The latency is a
// moving average that adopts a slower response at once and forgets it slowly. So an endpoint
// is avoided from its first slow response on, as with Finagle's Peak EWMA (twitter/finagle,
// PeakEwma.scala). An endpoint of unknown latency gets one request, and the next after a good
// response to the first.
//
// Like LeastPending, it compares two drawn endpoints if there are more than 8.
type PeakEWMA struct{}

// Choose implements Policy.
func (PeakEWMA) Choose(v *View) *Endpoint { return v.cheapest((*Endpoint).peakCost) }

// unknownLatency is assumed until the first response of an endpoint.
const unknownLatency = float64(time.Hour)

func (e *Endpoint) peakCost(now time.Duration) float64 {
	latency, load := e.peakNow(now), e.load(now)
	if e.excess > 0 {
		latency = max(latency, e.peakOfPeers)
	}
	if latency == 0 && (load > 0 || e.success < 1) {
		latency = unknownLatency
	}
	return latency * (load + 1) / (e.weight * e.success)
}

// peakNow returns the peak-sensitive average in nanoseconds, reduced by the peak's age.
func (e *Endpoint) peakNow(now time.Duration) float64 {
	return e.peak * float64(peakLife) / float64(peakLife+now-e.peakAt)
}

func (e *Endpoint) observePeak(now, latency time.Duration) {
	x := float64(latency)
	if x < e.peak {
		since := now - e.peakAt
		x = e.peak + (x-e.peak)*float64(since)/float64(since+peakLife)
	}
	e.peak, e.peakAt = x, now
}
