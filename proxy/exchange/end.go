package exchange

import (
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// An exchange ends in two steps, end and recycle. Both happen in one callback, unless an attempt lingers at an
// application.
//
// The caller waits no longer after end, which all these ways pass:
//
//	response  of an attempt, a filter or the route, as answerWith passes it on. If its body is a stream, the
//	          race.Stream of the body goes with it: the caller hands it to a goroutine, or parks it
//	failure   the request is refused, the race is lost, the deadline has passed, memory is short, or the caller
//	          can't have the response: fail
//	gone      the caller has gone, or withdraws the request: Cancel
//
// A filter that holds a request, a response or a failure (Wait) puts the end off. An exchange that never begins, such as
// one whose request leaves the loop as a stream, takes neither step: Pool.Recycle.

// end ends the wait of the caller. It gives back, in this order:
//
//   - the timers of the race, so that no attempt begins;
//   - the filters, which forget ex; before a response was encoded they have done so;
//   - after the record, the verdict that the breaker waits for;
//   - the place in max_pending, if no attempt is in flight, since the caller's next request may begin in the next step;
//   - the response or failure, to a caller that has not gone;
//   - the attempts in flight, which end or linger without the request;
//   - the memory of the request.
//
// It reports whether attempts are left.
func (ex *Exchange) end(next exchangeState, r *result) (left bool) {
	ex.state.become(next)
	ex.race.Stop()
	ex.walk.end(ex)
	r.record(ex)
	ex.judge(r.verdict)
	if ex.race.InFlight() == 0 {
		ex.passage.End()
	}
	switch {
	case r.res != nil:
		ex.caller.Respond(ex, r.res)
	case r.failure != nil:
		ex.caller.Fail(ex, r.failure)
	}
	ex.race.Cancel(next == exchangeAnswered)
	ex.releaseRequest()
	if left = ex.race.InFlight() > 0; !left {
		ex.recycle()
	}
	return left
}

// onAttemptOver recycles an exchange that has ended, once no attempt is in flight. The last one has ended as how says.
func (ex *Exchange) onAttemptOver(how race.Ended) {
	if ex.race.InFlight() > 0 || ex.state == exchangeOpen {
		return
	}
	ex.passage.End()
	if ex.state == exchangeCancelled {
		ex.caller.Finished(ex, how)
	}
	ex.recycle()
}

// recycle gives back the timer of the deadline, the place in max_pending, the span, and ex itself.
func (ex *Exchange) recycle() {
	if ex.deadline.Armed() {
		ex.shard.Loop.Stop(&ex.deadline)
	}
	ex.passage.End()
	ex.exportTrace()
	ex.state.become(exchangeIdle)
	ex.pool.reuse(ex)
}

// Cancel is called by the session when its peer has gone or withdraws the request. It
// reports whether attempts are left at the application; then Caller.Finished follows.
func (ex *Exchange) Cancel() (left bool) {
	return ex.end(exchangeCancelled, &result{outcome: stats.OutcomeCancelled})
}

// onDeadline aborts all attempts, whether the caller still waits or not.
func (ex *Exchange) onDeadline() {
	ex.race.Abort(fault.Deadline)
	if ex.state != exchangeOpen {
		ex.onAttemptOver(race.Presumed)
		return
	}
	ex.race.Conclude(fault.Deadline)
}

// AbandonNow aborts the attempts of a cancelled exchange, before their time is up.
func (ex *Exchange) AbandonNow() {
	if ex.state == exchangeCancelled {
		ex.race.Abort(fault.Shed)
		ex.onAttemptOver(race.Withdrawn)
	}
}

// Shed abandons the exchange because memory is short.
func (ex *Exchange) Shed() {
	if ex.state != exchangeOpen {
		ex.AbandonNow()
		return
	}
	ex.race.Abort(fault.Shed)
	ex.walk.skip(ex) // no filter may keep it
	ex.fail(fault.Shed)
}
