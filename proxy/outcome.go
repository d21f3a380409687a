package proxy

import "github.com/remora-proxy/remora/proxy/trace"

// onAnswer: a got an answer. The first good one wins; a bad one (5xx) only when
// nothing better can come.
func (ex *exchange) onAnswer(a *attempt, ans *answer) {
	if ans.Status < 500 {
		ex.win(a, ans)
		return
	}
	ex.failedAt[0] = a.ep
	ex.keepBest(a, ans)
	if ex.out == 0 && !ex.retryBad() {
		ex.win(ex.bestOf, ex.takeBest())
	}
}

// retryBad starts a retry if the best answer so far is one that retry.on names.
func (ex *exchange) retryBad() bool {
	if ex.best == nil || !ex.req.Idempotent || !ex.route.retryStatus(ex.best.Status) || !ex.mayPay() {
		return false
	}
	ex.retries++
	ex.launch(retryAttempt, nil)
	return true
}

// onFailure: an attempt came to nothing. Others may still be out; otherwise a
// retry where that is safe and allowed, else the caller learns of it.
func (ex *exchange) onFailure(a *attempt, f *Failure) {
	if a.kind == hedgeAttempt && ex.lastFail != nil {
		f = ex.lastFail // a hedge that was refused says nothing of the attempt it was to help
	}
	ex.lastFail = f
	if ex.out > 0 {
		return
	}
	if ex.n < maxAttempts && ex.mayRetry(ex.lastFail) {
		ex.lastFail = nil
		ex.launch(retryAttempt, nil)
		return
	}
	if !ex.retryBad() {
		ex.giveUp(ex.lastFail)
	}
}

func (ex *exchange) mayRetry(f *Failure) bool {
	r := ex.route
	switch f.retry {
	case retryConnect:
		ex.free++
		return r.retryOn.connect && ex.free < maxFreeEndpoints
	case retryUnsent:
		ex.free++
		return r.retryOn.connect && ex.free < maxFreeEndpoints && ex.n < ex.svc.set.Len()
	case retryElsewhere:
		if ex.n >= ex.svc.set.Len() || !r.retryOn.refused || !ex.mayPay() {
			return false
		}
	case retryRefused:
		if !r.retryOn.refused || !ex.mayPay() {
			return false
		}
	case retryReset:
		if !r.retryOn.reset || !ex.req.Idempotent || !ex.mayPay() {
			return false
		}
	case retryNever, retryUnfit:
		return false
	}
	ex.retries++
	return true
}

// mayPay tells whether a retry that costs a token is allowed, and takes it.
func (ex *exchange) mayPay() bool {
	if ex.retries >= ex.route.retryAttempts || ex.n == maxAttempts {
		return false
	}
	if !ex.svc.hedging.Retry(ex.w.loop.Now()) {
		ex.svc.stats.RetriesOverBudget++
		return false
	}
	ex.svc.stats.RetriesPaid++
	return true
}

func (ex *exchange) keepBest(a *attempt, ans *answer) {
	a.span().Note(trace.Failed, ans.Status, "")
	if ex.best != nil && ex.best.Status <= ans.Status {
		ans.Release()
		return
	}
	if ex.best != nil {
		ex.best.Release()
	}
	ex.best, ex.bestOf = ans, a
}

func (ex *exchange) takeBest() *answer {
	ans := ex.best
	ex.best = nil
	return ans
}
