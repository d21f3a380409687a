package outlier

import "time"

// Record is the outcomes of an endpoint's attempts in the last 5 to 10 s. The zero value is empty.
type Record struct {
	failures int       // in a row
	halves   [2]counts // the current half of the window, and the previous one
	since    time.Duration
}

type counts struct {
	good, bad uint32
	errored   uint32        // of good, attempts with an error of 4xx
	notDone   uint32        // neither good nor bad: the endpoint did no work
	responses uint32        // with a latency
	latency   time.Duration // sum of these latencies
}

// Expire drops the outcomes that are too old.
func (r *Record) Expire(now time.Duration) { r.half(now) }

// half returns the half of the record that contains now.
func (r *Record) half(now time.Duration) *counts {
	if age := now - r.since; age >= model.half {
		r.halves[1] = r.halves[0]
		if age >= 2*model.half {
			r.halves[1] = counts{}
		}
		r.halves[0], r.since = counts{}, now
	}
	return &r.halves[0]
}

// Count counts an attempt: good if the application responded without a failure of its own, bad if it or the
// connection failed.
func (r *Record) Count(now time.Duration, good bool) {
	half := r.half(now)
	if good {
		half.good++
		r.failures = 0
	} else {
		half.bad++
		r.failures++
	}
}

// CountErrorStatus notes that an attempt which counts as good was an error of 4xx.
func (r *Record) CountErrorStatus(now time.Duration) { r.half(now).errored++ }

// CountNotDone counts an attempt that is neither good nor bad: the endpoint did no work.
func (r *Record) CountNotDone(now time.Duration) { r.half(now).notDone++ }

// CountLatency counts the latency of a response.
func (r *Record) CountLatency(now, latency time.Duration) {
	half := r.half(now)
	half.responses++
	half.latency += latency
}

// Clear forgets all outcomes.
func (r *Record) Clear() { r.failures, r.halves = 0, [2]counts{} }

// Discount returns the cube of the share of good attempts; 1 if no attempt was bad. The share alone only
// makes up for failures that are quick. A failure also costs a retry: if one of three endpoints fails every
// fifth attempt, an equal part of the load takes 6.7% of retries, which a budget of 5% does not cover. By
// the cube it takes 4% (TestFlakyEndpoint of proxy/exchange).
func (r *Record) Discount() float64 {
	good, bad := r.totals()
	if bad == 0 {
		return 1
	}
	rate := (good + model.prior) / (good + bad + model.prior)
	return rate * rate * rate
}

func (r *Record) totals() (good, bad float64) {
	return float64(r.halves[0].good + r.halves[1].good), float64(r.halves[0].bad + r.halves[1].bad)
}

// Streak returns how many attempts failed in a row, and how many of the record were good.
func (r *Record) Streak(now time.Duration) (failed, good int) {
	r.Expire(now)
	recent, _ := r.totals()
	return r.failures, int(recent)
}

// Latencies returns the sum of the latencies of responses, and their number.
func (r *Record) Latencies() (sum time.Duration, n uint32) {
	return r.halves[0].latency + r.halves[1].latency, r.halves[0].responses + r.halves[1].responses
}

// Mean returns the mean latency; false means that there are too few responses.
func (r *Record) Mean() (mean time.Duration, ok bool) {
	sum, n := r.Latencies()
	if n < model.enough {
		return 0, false
	}
	return sum / time.Duration(n), true
}

// Errors returns how many of all attempts were not served: bad, not done, or an error of 4xx.
func (r *Record) Errors() (errors, all float64) {
	for i := range r.halves {
		c := &r.halves[i]
		errors += float64(c.bad + c.errored + c.notDone)
		all += float64(c.good + c.bad + c.notDone)
	}
	return errors, all
}
