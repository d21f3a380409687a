package outlier

import "time"

// Ejection is whether an endpoint is ejected, and for how long:
//
//	serving ── Begin ──▶ ejected ── time over ──▶ due for a probe ── End ──▶ serving
//	                        ▲                            │
//	                        └────────── Extend ──────────┘
//
// The zero value is serving.
type Ejection struct {
	ejected   bool
	reason    Reason
	until     time.Duration // when a probe is due
	term      time.Duration // duration of the last ejection
	doublings int           // of the next one
	returned  time.Duration
	count     uint64
}

// Begin ejects the endpoint. base is that of the Rules.
func (x *Ejection) Begin(now, base time.Duration, why Reason) {
	if now-x.returned >= x.term {
		x.doublings = 0
	}
	x.ejected, x.reason = true, why
	x.Extend(now, base)
}

// Extend ejects an ejected endpoint again, whose probe was bad.
func (x *Ejection) Extend(now, base time.Duration) {
	x.count++
	x.term = base << x.doublings
	x.doublings = min(x.doublings+1, model.doublings)
	x.until = now + x.term
}

// End ends the ejection after a good probe.
func (x *Ejection) End(now time.Duration) { x.ejected, x.returned = false, now }

// Cancel ends the ejection because too many endpoints are ejected.
func (x *Ejection) Cancel() { x.ejected = false }

// Ejected reports whether the endpoint is ejected, until it has served a probe, and why.
func (x *Ejection) Ejected() (why Reason, ejected bool) { return x.reason, x.ejected }

// Count returns how often the endpoint was ejected.
func (x *Ejection) Count() uint64 { return x.count }

// Over reports whether the time of the ejection is over. Before, outcomes are of attempts that started before
// the ejection.
func (x *Ejection) Over(now time.Duration) bool { return now >= x.until }

// ProbeDue reports whether an ejected endpoint, whose last attempt started at started, may get a request: one
// after the ejection time, and one more after each further ejection time without an outcome.
func (x *Ejection) ProbeDue(now, started time.Duration) bool {
	return x.ejected && now >= x.until && (started < x.until || now-started >= x.term)
}
