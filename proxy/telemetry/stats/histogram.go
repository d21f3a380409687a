package stats

import "time"

// The bounds of a Histogram: nine linear steps per decade, from 10 µs to 60 s.
// Round numbers such as 0.5 ms, 2 ms and 50 ms are among them.
const (
	histogramBase    = 10 * time.Microsecond
	histogramDecades = 7
	histogramTop     = 60 * time.Second

	// HistogramBuckets is the number of a Histogram's buckets. The last has no upper bound.
	HistogramBuckets = 9*(histogramDecades-1) + 6 + 1
)

// Histogram counts latencies in fixed buckets. It is a plain value that one loop owns;
// copies are independent. The zero value is empty.
type Histogram struct {
	// Counts[i] is the number of latencies in (HistogramBound(i-1), HistogramBound(i)].
	Counts [HistogramBuckets]uint64
	Sum    time.Duration
}

// Observe counts one latency; a negative one counts as 0.
func (h *Histogram) Observe(d time.Duration) {
	d = max(d, 0)
	h.Counts[histogramBucket(d)]++
	h.Sum += d
}

// Add adds o to h.
func (h *Histogram) Add(o *Histogram) {
	for i, n := range o.Counts {
		h.Counts[i] += n
	}
	h.Sum += o.Sum
}

// Count returns the number of latencies observed.
func (h *Histogram) Count() (n uint64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Quantile returns the upper bound of the bucket with the q-quantile, and 0 if nothing
// was observed. For latencies above all bounds it is the last bound.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := q * float64(h.Count())
	var seen uint64
	for i, n := range h.Counts {
		if seen += n; n > 0 && float64(seen) >= rank {
			return min(HistogramBound(i), histogramTop)
		}
	}
	return 0
}

// HistogramBound returns the upper bound of bucket i, inclusive. For the last bucket it
// is the largest Duration.
func HistogramBound(i int) time.Duration {
	if i >= HistogramBuckets-1 {
		return 1<<63 - 1
	}
	// i = 0 is the bound 1 of decade 0; 10 of a decade is 1 of the next.
	unit := histogramBase
	for ; i >= 9; i -= 9 {
		unit *= 10
	}
	return time.Duration(i+1) * unit
}

// histogramBucket returns the first bucket whose bound is not below d.
func histogramBucket(d time.Duration) int {
	if d > histogramTop {
		return HistogramBuckets - 1
	}
	first, unit := 0, histogramBase
	for d > 9*unit {
		first += 9
		unit *= 10
	}
	return first + max(int((d+unit-1)/unit)-1, 0)
}
