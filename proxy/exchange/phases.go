package exchange

import (
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// The life of a request is this list of phases. The functions below have the same order. Each phase on the way
// in may end the request with a response or a failure: the way out follows.
//
//	way in   Begin   refuse    rate limits and rules of listener and route, the time left, what the session found: Checks
//	                 answer    the route has a response, or a filter has one without the service: EarlyFilter
//	                 admit     the bounds of process and service
//	                 deadline  the caller's own or the route's timeout, the sooner of both
//	         Resume  filters   those of the route in turn: Filter; each may hold the request
//	                 race      attempts at the endpoints of the service: package race
//	way out          outcome   filters that have seen the request, the last one first: OutcomeFilter
//	         end     record    counters, access line, span; the verdict for the breaker
//	                 response  to the caller, which has encoded it before
//
// A caller that has gone calls Cancel: nothing but the record follows. end.go has all ends.

// Begin starts on a complete request that came in at l. r is nil if it has no route.
// The exchange may be over before Begin returns.
func (ex *Exchange) Begin(r *Route, l *Listener) {
	ex.start(l)
	f := ex.Checks(l).message(r, ex.began)
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

// start counts the request, and begins its span.
func (ex *Exchange) start(l *Listener) {
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

// answerEarly reports whether the route has answered the request, or a filter that asks no service. Without an
// answer, f may be why the request goes no further.
func (ex *Exchange) answerEarly(r *Route) (answered bool, f *fault.Failure) {
	if r.Answer != nil {
		r.respond(ex)
		return true, nil
	}
	ex.Route = r
	ex.session.takePin(ex, r.Service) // the filter sees what the application sees
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
	if ex.refused != nil {
		return ex.refused
	}
	s := r.Service
	if ex.overShare() {
		return fault.Overloaded
	}
	if ex.batch && ex.shard.Process.RefusesBatch(ex.Held) {
		return fault.Overloaded
	}
	if f = s.Bounds.Pass(&ex.passage, ex.began, ex.batch, ex); f != nil {
		return f
	}
	ex.Request.Alone = ex.passage.Alone
	ex.service = s
	s.Arrived(ex.began, ex.size())
	if s.Sessions != nil {
		ex.session.join(ex, s)
	}
	ex.Request.Service = s.Shared.Wire
	ex.Request.Idempotent = r.mayRepeat(&ex.Request)
	return nil
}

// setDeadline arms the deadline: the caller's own or the route's timeout, the sooner of both.
func (ex *Exchange) setDeadline() {
	left := ex.TimeLeft(ex.Route, ex.began)
	ex.Request.Deadline = ex.began + left
	ex.shard.Loop.After(left, &ex.deadline)
}

// Resume passes the request to the filters that have not seen it. If none holds it, its first attempt follows, and
// later its hedges. Begin calls Resume, and so does each filter that has held the request.
func (ex *Exchange) Resume() {
	if !ex.walk.enter(ex) {
		return
	}
	ex.race.Entry = race.Entry{
		Service: ex.service, Policy: &ex.Route.Policy, Key: ex.session.key, Pin: ex.session.pin, Bytes: ex.size(),
		CallerAttempt: ex.Request.Attempt, CallerHedged: ex.Request.Hedge, Tied: ex.Request.Tied,
		Batch: ex.batch, NoHedge: ex.NoHedge, Class: ex.ClassName,
		Keyed: ex.Route.consent.keyed(&ex.Request), Hold: ex.Request.Hold,
	}
	ex.race.Start(ex.shard.Loop.Now())
}

// answerWith is the way out of a request that has a response: res, of the attempt by. by is nil for an answer of the
// route or of a filter.
func (ex *Exchange) answerWith(by *race.Attempt, res *race.Response) {
	if ex.Route.outcomes != nil {
		failed := res.Failed()
		if res = ex.walk.response(ex, res); res == nil {
			return // ex may be over
		}
		if failed && !res.Failed() { // a stored response is in its place
			by = nil
		}
	}
	if ex.session.sessions != nil {
		res.Headers = ex.session.cookies(ex, by).Apply(res.Headers)
	}
	ex.walk.end(ex) // before Encode: the text waits in memory of the loop, which a filter that cancels a copy may overwrite
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
		ex.race.CountWin(by, status)
	}
	ex.end(exchangeAnswered, &result{outcome: stats.OutcomeOf(status), verdict: fault.VerdictOf(status), by: by, res: res})
}

// fail is the way out of a request that has no response.
func (ex *Exchange) fail(f *fault.Failure) {
	if ex.Route != nil && ex.Route.outcomes != nil && ex.walk.failure(ex, f) {
		return // ex may be over
	}
	if !ex.copied {
		ex.reportFailure(f)
	}
	ex.end(exchangeAnswered, &result{outcome: stats.OutcomeFailed, verdict: ex.verdictOf(f), failure: f})
}
