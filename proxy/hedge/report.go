package hedge

import (
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/class"
)

// ClassReport describes a class of a route.
type ClassReport struct {
	Name          string // as the caller names it, or "128-255 bytes"
	Samples       int    // in the last 5 to 60 s
	Delay, Median time.Duration
	Merged        bool // reports whether Delay and Median are those of the route
}

// Classes describes the classes of the route, at most 16. It is for reports.
func (r *Route) Classes(now time.Duration) (out []ClassReport) {
	for i := range r.Latencies.classes.Len() {
		c := class.ID(i + 1)
		_, median, own := r.Latencies.estimateOf(now, c)
		name, samples := r.Latencies.classes.Describe(now, c)
		out = append(out, ClassReport{Name: name, Samples: samples, Delay: r.Delays.Of(now, c), Median: median, Merged: !own})
	}
	return out
}

// Effect returns what hedges do. It returns nil unless the mode is On. It is for reports.
func (r *Route) Effect(now time.Duration) *Effect {
	if r.Policy.Mode != On {
		return nil
	}
	primaries, c := r.Latencies.Primaries.Distribution(now), &r.Counts
	e := &Effect{
		Mode: On, Without: primaries, With: primaries,
		Hedges: c.Hedges - c.HedgesMissed, Requests: c.Primaries, OneIn: r.Savings.worth.OneIn(),
	}
	if o := r.Savings.overtaken; o != nil {
		e.Without.Uncensor(o.lost.Distribution(now, longHalf))
		e.With.Uncensor(o.won.Distribution(now, longHalf))
	}
	return e
}
