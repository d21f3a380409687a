package race

import (
	"math"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// never is a time that does not come.
const never = time.Duration(math.MaxInt64)

// onResponse handles the response of a. The first good response wins. A response is bad if it says that the
// application has failed, or has a gRPC code of retry.on, or refuses a key that another attempt uses. A bad
// response wins only if no attempt is left that could still succeed.
func (r *Race) onResponse(a *Attempt, res *Response) {
	if !res.Failed() && !(res.GRPC && r.Policy.retryOn.hasCode(res.Code)) && !r.keyInUse(res) {
		r.win(a, res)
		return
	}
	if res.GRPC {
		r.holdBack(res)
	}
	r.avoid[0] = a.ep
	r.keepBest(a, res)
	if !r.waiting() && !r.retryFailed() && !r.retryBad() {
		r.win(r.TakeBest())
	}
}

// retryFailed starts a retry if the latest attempt that failed since the last retry allows it.
func (r *Race) retryFailed() bool {
	f := r.lastFail
	if f == nil || r.Launched == r.Policy.attempts || !r.mayFollow() || !r.mayRetry(f) {
		return false
	}
	r.lastFail = nil
	r.launchRetry()
	return true
}

// retryBad starts a retry if retry.on names the status of the best response so far.
func (r *Race) retryBad() bool {
	if r.best == nil || !r.request.Idempotent || !r.Policy.retryOn.hasResponse(r.best) || !r.mayFollow() || !r.mayPay(nil) {
		return false
	}
	r.retries++
	r.lastFail = nil
	r.launchRetry()
	return true
}

// holdBack heeds what a gRPC server says of further attempts.
func (r *Race) holdBack(res *Response) {
	switch wait, ok := protocol.GRPCPushback(&res.Response); {
	case !ok:
	case wait < 0:
		r.notBefore = never
	default:
		r.notBefore = max(r.notBefore, r.shard.Loop.Now()+wait)
	}
}

// mayFollow reports whether another attempt may begin before the deadline.
func (r *Race) mayFollow() bool { return r.notBefore < r.request.Deadline }

// launchRetry starts a retry, now or as soon as it may follow.
func (r *Race) launchRetry() {
	if wait := r.notBefore - r.shard.Loop.Now(); wait > 0 {
		r.shard.Loop.After(wait, &r.retry)
		return
	}
	r.launch(r.Policy.retry, nil)
}

// onFailure handles an attempt without a response: it waits for other attempts, or retries if
// that is safe and allowed, or gives the caller the best bad response or the failure.
func (r *Race) onFailure(a *Attempt, f *fault.Failure) {
	if a.kind == hedgeAttempt && r.lastFail != nil {
		f = r.lastFail // a failed hedge says nothing about the other attempt
	}
	r.lastFail = f
	if r.waiting() {
		return
	}
	if !r.retryFailed() && !r.retryBad() {
		r.lose(r.lastFail)
	}
}

// mayRetry reports whether the failure and retry.on allow a retry, which it counts and pays.
func (r *Race) mayRetry(f *fault.Failure) bool {
	on := &r.Policy.retryOn
	switch class := r.Policy.classOf(f); class {
	case fault.RetryFree:
		r.freeRetries++
		return on.connect && r.freeRetries < maxFreeEndpoints
	case fault.RetryFreeElsewhere:
		r.freeRetries++
		return on.connect && r.freeRetries < maxFreeEndpoints && r.elsewhere()
	case fault.RetryPaid, fault.RetryPaidElsewhere:
		if !on.refused {
			return false
		}
		if r.mayMove() {
			r.freeRetries++
			return true
		}
		switch {
		case class == fault.RetryPaidElsewhere && !r.elsewhere():
			return false
		case class == fault.RetryPaid && r.Batch: // refused in numbers that would leave online ones no token
			return false
		case !r.mayPay(nil):
			return false
		}
	case fault.RetryIfIdempotent:
		if !on.reset || !r.request.Idempotent || !r.mayPay(f) {
			return false
		}
	case fault.RetryNever, fault.RetryUnsendable:
		return false
	}
	r.retries++
	return true
}

// elsewhere reports whether the service has an endpoint where the request was not.
func (r *Race) elsewhere() bool { return r.Service.HasOther(r.tried[:r.Launched]) }

// mayMove reports whether a refused request may go to another endpoint free of charge: one that has
// room, as far as is known. Batch requests may not, since they are refused for the others' sake. Nor may
// a request that is a retry or hedge itself, lest load multiplies along a chain of services.
func (r *Race) mayMove() bool {
	s := r.Service
	return !r.Batch && !r.cascade() && r.freeRetries < maxFreeEndpoints-1 && r.Launched < MaxAttempts &&
		s.Budget.MayMove(r.Key, r.tried[:r.Launched])
}

// mayPay takes the token of a retry that costs one, and reports whether the retry is allowed. f is
// the failure, or nil if the request was refused or has a bad response.
func (r *Race) mayPay(f *fault.Failure) bool {
	if r.retries >= r.Policy.retryAttempts || r.Launched == MaxAttempts {
		return false
	}
	if r.cascade() {
		r.Service.Stats.RetriesCascade++
		return false
	}
	return r.Service.Budget.Pay(f == fault.Reset)
}

// mayReplay reports whether a request may be sent again because a pooled connection was stale. The
// service may have seen it, so that takes the token of a retry after a reset.
func (r *Race) mayReplay() bool {
	return r.repeatable() && r.Service.Budget.PayReplay()
}

func (r *Race) repeatable() bool {
	on := &r.Policy.retryOn
	return r.request.Idempotent && (on.connect || on.reset)
}

// keepBest keeps res if it is better than the best so far. It owns res.
func (r *Race) keepBest(a *Attempt, res *Response) {
	a.NoteResponse(trace.Failed, res)
	if r.best != nil && !r.better(res) {
		res.Release()
		return
	}
	if r.best != nil {
		r.best.Release()
	}
	r.best, r.bestFrom = res, a
}

// better reports whether res says more of the request than the best so far. That its key is in use says
// nothing of the attempt that uses it.
func (r *Race) better(res *Response) bool {
	if r.keyInUse(res) || r.keyInUse(r.best) {
		return !r.keyInUse(res)
	}
	return res.Outcome() < r.best.Outcome()
}

// keyInUse reports whether res may refuse the request because another attempt with its key is being processed
// (draft-ietf-httpapi-idempotency-key-header, error scenarios).
func (r *Race) keyInUse(res *Response) bool { return r.Keyed && res.Status == 409 && r.Launched > 1 }

// TakeBest returns the best bad response and the attempt that it belongs to, or nil. It forgets both.
func (r *Race) TakeBest() (by *Attempt, res *Response) {
	by, res = r.bestFrom, r.best
	r.best, r.bestFrom = nil, nil
	return by, res
}

// stopTimers stops those that begin attempts.
func (r *Race) stopTimers() {
	if r.hedge.Armed() {
		r.shard.Loop.Stop(&r.hedge)
	}
	if r.try.Armed() {
		r.shard.Loop.Stop(&r.try)
	}
	if r.retry.Armed() {
		r.shard.Loop.Stop(&r.retry)
	}
}

// onTryTimer ends an attempt that had no response within retry.per_try_timeout, and arms the
// timer for the next one. A loop that is late first handles what came meanwhile.
func (r *Race) onTryTimer() {
	now, limit := r.shard.Loop.Now(), r.Policy.tryTimeout
	var first *Attempt
	second := time.Duration(math.MaxInt64)
	for i := range r.attempts[:r.Launched] {
		a := &r.attempts[i]
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
		r.shard.Loop.After(first.sent+limit-now, &r.try)
	case now > first.sent+limit+loop.Slack && !r.tryLate:
		r.tryLate = true
		r.shard.Loop.After(0, &r.try)
	default:
		r.tryLate = false
		if second != math.MaxInt64 {
			r.shard.Loop.After(max(0, second+limit-now), &r.try)
		}
		first.timeOut(now)
	}
}
