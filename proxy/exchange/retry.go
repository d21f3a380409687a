package exchange

import (
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// onAnswer: a got an answer. The first good one wins; a bad one (5xx) only when
// nothing better can come.
func (ex *Exchange) onAnswer(a *Attempt, ans *Response) {
	if ans.Status < 500 {
		ex.answerWith(a, ans)
		return
	}
	ex.avoid[0] = a.ep
	ex.keepBest(a, ans)
	if ex.inFlight == 0 && !ex.retryBad() {
		ex.answerWith(ex.bestFrom, ex.takeBest())
	}
}

// retryBad starts a retry if the best answer so far is one that retry.on names.
func (ex *Exchange) retryBad() bool {
	if ex.best == nil || !ex.Request.Idempotent || !ex.Route.retryStatus(ex.best.Status) || !ex.mayPay() {
		return false
	}
	ex.retries++
	ex.launch(retryAttempt, nil)
	return true
}

// onFailure: an attempt came to nothing. Others may still be out; otherwise a
// retry where that is safe and allowed, else the caller learns of it.
func (ex *Exchange) onFailure(a *Attempt, f *fault.Failure) {
	if a.kind == hedgeAttempt && ex.lastFail != nil {
		f = ex.lastFail // a hedge that was refused says nothing of the attempt it was to help
	}
	ex.lastFail = f
	if ex.inFlight > 0 {
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
		if ex.launched >= ex.service.set.Len() || !r.retryOn.refused || !ex.mayPay() {
			return false
		}
	case fault.RetryPaid:
		if !r.retryOn.refused || !ex.mayPay() {
			return false
		}
	case fault.RetryIfIdempotent:
		if !r.retryOn.reset || !ex.Request.Idempotent || !ex.mayPay() {
			return false
		}
	case fault.RetryNever, fault.RetryUnsendable:
		return false
	}
	ex.retries++
	return true
}

// mayPay tells whether a retry that costs a token is allowed, and takes it.
func (ex *Exchange) mayPay() bool {
	if ex.retries >= ex.Route.retryAttempts || ex.launched == maxAttempts {
		return false
	}
	if !ex.service.hedging.Retry(ex.shard.Loop.Now()) {
		ex.service.stats.RetriesOverBudget++
		return false
	}
	ex.service.stats.RetriesPaid++
	return true
}

func (ex *Exchange) keepBest(a *Attempt, ans *Response) {
	a.span().Note(trace.Failed, ans.Status, "")
	if ex.best != nil && ex.best.Status <= ans.Status {
		ans.Release()
		return
	}
	if ex.best != nil {
		ex.best.Release()
	}
	ex.best, ex.bestFrom = ans, a
}

func (ex *Exchange) takeBest() *Response {
	ans := ex.best
	ex.best = nil
	return ans
}
