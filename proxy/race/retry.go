package race

import (
	"cmp"
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
		r.owner.Won(a, res)
		return
	}
	if res.GRPC {
		r.retrying.heedPushback(res)
	}
	r.avoid[0] = a.visit.ep
	r.keepBest(a, res)
	switch {
	case r.mayStillWin():
		r.ties.onOver(a)
	case !r.retrying.launch():
		r.owner.Won(r.takeBest())
	}
}

// onFailure handles an attempt without a response: it waits for other attempts, or retries if
// that is safe and allowed, or gives the caller the best bad response or the failure.
func (r *Race) onFailure(a *Attempt, f *fault.Failure) {
	t := &r.retrying
	if a.kind != hedgeAttempt { // a failed hedge says nothing about the attempt that it is for
		t.failure = f
	}
	switch {
	case r.mayStillWin():
		r.ties.onOver(a)
	case !t.launch():
		r.Conclude(cmp.Or(t.failure, f))
	}
}

// keepBest keeps res if it is better than the best so far. It owns res.
func (r *Race) keepBest(a *Attempt, res *Response) {
	r.Traced.NoteResponse(a, trace.Failed, res)
	if r.best != nil && r.badness(res) >= r.badness(r.best) {
		res.Release()
		return
	}
	if r.best != nil {
		r.best.Release()
	}
	r.best, r.bestFrom = res, a
}

// takeBest returns the best bad response and the attempt that it belongs to, or nil. It forgets both.
func (r *Race) takeBest() (by *Attempt, res *Response) {
	by, res = r.bestFrom, r.best
	r.best, r.bestFrom = nil, nil
	return by, res
}

// badness is lower for a response that says more of the request. A response that says that the key is in use says
// nothing of the attempt that uses the key.
func (r *Race) badness(res *Response) int {
	if r.keyInUse(res) {
		return math.MaxInt
	}
	return res.Outcome()
}

// keyInUse reports whether res may refuse the request because another attempt with its key is being processed
// (draft-ietf-httpapi-idempotency-key-header, error scenarios).
func (r *Race) keyInUse(res *Response) bool { return r.Keyed && res.Status == 409 && r.Launched > 1 }

// retrying decides whether a retry follows an attempt that has failed or has a bad response, and what pays for the retry.
type retrying struct {
	race      *Race
	timer     loop.Timer     // armed while a retry waits for notBefore
	notBefore time.Duration  // when a retry or hedge may follow, as a gRPC server said; never: none may
	failure   *fault.Failure // of the primary, or of the retry in its place; nil if that has responded or is in flight
	paid      uint8          // retries that took a token
	free      uint8          // failures after which a retry costs nothing
}

func (t *retrying) init(r *Race) {
	t.race, t.timer.Fire = r, func() { r.launch(r.Policy.retryKind, nil) }
}

func (t *retrying) reset() { t.notBefore, t.failure, t.paid, t.free = 0, nil, 0, 0 }

// heedPushback heeds what a gRPC server says of further attempts.
func (t *retrying) heedPushback(res *Response) {
	switch wait, ok := protocol.GRPCPushback(&res.Response); {
	case !ok:
	case wait < 0:
		t.notBefore = never
	default:
		t.notBefore = max(t.notBefore, t.race.shard.Loop.Now()+wait)
	}
}

// mayFollow reports whether another attempt may begin before the deadline.
func (t *retrying) mayFollow() bool { return t.notBefore < t.race.request.Deadline }

// launch pays for a retry and launches it, now or as soon as it may follow. It reports whether there is one.
func (t *retrying) launch() bool {
	r := t.race
	r.ties.tie = untied // the primary has ended, and no hedge is in flight
	if !t.mayFollow() || !t.payAfterFailure() && !t.payAfterResponse() {
		return false
	}
	t.failure = nil
	if wait := t.notBefore - r.shard.Loop.Now(); wait > 0 {
		r.shard.Loop.After(wait, &t.timer)
	} else {
		r.launch(r.Policy.retryKind, nil)
	}
	return true
}

// payAfterResponse pays for a retry if retry.on names the status of the best response so far.
func (t *retrying) payAfterResponse() bool {
	r := t.race
	return r.best != nil && r.request.Idempotent && r.Policy.retryOn.hasResponse(r.best) && t.pay(nil)
}

