package exchange

import (
	"math"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// never is a time that does not come.
const never = time.Duration(math.MaxInt64)

// onResponse handles the response of a. The first good one wins. A bad one wins only if no better
// one can come: one that says that the application has failed, or has a gRPC code of retry.on.
func (ex *Exchange) onResponse(a *Attempt, res *Response) {
	if !res.Failed() && !(res.grpc && ex.Route.retryOn.hasCode(res.code)) {
		ex.answerWith(a, res)
		return
	}
	if res.grpc {
		ex.holdBack(res)
	}
	ex.avoid[0] = a.ep
	ex.keepBest(a, res)
	if !ex.waiting() && !ex.retryFailed() && !ex.retryBad() {
		ex.answerWith(ex.bestFrom, ex.takeBest())
	}
}

// retryFailed starts a retry if the latest attempt that failed since the last retry allows it.
func (ex *Exchange) retryFailed() bool {
	f := ex.lastFail
	if f == nil || ex.launched == maxAttempts || !ex.mayFollow() || !ex.mayRetry(f) {
		return false
	}
	ex.lastFail = nil
	ex.launchRetry()
	return true
}

// retryBad starts a retry if retry.on names the status of the best response so far.
func (ex *Exchange) retryBad() bool {
	if ex.best == nil || !ex.Request.Idempotent || !ex.Route.retryOn.hasResponse(ex.best) || !ex.mayFollow() || !ex.mayPay(nil) {
		return false
	}
	ex.retries++
	ex.lastFail = nil
	ex.launchRetry()
	return true
}

// holdBack heeds what a gRPC server says of further attempts.
func (ex *Exchange) holdBack(res *Response) {
	switch wait, ok := protocol.GRPCPushback(&res.Response); {
	case !ok:
	case wait < 0:
		ex.notBefore = never
	default:
		ex.notBefore = max(ex.notBefore, ex.shard.Loop.Now()+wait)
	}
}

// mayFollow reports whether another attempt may begin before the deadline.
func (ex *Exchange) mayFollow() bool { return ex.notBefore < ex.Request.Deadline }

// launchRetry starts a retry, now or as soon as it may follow.
func (ex *Exchange) launchRetry() {
	if wait := ex.notBefore - ex.shard.Loop.Now(); wait > 0 {
		ex.shard.Loop.After(wait, &ex.retry)
		return
	}
	ex.launch(retryAttempt, nil)
}

// onFailure handles an attempt without a response: it waits for other attempts, or retries if
// that is safe and allowed, or gives the caller the best bad response or the failure.
func (ex *Exchange) onFailure(a *Attempt, f *fault.Failure) {
	if a.kind == hedgeAttempt && ex.lastFail != nil {
		f = ex.lastFail // a failed hedge says nothing about the other attempt
	}
	ex.lastFail = f
	if ex.waiting() {
		return
	}
	if !ex.retryFailed() && !ex.retryBad() {
		ex.answerBestOrFail(ex.lastFail)
	}
}

// mayRetry reports whether the failure and retry.on allow a retry, which it counts and pays.
func (ex *Exchange) mayRetry(f *fault.Failure) bool {
	r := ex.Route
	switch f.Retry {
	case fault.RetryFree:
		ex.freeRetries++
		return r.retryOn.connect && ex.freeRetries < maxFreeEndpoints
	case fault.RetryFreeElsewhere:
		ex.freeRetries++
		return r.retryOn.connect && ex.freeRetries < maxFreeEndpoints && ex.launched < ex.service.set.Len()
	case fault.RetryPaid, fault.RetryPaidElsewhere:
		if !r.retryOn.refused {
			return false
		}
		if ex.mayMove() {
			ex.freeRetries++
			return true
		}
		switch {
		case f.Retry == fault.RetryPaidElsewhere && ex.launched >= ex.service.set.Len():
			return false
		case f.Retry == fault.RetryPaid && ex.batch: // refused in numbers that would leave online ones no token
			return false
		case !ex.mayPay(nil):
			return false
		}
	case fault.RetryIfIdempotent:
		if !r.retryOn.reset || !ex.Request.Idempotent || !ex.mayPay(f) {
			return false
		}
	case fault.RetryNever, fault.RetryUnsendable:
		return false
	}
	ex.retries++
	return true
}

// mayMove reports whether a refused request may go to another endpoint free of charge: one that has
// room, as far as is known. Batch requests may not, since they are refused for the others' sake. Nor may
// a request that is a retry or hedge itself, lest load multiplies along a chain of services.
func (ex *Exchange) mayMove() bool {
	s := ex.service
	return !ex.batch && !ex.cascade() && ex.freeRetries < maxFreeEndpoints-1 && ex.launched < maxAttempts &&
		s.set.Room(s.query(ex.key, ex.tried[:ex.launched])) && s.free.moves.take(s)
}

// free bounds the attempts of a service on a loop that cost no token although an endpoint got another one.
type free struct {
	moves      moves
	nextReplay time.Duration // when a replay costs nothing again
}

// moves bounds the requests that go elsewhere after a refusal: moveShare of the requests since some
// moment within the last moveEvery, and moveLeast. Where refusals are many, the gaps of package lb
// leave nowhere to go before that. So the bound holds only if endpoints take single requests and
// refuse all others. With twice the share such a fleet may get twice its load; with half of it, the first
// burst at two endpoints, of which one refuses, has failures.
type moves struct {
	since    time.Duration
	requests uint64 // of the service, before those that were in flight then
	moved    uint64
}

const (
	moveShare = 0.5
	moveLeast = 10
	moveEvery = time.Second
)

func (m *moves) take(s *Service) bool {
	if now := s.Shard.Loop.Now(); now-m.since >= moveEvery {
		*m = moves{since: now, requests: s.stats.Requests - min(s.stats.Requests, uint64(s.inFlight()))}
	}
	if float64(m.moved) >= moveLeast+moveShare*float64(s.stats.Requests-m.requests) {
		return false
	}
	m.moved++
	return true
}

// mayPay takes the token of a retry that costs one, and reports whether the retry is allowed. f is
// the failure, or nil if the request was refused or has a bad response.
func (ex *Exchange) mayPay(f *fault.Failure) bool {
	if ex.retries >= ex.Route.retryAttempts || ex.launched == maxAttempts {
		return false
	}
	if ex.cascade() {
		ex.service.stats.RetriesCascade++
		return false
	}
	return ex.service.pay(f == fault.Reset)
}

// replayEvery is how often a service's request on a loop is replayed free of charge. So a server that
// closes idle connections just when they are used again fails none of few requests, although these
// earn no token.
const replayEvery = time.Second

// mayReplay reports whether a request may be sent again because a pooled connection was stale. The
// service may have seen it, so that takes the token of a retry after a reset.
func (ex *Exchange) mayReplay() bool {
	s := ex.service
	if !ex.repeatable() {
		return false
	}
	if now := s.Shard.Loop.Now(); now >= s.free.nextReplay {
		s.free.nextReplay = now + replayEvery
		return true
	}
	return s.pay(true)
}

func (ex *Exchange) repeatable() bool {
	on := &ex.Route.retryOn
	return ex.Request.Idempotent && (on.connect || on.reset)
}

// pay takes the token of a retry, and reports whether there was one. After a reset it may be owed.
func (s *Service) pay(reset bool) bool {
	now := s.Shard.Loop.Now()
	switch {
	case s.hedging.Retry(now):
	case reset && s.hedging.RetryAhead(now, s.inFlight()+1):
		s.stats.RetriesAhead++
	default:
		s.stats.RetriesOverBudget++
		return false
	}
	s.stats.RetriesPaid++
	return true
}

// Repeats returns how often a stream with the request may be sent again although an endpoint may have
// seen it. ex has its route, and has not begun.
func (ex *Exchange) Repeats() int {
	r, req := ex.Route, &ex.Request
	cascade := req.Attempt > 0 || req.Hedge
	if cascade || !r.mayRepeat(req) || !r.retryOn.reset {
		return 0
	}
	return r.retryAttempts
}

// mayRepeat reports whether a request may be sent twice. Servers refuse the second use of credentials
// that log in a connection.
func (r *Route) mayRepeat(req *protocol.Request) bool {
	return !req.Login && (req.Idempotent || r.idempotent || safeMethod(req))
}

// keepBest keeps res if it is better than the best so far. It owns res.
func (ex *Exchange) keepBest(a *Attempt, res *Response) {
	a.noteResponse(trace.Failed, res)
	if ex.best != nil && ex.best.outcome() <= res.outcome() {
		res.Release()
		return
	}
	if ex.best != nil {
		ex.best.Release()
	}
	ex.best, ex.bestFrom = res, a
}

func (ex *Exchange) takeBest() *Response {
	res := ex.best
	ex.best = nil
	return res
}

// waiting reports whether the caller waits for an attempt. It does not for one that lingers.
func (ex *Exchange) waiting() bool {
	for i := range ex.attempts[:ex.launched] {
		if s := ex.attempts[i].state; s != attemptIdle && s != attemptLingering {
			return true
		}
	}
	return false
}

// stopTimers stops those that begin attempts.
func (ex *Exchange) stopTimers() {
	if ex.hedge.Armed() {
		ex.shard.Loop.Stop(&ex.hedge)
	}
	if ex.try.Armed() {
		ex.shard.Loop.Stop(&ex.try)
	}
	if ex.retry.Armed() {
		ex.shard.Loop.Stop(&ex.retry)
	}
}

// onTryTimer ends an attempt that had no response within retry.per_try_timeout, and arms the
// timer for the next one. A loop that is late first handles what came meanwhile.
func (ex *Exchange) onTryTimer() {
	now, limit := ex.shard.Loop.Now(), ex.Route.tryTimeout
	var first *Attempt
	second := time.Duration(math.MaxInt64)
	for i := range ex.attempts[:ex.launched] {
		a := &ex.attempts[i]
		switch {
		case a.state != attemptSent:
		case first == nil || a.sent < first.sent:
			if first != nil {
				second = min(second, first.sent)
			}
			first = a
		default:
			second = min(second, a.sent)
		}
	}
	switch {
	case first == nil:
	case now < first.sent+limit:
		ex.shard.Loop.After(first.sent+limit-now, &ex.try)
	case now > first.sent+limit+hedgeSlack && !ex.tryLate:
		ex.tryLate = true
		ex.shard.Loop.After(0, &ex.try)
	default:
		ex.tryLate = false
		if second != math.MaxInt64 {
			ex.shard.Loop.After(max(0, second+limit-now), &ex.try)
		}
		first.timeOut(now)
	}
}

// timeOut ends the wait for the attempt. It lingers like a cancelled one: an endpoint that is
// frozen must not look idle. The exchange may be over afterwards.
func (a *Attempt) timeOut(now time.Duration) {
	ex := a.ex
	a.recordLate()
	a.judgeLate(now)
	a.span().Note(trace.Failed, 0, fault.TryTimeout.Code)
	if a.carrier.Cancel(a) {
		ex.MaybeProcessed = true
		a.state.become(attemptLingering)
	} else {
		a.end(now, stats.AttemptNone)
	}
	ex.avoid[0] = a.ep
	ex.onFailure(a, fault.TryTimeout)
}
