package histogram

import (
	"math"
	"time"
)

// Distribution is the latency of requests, to be added up over loops.
type Distribution struct {
	Counts   [Buckets]int64
	Censored int64 // slower than every bucket
}

// Distribution returns the samples of the last one to two widths. It is for reports, not for each
// request.
func (w *Window) Distribution(now, width time.Duration) (d Distribution) {
	s := w.Read(now, width)
	for _, h := range s.halves {
		if h == nil {
			continue
		}
		for i, n := range h.counts {
			d.Counts[i] += int64(n)
		}
	}
	d.Censored = int64(s.censored)
	return d
}

// Add adds o to d.
func (d *Distribution) Add(o *Distribution) {
	for i, n := range o.Counts {
		d.Counts[i] += n
	}
	d.Censored += o.Censored
}

// Remove takes away o, which is a part of d.
func (d *Distribution) Remove(o *Distribution) {
	for i, n := range o.Counts {
		d.Counts[i] -= n
	}
	d.Censored -= o.Censored
}

// Samples returns the number of requests.
func (d *Distribution) Samples() int64 {
	n := d.Censored
	for _, c := range d.Counts {
		n += c
	}
	return n
}

// Quantile returns the q-quantile. ok is false if there is none, or it is a censored sample.
func (d *Distribution) Quantile(q float64) (latency time.Duration, ok bool) {
	rank := max(1, int64(math.Ceil(q*float64(d.Samples()))))
	var seen int64
	for i, n := range d.Counts {
		if seen += n; seen >= rank {
			return MiddleOf(i), true
		}
	}
	return 0, false
}

// LaterThan returns the share of the requests that took longer than a latency; those in its bucket did not.
func (d *Distribution) LaterThan(latency time.Duration) float64 {
	later := d.Censored
	for _, n := range d.Counts[BucketOf(latency)+1:] {
		later += n
	}
	return float64(later) / float64(max(d.Samples(), 1))
}

// Spread gives the censored samples the latencies of o, in proportion. If o has none, they stay censored.
func (d *Distribution) Spread(o *Distribution) {
	known := o.Samples() - o.Censored
	if known == 0 {
		return
	}
	var seen, given int64
	for i, n := range o.Counts {
		seen += n
		add := d.Censored*seen/known - given
		d.Counts[i] += add
		given += add
	}
	d.Censored = 0
}

// Uncensor replaces censored samples by those of o.
func (d *Distribution) Uncensor(o Distribution) {
	d.Censored -= min(o.Samples(), d.Censored)
	d.Add(&o)
}
