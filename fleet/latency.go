package fleet

import (
	"time"

	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Latency has the requests of a service in the buckets of a stats.Histogram, without empty buckets at the end. It may
// come from etcd, so it may have more buckets, and any numbers.
type Latency []uint64

// LatencyOf returns the counts of a histogram.
func LatencyOf(h *stats.Histogram) Latency {
	last := len(h.Counts)
	for last > 0 && h.Counts[last-1] == 0 {
		last--
	}
	return append(Latency(nil), h.Counts[:last]...)
}

// maxCount bounds the requests of a bucket that count, so that sums are exact in floating point.
const maxCount = 1 << 40

// latencies are the requests of a service on several sidecars.
type latencies struct {
	counts [stats.HistogramBuckets]float64
	all    float64
}

func (l *latencies) add(o Latency) {
	for i, n := range o[:min(len(o), len(l.counts))] {
		n := float64(min(n, maxCount))
		l.counts[i] += n
		l.all += n
	}
}

// edges returns the latencies between which bucket i is. The last bucket has no upper edge.
func edges(i int) (low, high time.Duration) {
	if i > 0 {
		low = stats.HistogramBound(i - 1)
	}
	return low, stats.HistogramBound(i)
}

// quantile returns the q-quantile, as if the requests of a bucket were spread evenly in it. ok is false if there are no
// requests, or the quantile is slower than all bounds.
func (l *latencies) quantile(q float64) (d time.Duration, ok bool) {
	rank, seen := q*l.all, 0.0
	for i, n := range l.counts[:len(l.counts)-1] {
		if n > 0 && seen+n >= rank {
			low, high := edges(i)
			return low + time.Duration((rank-seen)/n*float64(high-low)), true
		}
		seen += n
	}
	return 0, false
}

// later returns the share of the requests that took longer than d, with the same assumption. Those of the last bucket
// did.
func (l *latencies) later(d time.Duration) float64 {
	later := l.counts[len(l.counts)-1]
	for i, n := range l.counts[:len(l.counts)-1] {
		switch low, high := edges(i); {
		case d <= low:
			later += n
		case d < high:
			later += n * float64(high-d) / float64(high-low)
		}
	}
	return later / max(l.all, 1)
}
