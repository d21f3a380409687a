package race

import "time"

// What hedging tells the route of the attempts of one race.

// counts reports whether a counts for the estimate of latency.
func (h *hedging) counts(a *Attempt) bool { return a.kind == primaryAttempt && !h.race.Batch }

// onSent has shadow mode observe a primary that starts now.
func (h *hedging) onSent(a *Attempt, now time.Duration) {
	if !h.watch.Hedgeable || a.kind != primaryAttempt {
		return
	}
	r, shadow, w := h.race, h.race.Policy.HedgeRoute.Shadow, &h.watch
	w.Left = r.request.Deadline - now
	if shadow.Sent(now, w, a.visit.endpoint().ID) {
		shadow.Note(now, w, r.Service.Set.Stalled(now, a.visit.ep) || !a.visit.ep.Spare(now))
	}
}

// onResponse tells the latency of a primary that the race waits for.
func (h *hedging) onResponse(a *Attempt, now time.Duration) {
	if h.counts(a) {
		route := h.race.Policy.HedgeRoute
		route.Latencies.Observe(now, now-a.visit.sent, h.watch.Class)
		if h.watch.Follows() {
			route.Shadow.End(now, &h.watch, false)
		}
	}
}

// onLate tells that a primary took longer than the time that it was given. Without that primary, the estimate of latency
// would sink.
func (h *hedging) onLate(a *Attempt, now time.Duration) {
	if h.counts(a) {
		route := h.race.Policy.HedgeRoute
		route.Latencies.Censor(now, h.watch.Class)
		if h.watch.Follows() {
			route.Shadow.End(now, &h.watch, true)
		}
	}
}

// onOvertaken notes that a hedge of the primary a has won.
func (h *hedging) onOvertaken(a *Attempt, now time.Duration) {
	h.onLate(a, now)
	if h.counts(a) && h.sent > 0 {
		h.overtaken = now
		h.race.Policy.HedgeRoute.Savings.Overtaken(now, now-a.visit.sent)
	}
}

// onWithdrawn tells for how long a hedge had no response before it was withdrawn.
func (h *hedging) onWithdrawn(a *Attempt, now time.Duration) {
	if a.kind == hedgeAttempt {
		h.race.Policy.HedgeRoute.Latencies.Withdrew(now, now-a.visit.sent)
	}
}

// onDone tells, once the application has done with a, how long a hedge took, or what the hedges of a primary saved.
func (h *hedging) onDone(a *Attempt, now time.Duration) {
	route, saved := h.race.Policy.HedgeRoute, time.Duration(0)
	switch {
	case a.kind == hedgeAttempt:
		route.Latencies.Responded(now, now-a.visit.sent)
		return
	case h.sent == h.refused || !h.counts(a):
		return
	case h.streamed: // of streams, only those primaries would be judged that were not overtaken: the others are reset
		return
	case h.overtaken > 0:
		saved = now - h.overtaken
	case a.Lingering(): // its caller has gone, or its time was up
		return
	}
	route.Savings.Judge(now, now-a.visit.sent, saved)
}
