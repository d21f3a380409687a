package exchange

import (
	"time"

	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// The life of a request is this list of phases. The functions below have the same order. Each phase on the way
// in may end the request with a response or a failure: the way out follows.
//
//	way in   Begin   refuse    rate limits and rules of listener and route, the time left, what the session found
//	                 answer    the route has a response, or a filter has one without the service: EarlyFilter
//	                 admit     the bounds of process and service
//	                 deadline  the caller's own or the route's timeout, the sooner of both
//	         Resume  filters   those of the route in turn: Filter; each may hold the request
//	                 race      attempts at the endpoints of the service: package race
//	way out          outcome   filters that have seen the request, the last one first: OutcomeFilter
//	         close   record    counters, access line, span; the verdict for the breaker
//	                 response  to the caller, which has encoded it before
//
// A caller that has gone calls Cancel: nothing but the record follows. The exchange is recycled when the last
// attempt is over.

// Begin starts on a complete request that came in at l. r is nil if it has no route.
// The exchange may be over before Begin returns.
func (ex *Exchange) Begin(r *Route, l *Listener) {
	ex.open(l)
	f := ex.refuse(r, l, ex.began)
	if f == nil && (r.Answer != nil || r.early != nil) {
		var answered bool
		if answered, f = ex.answerEarly(r); answered {
			return
		}
	}
	if f == nil {
		f = ex.admit(r)
	}
	if f != nil {
		ex.fail(f)
		return
	}
	ex.setDeadline()
	ex.Resume()
}

// open counts the request, and begins its span.
func (ex *Exchange) open(l *Listener) {
	w := ex.shard
	ex.began = w.Loop.Now()
	ex.state.become(exchangeOpen)
	if ex.copied = l.copies; ex.copied {
		return
	}
	w.Stats.Requests++
	w.Milliseconds.Now(ex.began).CountRequest(ex.size())
	if w.Sampler.On {
		ex.sample(l)
	}
}

// refuse returns why the request goes no further, before any service is asked.
func (ex *Exchange) refuse(r *Route, l *Listener, now time.Duration) *fault.Failure {
	switch {
	case l.Rate != nil && !ex.headChecked && Limited(l.Rate, now, ex.caller, &ex.Request):
		return fault.RateLimited
	case ex.Refusal != nil:
		return ex.Refusal
	case l.Ruled(r) && !ex.headChecked && ex.Forbidden(r, l):
		return fault.NotAllowed
	case r == nil:
		return fault.NoRoute
	case ex.TimeLeft(r, now) <= 0:
		return fault.Deadline
	case r.Rate != nil && !ex.headChecked && Limited(r.Rate, now, ex.caller, &ex.Request):
		return fault.RateLimited
	}
	return nil
}

// answerEarly reports whether the route has answered the request, or a filter that asks no service. Without an
// answer, f may be why the request goes no further.
func (ex *Exchange) answerEarly(r *Route) (answered bool, f *fault.Failure) {
	if r.Answer != nil {
		r.respond(ex)
		return true, nil
	}
	ex.Route = r
	ex.takePin(r.Service) // the filter sees what the application sees
	if ex.overShare() {
		return false, fault.Overloaded
	}
	return r.early.Early(ex), nil
}

// admit applies the limits of the process and of the route's service.
func (ex *Exchange) admit(r *Route) (f *fault.Failure) {
	ex.Route = r
	if r.batch {
		ex.Request.Batch = true
	}
	ex.batch = ex.Request.Batch
	if ex.declined != nil {
		return ex.declined
	}
	s := r.Service
	if ex.overShare() {
		return fault.Overloaded
	}
	if ex.batch && ex.shard.Process.RefusesBatch(ex.Held) {
		return fault.Overloaded
	}
	if f = s.Pass(&ex.passage, ex.began, ex.batch, ex); f != nil {
		return f
	}
	ex.Request.Alone = ex.passage.Alone
	ex.service = s
	s.Arrived(ex.began, ex.size())
	if s.Sessions != nil {
		ex.join(s)
	}
	ex.Request.Service = s.WireName()
	ex.Request.Idempotent = r.mayRepeat(&ex.Request)
	return nil
}

// setDeadline arms the deadline: the caller's own or the route's timeout, the sooner of both.
func (ex *Exchange) setDeadline() {
	left := ex.TimeLeft(ex.Route, ex.began)
	ex.Request.Deadline = ex.began + left
	ex.shard.Loop.After(left, &ex.deadline)
}

// Resume passes the request to the filters that have not seen it. If none holds it, its first
// attempt follows, and later its hedges. A filter that has held the request calls Resume.
func (ex *Exchange) Resume() {
	for all := ex.Route.filters; int(ex.outcome.filtered) < len(all); {
		f := all[ex.outcome.filtered]
		ex.outcome.filtered++
		if f.Request(ex) != Continue {
			return // ex may be over
		}
	}
	e := &ex.race.Entry
	e.Service, e.Policy, e.Key, e.Pin, e.Bytes = ex.service, &ex.Route.Policy, ex.key, ex.pin, ex.size()
	e.Attempt, e.Hedged, e.Batch, e.NoHedge, e.Class = ex.Request.Attempt, ex.Request.Hedge, ex.batch, ex.NoHedge, ex.ClassName
	e.Keyed = ex.Route.consent.keyed(&ex.Request)
	ex.race.Start(ex.shard.Loop.Now())
}

// answerWith is the way out of a request that has a response: res, of the attempt by. by is nil for an answer of the
// route.
func (ex *Exchange) answerWith(by *race.Attempt, res *race.Response) {
	if ex.Route.outcomes != nil {
		if res = ex.passResponse(res); res == nil {
			return // ex may be over
		}
	}
	if ex.sessions != nil {
		res.Headers = ex.cookies(by).Apply(res.Headers)
	}
	if f := ex.caller.Encode(ex, res); f != nil {
		res.Release()
		ex.fail(f)
		return
	}
	if res.Source != nil {
		res.Source.Stream.Follow(ClientOf(ex.caller), &ex.passage)
	}
	status := res.Outcome()
	if by != nil {
		by.Won(status)
	}
	ex.close(&result{outcome: stats.OutcomeOf(status), by: by, res: res}, fault.VerdictOf(status))
}

// fail is the way out of a request that has no response.
func (ex *Exchange) fail(f *fault.Failure) {
	if ex.Route != nil && ex.Route.outcomes != nil && ex.passFailure(f) {
		return // ex may be over
	}
	if !ex.copied {
		ex.reportFailure(f)
	}
	ex.close(&result{outcome: stats.OutcomeFailed, failure: f}, ex.verdictOf(f))
}

// close records the result, gives it to the caller, and cancels the attempts in flight. The place in max_pending
// is free before: the caller's next request may begin in the same callback.
func (ex *Exchange) close(c *result, v fault.Verdict) {
	ex.leaveOpen(exchangeAnswered)
	ex.conclude(c)
	ex.judge(v)
	ex.releasePending()
	if c.res != nil {
		ex.caller.Respond(ex, c.res)
	} else {
		ex.caller.Fail(ex, c.failure)
	}
	ex.finish(true)
	ex.recycleIfDone()
}

// Cancel is called by the session when its peer has gone or withdraws the request. It
// reports whether attempts are left at the application; then Caller.Finished follows.
func (ex *Exchange) Cancel() (left bool) {
	ex.leaveOpen(exchangeCancelled)
	ex.conclude(&result{outcome: stats.OutcomeCancelled})
	ex.judge(fault.VerdictNone)
	ex.finish(false)
	if left = ex.race.InFlight() > 0; !left {
		ex.caller = nil
		ex.recycleIfDone()
	}
	return left
}

// onDeadline aborts what is left: for a caller that waits, or for losers alone.
func (ex *Exchange) onDeadline() {
	ex.race.Abort()
	if ex.state != exchangeOpen {
		ex.recycleIfDone()
		return
	}
	if by, res := ex.race.TakeBest(); res != nil {
		ex.answerWith(by, res)
		return
	}
	ex.fail(fault.Deadline)
}

// leaveOpen ends the wait of the caller, which gets exactly one response.
func (ex *Exchange) leaveOpen(next exchangeState) {
	ex.state.become(next)
	ex.race.Stop()
	if ex.outcome.filtered > 0 {
		ex.endFilters()
	}
}

// judge gives the outcome of the request to the breaker of its service.
func (ex *Exchange) judge(v fault.Verdict) {
	ex.passage.Judge(ex.shard.Loop.Now(), v)
}

// releasePending frees the exchange's place in max_pending once no attempt is in flight.
func (ex *Exchange) releasePending() {
	if ex.race.InFlight() == 0 {
		ex.passage.Done()
	}
}

// finish cancels the attempts in flight, and gives back the memory of the request. decided reports whether
// the caller has a response or a failure; else it has gone.
func (ex *Exchange) finish(decided bool) {
	ex.race.Cancel(decided)
	ex.releaseRequest()
}

// recycleIfDone recycles the exchange when nothing refers to it any more.
func (ex *Exchange) recycleIfDone() {
	if ex.race.InFlight() > 0 || ex.state == exchangeOpen {
		return
	}
	if ex.deadline.Armed() {
		ex.shard.Loop.Stop(&ex.deadline)
	}
	ex.releasePending()
	if ex.state == exchangeCancelled && ex.caller != nil {
		ex.caller.Finished(ex)
	}
	ex.exportTrace()
	ex.state.become(exchangeIdle)
	ex.pool.reuse(ex)
}
