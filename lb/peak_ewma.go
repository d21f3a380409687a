package lb

import "time"

// peakLife is how long a peak is remembered: after it, half of the cost has gone.
// Finagle's default is 10 s; replicas that freeze for tens of milliseconds would
// be shunned for far longer than they were slow.
const peakLife = time.Second

// PeakEWMA picks the endpoint with the least latency × (load + 1) / weight. The
// latency is a moving average that takes a slower answer over at once and forgets
// it slowly, so that an endpoint is left alone from its first slow answer on:
// Finagle's Peak EWMA (twitter/finagle, PeakEwma.scala). An endpoint of unknown
// latency gets one request, and the next when that is answered well.
//
// Like LeastPending, it compares two drawn of more than 8 endpoints.
type PeakEWMA struct{}

// Choose implements Policy.
func (PeakEWMA) Choose(v *View) *Endpoint { return v.cheapest((*Endpoint).peakCost) }

// unknownLatency stands for that of an endpoint that owes its first answer.
const unknownLatency = float64(time.Hour)

func (e *Endpoint) peakCost(now time.Duration) float64 {
	latency, load := e.peakNow(now), e.load(now)
	if latency == 0 && (load > 0 || e.success < 1) {
		latency = unknownLatency
	}
	return latency * (load + 1) / (e.weight * e.success)
}

// peakNow is the peak-sensitive average in nanoseconds, as far as it is not
// forgotten.
func (e *Endpoint) peakNow(now time.Duration) float64 {
	return e.peak * float64(peakLife) / float64(peakLife+now-e.peakAt)
}

// observePeak takes a latency into the peak-sensitive average.
func (e *Endpoint) observePeak(now, latency time.Duration) {
	x := float64(latency)
	if x < e.peak {
		since := now - e.peakAt
		x = e.peak + (x-e.peak)*float64(since)/float64(since+peakLife)
	}
	e.peak, e.peakAt = x, now
}
