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
		if !a.verdictDue {
			a.ep.Judge(now, true)
		}
		if a.isError {
			a.ep.CountErrorStatus(now, now-a.sent, false)
		}
	case stats.AttemptNone, stats.AttemptUnseen, stats.AttemptClosed:
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
		if a.isError && latency > 0 {
			latency = a.ep.LatencyOfError(latency)
		}
	case stats.AttemptUnseen:
	case stats.AttemptClosed:
		a.ep.Presume(now, latency)
		s.Took(now, latency)
		a.learn(now, latency)
		return
	}
	a.ep.Finish(now, latency)
	if a.ep.Refuses() {
		a.ep.CountTaken(a.sent)
	}
	s.Responded(now, latency)
	a.learn(now, latency)
}

// learn tells the endpoint and the automatic limit how long the application took. A latency of 0 says nothing about the
// endpoint.
func (a *Attempt) learn(now, latency time.Duration) {
	if latency > 0 {
		a.ep.Learn(now, a.race.Policy.HedgeRoute.Scaled(now, latency, a.race.hedging.watch.Class), a.loadBefore)
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

// judgeLate judges the endpoint once for not responding in time: retry.per_try_timeout and the
// deadline may both pass.
func (a *Attempt) judgeLate(now time.Duration) {
	if !a.timedOut {
		a.timedOut = a.ep.TimedOut(now)
	}
}

// recordServiceTime gives the automatic limit the time that the application took, at least.
func (a *Attempt) recordServiceTime() {
	if a.place.HasSlot() {
		a.race.Service.Admission.RecordServiceTime(a.sent)
	}
}
