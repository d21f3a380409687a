package lb

import "time"

// latencyShare is the weight of a new sample in a recent latency. It is high, because only
// recent latency distinguishes two idle endpoints. TestConstants shows what happens at twice and at half.
var latencyShare = 1.0 / 8

// latencyLife is how long a latency is recent. A slow endpoint loses all ties and so gets
// no new samples: its latency must be forgotten. Each time the latency is forgotten, one request is slow. At half, mean latency beside a slow
// endpoint is a fifth longer, if requests are few. Twice is as good (TestConstantsOfPicks).
var latencyLife = time.Second

// Recent is a moving average of latencies that forgets with time: the longer the time
// without samples, the more the next one counts. The zero value has no samples.
type Recent struct {
	mean time.Duration // 0 means no sample yet
	at   time.Duration // time of the last sample
}

// Add adds a latency.
func (r *Recent) Add(now, latency time.Duration) {
	share := 1.0
	if r.mean > 0 {
		share = min(1, max(latencyShare, float64(now-r.at)/float64(latencyLife)))
	}
	r.mean += time.Duration(float64(latency-r.mean) * share)
	r.at = now
}

// At returns the average, or 0 if there was no sample within the last second.
func (r *Recent) At(now time.Duration) time.Duration {
	if now-r.at >= latencyLife {
		return 0
	}
	return r.mean
}

// Mean returns the average, however old. 0 means no sample yet.
func (r *Recent) Mean() time.Duration { return r.mean }
