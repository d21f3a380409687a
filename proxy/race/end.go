package race

import (
	"time"

	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// An attempt ends once, by end. These lead there, and what follows:
//
//	from      end             after                          follows
//	carrier   Respond         a response of the endpoint     the race wins, waits or retries: onResponse
//	          RespondLocally  one of the upstream's own      likewise
//	          Fail            no response                    the race waits, retries or fails: onFailure
//	          Finish          the attempt was cancelled      Owner.Lingered
//	          Presume         likewise, and disconnected     Owner.Lingered
//	race      timeOut         retry.per_try_timeout          onFailure
//	          cancel          the race is over
//	          abort           the deadline, memory is short, or the connection of the caller closes
//	stream    streamRace.stop the end of the stream, at any time
//
// timeOut and cancel let an attempt linger whose endpoint may still work on it: its end comes later, from its carrier
// or by abort. If a carrier ends an attempt that lingers, Owner.Lingered follows in any case.

// end is the only way to idle. It gives back, in this order:
//
//   - the visit of the endpoint, with the outcome (visit.end);
//   - the span;
//   - the place in InFlight, and that of a hedge among the hedges of the service;
//   - the slot of the service, which a queued attempt gets at the end of the turn.
//
// It reports whether the attempt lingered: then the race does not await what came of it.
func (a *Attempt) end(now time.Duration, outcome stats.AttemptOutcome) (lingered bool) {
	lingered = a.Lingering()
	a.state.become(attemptIdle)
	if a.visit.ep != nil {
		if latency, done := a.visit.end(now, outcome); done {
			a.race.learning.onServed(a, now, latency, outcome)
		}
	}
	r := a.race
	r.Traced.end(a, now)
	r.inFlight--
	if a.kind == hedgeAttempt {
		r.Service.Hedging.Done()
	}
	r.Service.Admission.GiveBack(&a.place)
	return lingered
}

// Respond ends the attempt with the endpoint's complete response. It owns res.
func (a *Attempt) Respond(res *Response) {
	r := a.race
	now, outcome := r.shard.Loop.Now(), stats.AttemptServed
	a.visit.endpoint().CountResponse(res.Size())
	r.Service.NoteSilence(now, a.visit.ep)
	switch {
	case a.Lingering():
	case res.Source != nil:
		r.holding.onStream(a, res.Source, now)
	default:
		r.learning.onResponse(a, now)
	}
	if len(res.Trailers) > 0 || len(res.Body) == 0 || res.Status != 200 {
		a.visit.verdictDue = res.ReadGRPC(r.request)
		a.visit.endpoint().ReadLoad(now, res.Trailers)
	}
	a.visit.isError = res.Outcome() >= 400
	switch {
	case !res.Failed():
		r.learning.onDone(a, now)
	case a.Lingering():
		outcome = stats.AttemptFailure
		r.learning.onWithdrawn(a, now)
	default:
		outcome = stats.AttemptFailure
	}
	if a.end(now, outcome) {
		res.Release()
		r.owner.Lingered(Responded)
		return
	}
	r.onResponse(a, res)
}

// RespondLocally ends the attempt with a response of the upstream's own, which says
// nothing about the endpoint. It owns res.
func (a *Attempt) RespondLocally(res *Response) {
	r := a.race
	if a.end(r.shard.Loop.Now(), stats.AttemptNone) {
		res.Release()
		r.owner.Lingered(Withdrawn)
		return
	}
	r.onResponse(a, res)
}

// Fail ends the attempt without a response.
func (a *Attempt) Fail(f *fault.Failure) {
	r := a.race
	outcome := brokenBy(f)
	if a.replayed && f.Free() {
		f = fault.Reset // the first time it was sent, the application may have seen it
	}
	seen := a.mayHaveBeenSeen(f)
	if seen {
		r.MaybeProcessed = true
	}
	r.Traced.span(a).Note(spanOutcome(f), 0, f.Code)
	now := r.shard.Loop.Now()
	if a.visit.ep != nil && outcome == stats.AttemptNone {
		a.visit.refused(now, f)
	}
	lingered := a.end(now, outcome)
	switch {
	case a.kind == hedgeAttempt && !seen:
		r.hedging.onRefused(now, f)
	case lingered:
		r.learning.onWithdrawn(a, now)
	}
	if lingered {
		r.owner.Lingered(Withdrawn)
		return
	}
	if f != fault.NoSlot {
		r.avoid[0] = a.visit.ep
	}
	r.onFailure(a, f)
}

// mayHaveBeenSeen reports whether an application may have seen the attempt, which has failed with f.
func (a *Attempt) mayHaveBeenSeen(f *fault.Failure) bool {
	if f == fault.NoSlot || f == fault.NoRoute || f == fault.RequestTooLarge {
		return false // the other sidecar sent it to no application
	}
	class := a.race.Policy.classOf(f)
	return class == fault.RetryIfIdempotent || class == fault.RetryNever && a.visit.ep != nil
}

// Finish ends a cancelled attempt. processed reports whether the application finished it.
func (a *Attempt) Finish(processed bool) {
	now, outcome, how := a.race.shard.Loop.Now(), stats.AttemptNone, Withdrawn
	if processed {
		outcome, how = stats.AttemptUnseen, Responded
		a.race.Service.NoteSilence(now, a.visit.ep)
		a.race.learning.onDone(a, now)
	} else {
		a.race.learning.onWithdrawn(a, now)
	}
	a.end(now, outcome)
	a.race.owner.Lingered(how)
}

// Presume ends a cancelled attempt whose connection was closed, here or by the sidecar beside the application. It comes when
// the application would have responded, or at the other sidecar's deadline.
func (a *Attempt) Presume() {
	now := a.race.shard.Loop.Now()
	a.race.learning.onPresumed(a, now)
	a.end(now, stats.AttemptClosed)
	a.race.owner.Lingered(Presumed)
}

// timeOut ends the wait for the attempt. It lingers like a cancelled one: an endpoint that is
// frozen must not look idle. The race may be over afterwards.
func (a *Attempt) timeOut(now time.Duration) {
	r := a.race
	r.learning.onTimeUp(a, now)
	a.judgeLate(now)
	r.Traced.span(a).Note(trace.Failed, 0, fault.TryTimeout.Code)
	if a.carrier.Cancel(a) {
		r.MaybeProcessed = true
		a.state.become(attemptLingering)
	} else {
		a.end(now, stats.AttemptNone)
	}
	r.avoid[0] = a.visit.ep
	r.onFailure(a, fault.TryTimeout)
}

// cancel ends the attempt, or lets it linger, if it is in flight. decided reports whether the race has an
// outcome.
func (a *Attempt) cancel(decided bool) {
	r, now := a.race, a.race.shard.Loop.Now()
	switch a.state {
	case attemptIdle, attemptLingering:
		return
	case attemptLaunched, attemptQueued, attemptAsking:
		a.withdraw()
	case attemptSent:
		if decided {
			r.learning.onOvertaken(a, now)
		}
		r.Traced.span(a).Withdraw(now)
		a.overtaken = decided
		if a.carrier.Cancel(a) {
			a.state.become(attemptLingering)
			return
		}
		r.learning.onWithdrawn(a, now)
	}
	a.end(now, stats.AttemptNone)
}

// abort ends the attempt at once because of f. Only fault.Deadline says that the application is slow.
func (a *Attempt) abort(f *fault.Failure) {
	r, now := a.race, a.race.shard.Loop.Now()
	switch a.state {
	case attemptIdle:
		return
	case attemptLaunched, attemptQueued, attemptAsking:
		a.withdraw()
	case attemptSent:
		if f == fault.Deadline {
			r.learning.onTimeUp(a, now)
			r.learning.onSlotDeadline(a)
		}
		r.learning.onWithdrawn(a, now)
		r.MaybeProcessed = true
		a.judgeLate(now)
		r.Traced.span(a).Note(spanOutcome(f), 0, f.Code)
		a.carrier.Abort(a)
	case attemptLingering:
		if f == fault.Deadline {
			r.learning.onPresumed(a, now)
			r.learning.onSlotDeadline(a)
		} else {
			r.learning.onWithdrawn(a, now)
		}
		a.judgeLate(now)
		a.carrier.Abort(a)
	}
	a.end(now, stats.AttemptNone)
}

// judgeLate judges the endpoint of an attempt whose time is up. Later attempts don't take the connection to one that has been silent.
func (a *Attempt) judgeLate(now time.Duration) {
	if a.visit.judgeLate(now) {
		if c, ok := a.carrier.(Renewer); ok {
			c.Renew()
		}
	}
}
