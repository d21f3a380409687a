package hedge

import (
	"math"
	"time"
)

// Distribution is the latency of requests, to be added up over loops: of primaries in the last 30 to
// 60 s, or as a Forecast or an Effect says.
type Distribution struct {
	counts   [nBuckets]int64
	censored int64 // slower than every bucket
}

// Distribution returns the latency of primaries in the last 30 to 60 s. It is for reports, not for each request.
func (e *Estimator) Distribution(now time.Duration) Distribution { return distribution(&e.long, now) }

func distribution(long *window, now time.Duration) (d Distribution) {
	s := long.read(now, longHalf)
	for _, h := range s.halves {
		if h == nil {
			continue
		}
		for i, n := range h.counts {
			d.counts[i] += int64(n)
		}
	}
	d.censored = int64(s.censored)
	return d
}

// Add adds o to d.
func (d *Distribution) Add(o *Distribution) {
	for i, n := range o.counts {
		d.counts[i] += n
	}
	d.censored += o.censored
}

// Samples returns the number of requests.
func (d *Distribution) Samples() int64 {
	n := d.censored
	for _, c := range d.counts {
		n += c
	}
	return n
}

// Quantile returns the q-quantile. ok is false if there is none, or it is a censored sample.
func (d *Distribution) Quantile(q float64) (latency time.Duration, ok bool) {
	rank := max(1, int64(math.Ceil(q*float64(d.Samples()))))
	var seen int64
	for i, n := range d.counts {
		if seen += n; seen >= rank {
			return middleOf(i), true
		}
	}
	return 0, false
}
