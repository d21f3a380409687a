package exchange

import (
	"math"
	"time"

	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// onResponse handles the response of a. The first good one wins. A bad one (status 5xx)
// wins only if no better one can come.
func (ex *Exchange) onResponse(a *Attempt, res *Response) {
	if res.Status < 500 {
		ex.answerWith(a, res)
		return
	}
	ex.avoid[0] = a.ep
	ex.keepBest(a, res)
	if !ex.waiting() && !ex.retryBad() {
		ex.answerWith(ex.bestFrom, ex.takeBest())
	}
}

// retryBad starts a retry if retry.on names the status of the best response so far.
func (ex *Exchange) retryBad() bool {
	if ex.best == nil || !ex.Request.Idempotent || !ex.Route.retryStatus(ex.best.Status) || !ex.mayPay(nil) {
		return false
	}
	ex.retries++
	ex.launch(retryAttempt, nil)
	return true
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
	if ex.launched < maxAttempts && ex.mayRetry(ex.lastFail) {
		ex.lastFail = nil
		ex.launch(retryAttempt, nil)
		return
	}
	if !ex.retryBad() {
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
	case fault.RetryPaidElsewhere:
		if ex.launched >= ex.service.set.Len() || !r.retryOn.refused || !ex.mayPay(nil) {
			return false
		}
	case fault.RetryPaid: // batch requests are refused in numbers that would leave online ones no token
		if !r.retryOn.refused || ex.batch || !ex.mayPay(nil) {
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

// mayPay takes the token of a retry that costs one, and reports whether the retry is allowed. f is
// the failure, or nil if the request was refused or has a bad response.
func (ex *Exchange) mayPay(f *fault.Failure) bool {
	if ex.retries >= ex.Route.retryAttempts || ex.launched == maxAttempts {
		return false
	}
	s, now := ex.service, ex.shard.Loop.Now()
	switch {
	case ex.cascade():
		s.stats.RetriesCascade++
		return false
	case s.hedging.Retry(now):
	case f == fault.Reset && s.hedging.RetryAhead(now, s.inFlight()+1):
		s.stats.RetriesAhead++
	default:
		s.stats.RetriesOverBudget++
		return false
	}
	s.stats.RetriesPaid++
	return true
}

// keepBest keeps res if it is better than the best so far. It owns res.
func (ex *Exchange) keepBest(a *Attempt, res *Response) {
	a.span().Note(trace.Failed, res.Status, "")
	if ex.best != nil && ex.best.Status <= res.Status {
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
	a.ep.TimedOut(now)
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
