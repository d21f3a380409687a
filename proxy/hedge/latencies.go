package hedge

import (
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/class"
	"github.com/remora-proxy/remora/proxy/hedge/histogram"
)

// Latencies measures how long the attempts of a route take, on one loop: first attempts, all and by class, and hedges.
type Latencies struct {
	Primaries Estimator

	policy  *Policy
	classes class.Set
	hedges  *hedgeLatencies // nil until a hedge has ended
}

// hedgeLatencies are hedges of late requests: when they responded, and when they were withdrawn.
type hedgeLatencies struct{ took, cutOff histogram.Window }

func (l *Latencies) init(p *Policy) {
	l.policy, l.classes.Disabled = p, p.OneClass
}

// inherit takes what was learned of first attempts with the route's last configuration.
func (l *Latencies) inherit(last *Latencies) {
	l.Primaries = last.Primaries.clone()
	l.classes.Inherit(&last.classes, l.policy.quantile() != last.policy.quantile())
}

// ClassOf returns the class of a request with a body of size bytes. name is the class that the caller
// of the request names, or empty.
func (l *Latencies) ClassOf(now time.Duration, name []byte, size int) class.ID {
	return l.classes.Of(now, name, size)
}

// Observe records the response to a primary of class c, as Estimator.Observe does.
func (l *Latencies) Observe(now, latency time.Duration, c class.ID) {
	l.Primaries.Observe(now, latency)
	if c != 0 {
		l.classes.Observe(now, latency, c)
	}
}

// Futile records that no hedge would have helped a primary with this latency, since the endpoints were silent together.
// Observe records that primary too.
func (l *Latencies) Futile(now, latency time.Duration) { l.Primaries.Futile(now, latency) }

// FutileCensor records that no hedge would have helped a primary that was given up, as the endpoints were silent together.
// Censor records that primary too.
func (l *Latencies) FutileCensor(now time.Duration) { l.Primaries.FutileCensor(now) }

// Censor records a primary of class c that was given up before its response, as Estimator.Censor does.
func (l *Latencies) Censor(now time.Duration, c class.ID) {
	l.Primaries.Censor(now)
	if c != 0 {
		l.classes.Censor(now, c)
	}
}

// Responded records the latency of a hedge.
func (l *Latencies) Responded(now, took time.Duration) { l.ofHedges().took.At(now, longHalf).Add(took) }

// Withdrew records a hedge that was withdrawn after a time, and would have taken longer.
func (l *Latencies) Withdrew(now, after time.Duration) {
	l.ofHedges().cutOff.At(now, longHalf).Add(after)
}

func (l *Latencies) ofHedges() *hedgeLatencies {
	if l.hedges == nil {
		l.hedges = new(hedgeLatencies)
	}
	return l.hedges
}

// Scaled returns what the latency would be if the request were of the quickest class. Latencies by load
// can be compared only if they do not depend on what requests came.
func (l *Latencies) Scaled(now, latency time.Duration, c class.ID) time.Duration {
	if c == 0 {
		return latency
	}
	return l.classes.Scaled(now, latency, c, l.whole(l.estimate(now)))
}

// slower returns how many times as long as one of the quickest class a request of class c takes.
func (l *Latencies) slower(now time.Duration, c class.ID) float64 {
	if c == 0 {
		return 1
	}
	return l.classes.Slower(now, c, l.whole(l.estimate(now)))
}

// estimate returns the estimate of all classes together.
func (l *Latencies) estimate(now time.Duration) *estimate {
	return l.Primaries.estimate(now, l.policy.quantile())
}

// estimateOf returns the late latency, without bounds, and the median of class c; 0 means unknown. own reports
// whether they are not those of the route.
func (l *Latencies) estimateOf(now time.Duration, c class.ID) (tail, median time.Duration, own bool) {
	route := l.estimate(now)
	if c > 0 {
		if tail, median, own = l.classes.Estimate(now, c, l.whole(route)); own {
			return tail, median, true
		}
	}
	return route.tail, route.median, false
}

func (l *Latencies) whole(e *estimate) class.Whole {
	return class.Whole{Quantile: l.policy.quantile(), MaxDelay: l.policy.MaxDelay, Tail: e.tail}
}
