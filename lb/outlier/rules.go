package outlier

import (
	"cmp"
	"slices"
	"time"
)

// Rules say when endpoints are ejected. The zero value ejects none.
type Rules struct {
	Consecutive int     // failures in a row; 0 means not used
	SuccessRate float64 // lowest allowed success rate; 0 means not used
	Latency     float64 // highest allowed mean latency, as a multiple of the others' median; 0 means not used

	// Base is the duration of the first ejection. Each further ejection lasts twice as long as the one
	// before, up to 64 times Base, unless the endpoint has served in between for as long as it was ejected.
	Base time.Duration

	MaxEjected float64 // share of the set that may be ejected at once
}

// Reason is why an endpoint was ejected: a small number, fit to index an array of counters.
type Reason uint8

// The reasons.
const (
	ByConsecutive Reason = iota
	BySuccessRate
	ByLatency

	Reasons = int(ByLatency) + 1 // number of reasons
)

// String returns the key of the reason's setting.
func (r Reason) String() string {
	return [Reasons]string{"consecutive", "success_rate", "latency"}[r]
}

// Most returns how many of n endpoints may be ejected at once.
func (r *Rules) Most(n int) int {
	const slack = 1e-9 // for shares that are not exact binary fractions
	return int(r.MaxEjected*float64(n) + slack)
}

// Failing reports whether a record, which has just counted a failure, has too many, and by which limit.
func (r *Rules) Failing(of *Record) (why Reason, failing bool) {
	if r.Consecutive > 0 && of.failures >= r.Consecutive {
		return ByConsecutive, true
	}
	good, bad := of.totals()
	return BySuccessRate, good+bad >= float64(model.enough) && good < r.SuccessRate*(good+bad)
}

// Mean is the mean latency of an endpoint over its record.
type Mean struct {
	Index   int // of the endpoint; the caller's
	Latency time.Duration
}

// Slow sorts the means, and returns those that are too long, the longest last.
func (r *Rules) Slow(means []Mean) []Mean {
	slices.SortFunc(means, func(a, b Mean) int { return cmp.Compare(a.Latency, b.Latency) })
	first := len(means)
	if first < 2 {
		return means[first:]
	}
	median := means[(len(means)-2)/2].Latency // of all but the longest
	for first > 1 && float64(means[first-1].Latency) > r.Latency*float64(median) {
		first--
	}
	return means[first:]
}
