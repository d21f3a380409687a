package hedge

import (
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/class"
)

// ClassOf returns the class of a request with a body of size bytes. name is the class that the caller
// of the request names, or empty.
func (r *Route) ClassOf(now time.Duration, name []byte, size int) class.ID {
	return r.classes.Of(now, name, size)
}

// estimateOf returns the delay, without bounds, and the median of class c; 0 means unknown. own reports
// whether they are not those of the route.
func (r *Route) estimateOf(now time.Duration, c class.ID) (delay, median time.Duration, own bool) {
	route := r.Estimator.estimate(now, r.Policy.quantile())
	if c > 0 {
		if delay, median, own = r.classes.Estimate(now, c, r.whole(route)); own {
			return delay, median, true
		}
	}
	return route.tail, route.median, false
}

func (r *Route) whole(e *estimate) class.Whole {
	return class.Whole{Quantile: r.Policy.quantile(), MaxDelay: r.Policy.MaxDelay, Tail: e.tail}
}

// Scaled returns what the latency would be if the request were of the quickest class. Latencies by load
// can be compared only if they do not depend on what requests came.
func (r *Route) Scaled(now, latency time.Duration, c class.ID) time.Duration {
	if c == 0 {
		return latency
	}
	return r.classes.Scaled(now, latency, c, r.whole(r.Estimator.estimate(now, r.Policy.quantile())))
}

// ClassReport describes a class of a route.
type ClassReport struct {
	Name          string // as the caller names it, or "128-255 bytes"
	Samples       int    // in the last 5 to 60 s
	Delay, Median time.Duration
	Merged        bool // reports whether Delay and Median are those of the route
}

// Classes describes the classes of the route, at most 16. It is for reports.
func (r *Route) Classes(now time.Duration) (out []ClassReport) {
	for i := range r.classes.Len() {
		c := class.ID(i + 1)
		_, median, own := r.estimateOf(now, c)
		name, samples := r.classes.Describe(now, c)
		out = append(out, ClassReport{Name: name, Samples: samples, Delay: r.DelayOf(now, c), Median: median, Merged: !own})
	}
	return out
}
