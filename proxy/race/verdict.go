package race

import (
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// judge tells the endpoint what the outcome says about it.
func (a *Attempt) judge(now time.Duration, outcome stats.AttemptOutcome) {
	switch outcome {
	case stats.AttemptBroken, stats.AttemptFailure:
		a.ep.Judge(now, false)
		a.ep.CountErrorStatus(now, now-a.sent, true)
	case stats.AttemptServed:
		if !a.awaits {
			a.ep.Judge(now, true)
		}
		if a.errs {
			a.ep.CountErrorStatus(now, now-a.sent, false)
		}
	case stats.AttemptNone, stats.AttemptUnseen:
	}
}

// report gives the outcome to the endpoint. The latency of a failure is left out: a
// quick failure must not make the endpoint look fast. A stream has no latency.
func (a *Attempt) report(now time.Duration, outcome stats.AttemptOutcome) {
	a.judge(now, outcome)
	if a.kind == streamAttempt {
		a.ep.CloseStream()
		return
	}
	s, latency := a.race.Service, now-a.sent
	a.ep.Ext.(*service.Endpoint).CountEnd(outcome, latency)
	if a.race.Batch { // its latency has the time for which it let others go first
		a.ep.CountBatch(-1)
		latency = 0
	}
	switch outcome {
	case stats.AttemptNone, stats.AttemptBroken:
		a.ep.Drop()
		return
	case stats.AttemptFailure:
		latency = 0
	case stats.AttemptServed:
		if a.errs && latency > 0 {
			latency = a.ep.LatencyOfError(latency)
		}
	case stats.AttemptUnseen:
	}
	a.ep.Finish(now, latency)
	if a.ep.Refuses() {
		a.ep.CountTaken(a.sent)
	}
	s.Responded(now, latency)
	if latency > 0 {
		a.ep.Learn(now, a.race.Policy.Hedging.Scaled(now, latency, a.race.watch.Class), a.found)
	}
	a.recordServiceTime()
}

// brokenBy returns the outcome of an attempt that ended with f, and without a response.
func brokenBy(f *fault.Failure) stats.AttemptOutcome {
	if f.BlamesEndpoint() {
		return stats.AttemptBroken
	}
	return stats.AttemptNone
}

// reportRefusal tells the endpoint that it did no work for a request or stream that was sent to it, and
// ended with f. A sidecar refuses batch requests before others, so that says nothing about its room for
// these.
func reportRefusal(ep *lb.Endpoint, now, sent time.Duration, f *fault.Failure, batch bool) {
	switch {
	case f.Local():
	case f.NoRoom() && !batch:
		ep.CountNoRoom(now, sent)
	default:
		ep.CountNotDone(now, sent)
	}
}

// estimated reports whether the attempt counts for the estimate of latency.
func (a *Attempt) estimated() bool { return a.kind == primaryAttempt && !a.race.Batch }

// recordLate tells the estimate that a primary took longer than it was given, lest it sink.
func (a *Attempt) recordLate() {
	if a.estimated() {
		a.race.Policy.Hedging.Censor(a.race.shard.Loop.Now(), &a.race.watch)
	}
}

// recordWithdrawn notes for how long a hedge had no response before it was withdrawn.
func (a *Attempt) recordWithdrawn() {
	if now := a.race.shard.Loop.Now(); a.kind == hedgeAttempt {
		a.race.Policy.Hedging.Withdrew(now, now-a.sent)
	}
}

// recordOvertaken notes when the response of a hedge came.
func (a *Attempt) recordOvertaken() {
	r, now := a.race, a.race.shard.Loop.Now()
	if a.estimated() && r.hedges > 0 {
		r.overtaken = now
		r.Policy.Hedging.Overtaken(now, now-a.sent)
	}
}

// judgeHedge tells the route how long a hedge took or, if this is the primary, what the hedge saved, once the
// application has done with the attempt.
func (a *Attempt) judgeHedge(now time.Duration) {
	r, saved := a.race, time.Duration(0)
	switch {
	case a.kind == hedgeAttempt:
		r.Policy.Hedging.Responded(now, now-a.sent)
		return
	case r.hedges == r.wasted || !a.estimated():
		return
	case r.overtaken > 0:
		saved = now - r.overtaken
	case a.Lingering(): // its caller has gone, or its time was up
		return
	}
	r.Policy.Hedging.Judge(now, now-a.sent, saved)
}

// judgeLate judges the endpoint once for not responding in time: retry.per_try_timeout and the
// deadline may both pass.
func (a *Attempt) judgeLate(now time.Duration) { a.late = a.late || a.ep.TimedOut(now) }

// recordServiceTime gives the automatic limit the time that the application took, at least.
func (a *Attempt) recordServiceTime() {
	if a.place.HasSlot() {
		a.race.Service.Admission.RecordServiceTime(a.sent)
	}
}
