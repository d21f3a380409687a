package lb

import "time"

const (
	// latencyShare is the weight of a new sample in a recent latency. It is high,
	// for only what is recent tells two idle endpoints apart.
	latencyShare = 1.0 / 8

	// latencyLife is when a latency is no longer recent. Endpoints that were
	// slow once get no ties, and so no new samples: it must be forgotten.
	latencyLife = time.Second
)

// Recent is a moving average of latencies that forgets with time: the longer there
// was no sample, the more the next one weighs. The zero value has none.
type Recent struct {
	mean time.Duration // 0: none yet
	at   time.Duration // when the last sample came
}

// Add takes a latency in.
func (r *Recent) Add(now, latency time.Duration) {
	share := 1.0
	if r.mean > 0 {
		share = min(1, max(latencyShare, float64(now-r.at)/float64(latencyLife)))
	}
	r.mean += time.Duration(float64(latency-r.mean) * share)
	r.at = now
}

// At is the average, or 0 when the last sample is a second old, or there was none.
func (r *Recent) At(now time.Duration) time.Duration {
	if now-r.at >= latencyLife {
		return 0
	}
	return r.mean
}

// Mean is the average, however old; 0 when there was no sample.
func (r *Recent) Mean() time.Duration { return r.mean }