// payAfterFailure pays for a retry, or counts one that costs nothing, if retry.on and the latest failure allow it.
func (t *retrying) payAfterFailure() bool {
	r, f := t.race, t.failure
	if f == nil || r.Launched == r.Policy.maxAttempts {
		return false
	}
	on := &r.Policy.retryOn
	switch class := r.Policy.classOf(f); class {
	case fault.RetryFree:
		t.free++
		return on.connect && t.free < maxFreeEndpoints
	case fault.RetryFreeElsewhere:
		t.free++
		return on.connect && t.free < maxFreeEndpoints && t.elsewhere()
	case fault.RetryPaid:
		// Batch requests are refused so often that their retries would leave no token to online ones.
		return on.refused && (t.takeMove() || !r.Batch && t.pay(nil))
	case fault.RetryPaidElsewhere:
		return on.refused && (t.takeMove() || t.elsewhere() && t.pay(nil))
	case fault.RetryIfIdempotent:
		return on.reset && r.request.Idempotent && t.pay(f)
	case fault.RetryNever, fault.RetryUnsendable:
	}
	return false
}

// elsewhere reports whether the service has an endpoint where the request was not.
func (t *retrying) elsewhere() bool {
	return t.race.Service.HasOther(t.race.tried[:t.race.Launched])
}

// takeMove lets a refused request go to another endpoint free of charge: one that has room, as far as is known. It
// reports whether the request may. Batch requests may not, since they are refused for the others' sake. Nor may a
// request that is a retry or hedge itself, lest load multiplies along a chain of services. The bound is that of free
// retries, where free does not have the latest failure yet.
func (t *retrying) takeMove() bool {
	r := t.race
	if r.Batch || r.cascade() || t.free+1 >= maxFreeEndpoints ||
		!r.Service.Budget.TakeMove(r.Key, r.tried[:r.Launched]) {
		return false
	}
	t.free++
	return true
}

// pay takes the token of a retry that costs one, and reports whether the retry is allowed. f is
// the failure, or nil if the request was refused or has a bad response.
func (t *retrying) pay(f *fault.Failure) bool {
	r := t.race
	if int(t.paid) >= r.Policy.maxPaid || r.Launched == MaxAttempts {
		return false
	}
	if r.cascade() {
		r.Service.Stats.RetriesCascade++
		return false
	}
	if !r.Service.Budget.Pay(f == fault.Reset) {
		return false
	}
	t.paid++
	return true
}

// tryTimer ends the wait for attempts that have no response within retry.per_try_timeout.
type tryTimer struct {
	race  *Race
	timer loop.Timer // armed for the oldest attempt, if there is a timeout
	due   loop.Due
}

func (t *tryTimer) init(r *Race) { t.race, t.timer.Fire, t.timer.Pooled = r, t.onTimer, true }

// onSent arms the timer for an attempt that is sent now, unless it is armed for an older one.
func (t *tryTimer) onSent() {
	if limit := t.race.Policy.tryTimeout; limit > 0 && !t.timer.Armed() {
		t.arm(t.race.shard.Loop.Now(), limit)
	}
}

func (t *tryTimer) arm(now, wait time.Duration) {
	t.due = loop.Due(now + wait)
	t.race.shard.Loop.After(wait, &t.timer)
}

// onTimer ends the wait for the oldest attempt, and arms the timer for the next one. A loop that is late first handles
// what came meanwhile.
func (t *tryTimer) onTimer() {
	r := t.race
	now, limit := r.shard.Loop.Now(), r.Policy.tryTimeout
	var first *Attempt
	second := never // when the attempt after first was sent
	for i := range r.attempts[:r.Launched] {
		a := &r.attempts[i]
		switch {
		case a.state != attemptSent:
		case first == nil:
			first = a
		case a.visit.sent < first.visit.sent:
			first, second = a, first.visit.sent
		default:
			second = min(second, a.visit.sent)
		}
	}
	switch {
	case first == nil:
	case now < first.visit.sent+limit:
		t.arm(now, first.visit.sent+limit-now)
	case t.due.PutOff(now):
		r.shard.Loop.After(0, &t.timer)
	default:
		if second != never {
			t.arm(now, max(0, second+limit-now))
		}
		first.timeOut(now)
	}
}
