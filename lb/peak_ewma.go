package lb

import "time"

// peakLife is the time after which half of a peak is forgotten. At half, P99 beside a slow endpoint is more than twice as long,
// if requests are few (TestConstantsOfPicks). Values up to Finagle's 10 s are as good, also where replicas
// freeze.
var peakLife = time.Second

// PeakEWMA picks the endpoint with the least latency × (load + 1) / weight. The latency is a
// moving average that adopts a slower response at once and forgets it slowly. So an endpoint
// is avoided from its first slow response on, as with Finagle's Peak EWMA (twitter/finagle,
// PeakEwma.scala). An endpoint of unknown latency gets one request, and the next after a good
// response to the first.
//
// Like LeastPending, it compares two drawn endpoints if there are more than 8.
type PeakEWMA struct{}

// Choose implements Policy.
func (PeakEWMA) Choose(v *View) *Endpoint { return v.cheapest((*View).peakCost) }

// unknownLatency is assumed until the first response of an endpoint: longer than any latency. TestConstants shows what happens at twice and at half.
var unknownLatency = float64(time.Hour)

func (v *View) peakCost(e *Endpoint) float64 {
	latency, load := e.peak.at(v.Now), e.load(v.Now)
	if e.excess.share > 0 {
		latency = max(latency, e.excess.peak)
	}
	if latency == 0 && (load > 0 || e.discount < 1) {
		latency = unknownLatency
	}
	return latency * (load + 1) / (e.effectiveWeight * e.discount)
}

// peak is a moving average of latencies that a slower response replaces at once.
type peak struct {
	mean    float64 // nanoseconds
	changed time.Duration
}

// at returns the average in nanoseconds, reduced by its age.
func (p *peak) at(now time.Duration) float64 {
	return p.mean * float64(peakLife) / float64(peakLife+now-p.changed)
}

func (p *peak) add(now, latency time.Duration) {
	x := float64(latency)
	if x < p.mean {
		since := now - p.changed
		x = p.mean + (x-p.mean)*float64(since)/float64(since+peakLife)
	}
	p.mean, p.changed = x, now
}
