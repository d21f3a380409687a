package race

import (
	"time"

	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// learning tells the route, the service and the endpoints how long the attempts of one race took, and what hedges saved.
type learning struct {
	race      *Race
	watch     hedge.Watch   // of the primary
	overtaken time.Duration // when the response of a hedge came, if it came before that of the primary; else 0
	streamed  bool          // a response has become a stream
}

func (l *learning) reset() { l.overtaken, l.streamed = 0, false }

// counts reports whether a counts for the estimate of latency.
func (l *learning) counts(a *Attempt) bool { return a.kind == primaryAttempt && !l.race.Batch }

// onSent has shadow mode observe a primary that starts now.
func (l *learning) onSent(a *Attempt, now time.Duration) {
	if !l.watch.Hedgeable || a.kind != primaryAttempt {
		return
	}
	r, shadow, w := l.race, l.race.Policy.HedgeRoute.Shadow, &l.watch
	w.Left, w.Reset = r.request.Deadline-now, a.visit.endpoint().Resets
	if shadow.Sent(now, w, a.visit.endpoint().ID) {
		shadow.Note(now, w, r.Service.Set.Stalled(now, a.visit.ep) || !a.visit.ep.Spare(now))
	}
}

// onResponse tells the latency of a primary that the race waits for. It also tells whether endpoints were silent together
// for most of that time, so that no hedge would have helped.
func (l *learning) onResponse(a *Attempt, now time.Duration) {
	if l.counts(a) {
		route := l.race.Policy.HedgeRoute
		route.Latencies.Observe(now, now-a.visit.sent, l.watch.Class)
		if l.race.Service.Hedging.Together.Covers(a.visit.sent, now) {
			route.Latencies.Futile(now, now-a.visit.sent)
		}
		if l.watch.Follows() {
			route.Shadow.End(now, &l.watch, false)
		}
	}
}

// onTimeUp is onLate for a primary whose time is up. It also notes whether the endpoints are silent together.
func (l *learning) onTimeUp(a *Attempt, now time.Duration) {
	l.race.Service.NoteSilence(now, a.visit.ep)
	l.onLate(a, now)
}

// onLate tells that a primary took longer than its time, and whether the endpoints were silent together for most of that time.
// Without the primary, the estimate of latency would sink.
func (l *learning) onLate(a *Attempt, now time.Duration) {
	if l.counts(a) {
		route := l.race.Policy.HedgeRoute
		route.Latencies.Censor(now, l.watch.Class)
		if l.race.Service.Hedging.Together.Covers(a.visit.sent, now) {
			route.Latencies.FutileCensor(now)
		}
		if l.watch.Follows() {
			route.Shadow.End(now, &l.watch, true)
		}
	}
}

// onOvertaken notes that a hedge of the primary a has won.
func (l *learning) onOvertaken(a *Attempt, now time.Duration) {
	l.onLate(a, now)
	if l.counts(a) && l.race.hedging.sent > 0 {
		l.overtaken = now
		l.race.Policy.HedgeRoute.Savings.Overtaken(now, now-a.visit.sent)
	}
}

// judges reports whether the hedges of the primary a are judged by what they saved. Those of streams are not: only the
// primaries that were not overtaken would count, as the others are reset.
func (l *learning) judges(a *Attempt) bool {
	return l.race.hedging.sent != l.race.hedging.refused && l.counts(a) && !l.streamed
}

// onWithdrawn tells that a has ended before its response: for how long a hedge had none, or that nobody learns what the
// hedge of a primary has saved.
func (l *learning) onWithdrawn(a *Attempt, now time.Duration) {
	route := l.race.Policy.HedgeRoute
	switch {
	case a.kind == hedgeAttempt:
		route.Latencies.Withdrew(now, now-a.visit.sent)
	case l.overtaken > 0 && l.judges(a):
		route.Savings.Unknown()
	}
}

// onDone tells, once the application has done with a, how long a hedge took, or what the hedges of a primary saved.
func (l *learning) onDone(a *Attempt, now time.Duration) {
	route, saved := l.race.Policy.HedgeRoute, time.Duration(0)
	switch {
	case a.kind == hedgeAttempt:
		route.Latencies.Responded(now, now-a.visit.sent)
		return
	case !l.judges(a):
		return
	case l.overtaken > 0:
		saved = now - l.overtaken
	case a.Lingering(): // its caller has gone, or its time was up
		return
	}
	route.Savings.Judge(now, now-a.visit.sent, saved)
}

// onPresumed is onDone for an attempt that has had no response until about the time at which it would have come, or until the
// deadline. What the hedges of a primary saved is known, and how long a hedge would have taken is not.
func (l *learning) onPresumed(a *Attempt, now time.Duration) {
	if a.kind == hedgeAttempt {
		l.onWithdrawn(a, now)
		return
	}
	l.onDone(a, now)
}

// onServed tells the service, the endpoint and the automatic limit how long the application took for a. A latency of 0 says nothing.
func (l *learning) onServed(a *Attempt, now, latency time.Duration, outcome stats.AttemptOutcome) {
	r := l.race
	if outcome == stats.AttemptClosed {
		r.Service.Took(now, latency)
	} else {
		r.Service.Responded(now, latency)
	}
	if v := &a.visit; latency > 0 {
		v.ep.Learn(now, r.Policy.HedgeRoute.Latencies.Scaled(now, latency, l.watch.Class), v.load)
	}
	if a.place.HasSlot() {
		r.Service.Admission.RecordServiceTime(a.visit.sent)
	}
}

// onSlotDeadline tells the automatic limit that the application has not responded to a in time.
func (l *learning) onSlotDeadline(a *Attempt) {
	if a.place.HasSlot() {
		l.race.Service.Admission.RecordDeadline(a.visit.sent)
	}
}
