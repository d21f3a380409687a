package exchange

import (
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/limit"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

func (ex *Exchange) judge(v fault.Verdict) {
	if ex.service != nil {
		ex.bounds.judge(ex.shard.Loop.Now(), &ex.permit, v)
	}
}

// maxAttempts bounds the attempts of one exchange, free retries and hedges
// included.
const maxAttempts = 6

// maxFreeEndpoints bounds how many endpoints are asked in vain for free (failed
// connects, GOAWAY) before the exchange fails.
const maxFreeEndpoints = 3

// exchangeState is where an exchange stands.
//
//	idle ──begin──▶ active ──▶ answered ──last attempt over──▶ idle
//	                   └─cancel▶ abandoned ──last attempt over──▶ idle
type exchangeState uint8

const (
	exchangeIdle      exchangeState = iota // on the free list, or being filled by a downstream
	exchangeOpen                           // the caller waits
	exchangeAnswered                       // the caller has its response; losers may still be out
	exchangeCancelled                      // the caller is gone; attempts are still out
)

// Exchange is the life of one request: its deadline, its attempts, and the one
// response that comes of them. It owns the request's memory, and is recycled
// when the caller is answered or gone and the last attempt is over.
type Exchange struct {
	shard     *shard.Shard
	pool      *Pool
	caller    Caller
	StreamID  uint64 // the downstream's own: the stream id of a link, the id of a Dubbo call
	CallIndex int    // the downstream's own: where it keeps the exchange
	state     exchangeState

	message
	course
	tally

	attempts [maxAttempts]Attempt
	tried    [maxAttempts]*lb.Endpoint
	avoid    [1]*lb.Endpoint // where the latest attempt failed that had its turn

	best           *Response      // best of the bad answers so far
	bestFrom       *Attempt       // that it came of
	MaybeProcessed bool           // the application may have seen the request
	lastFail       *fault.Failure // of the latest failed attempt since the last retry; of a hedge only when no other failed

	watch hedge.Watch // of the primary, in shadow mode

	traced     *traced     // nil: not sampled
	traceState trace.State // of the request, where it was marked
	marked     bool        // Member is there, where it can be

	deadline loop.Timer
	hedge    loop.Timer
	hedgeDue time.Duration // when hedge should fire; hedgeWhenever: it was late
}

// Open reports whether the caller still waits.
func (ex *Exchange) Open() bool { return ex.state == exchangeOpen }

// course is what an exchange was admitted to.
type course struct {
	Route    *Route
	service  *Service
	bounds   *Bounds      // of svc when the exchange began
	permit   limit.Permit // of the breaker in bounds
	admitted bool         // counts against max_pending of svc
}

// tally is what an exchange counts.
type tally struct {
	began        time.Duration
	queued       time.Duration // waited for slots
	retries      int           // paid and status retries so far
	freeRetries  int           // freeRetries retries so far
	hedges       int           // hedges that reached an endpoint
	missedHedges int           // hedges that reached none
	inFlight     int           // attempts that are not over
	launched     int           // attempts used
}

// Begin takes a complete request that came in by a door, and starts on it. The
// exchange may be answered before begin returns.
func (ex *Exchange) Begin(r *Route, by *Listener) {
	w := ex.shard
	ex.began = w.Loop.Now()
	ex.state = exchangeOpen
	w.Stats.Requests++
	w.Milliseconds.Now(ex.began).Arrived(ex.size())
	if w.Sampler.On {
		ex.sample(by)
	}
	switch {
	case by.Limited(ex.began):
		ex.fail(fault.RateLimited)
		return
	case ex.Refusal != nil:
		ex.fail(ex.Refusal)
		return
	case r == nil:
		ex.fail(fault.NoRoute)
		return
	}
	ex.Route, ex.service = r, r.Service
	ex.attempt, ex.hedged = ex.Request.Attempt, ex.Request.Hedge
	if f := ex.admit(); f != nil {
		ex.service = nil
		ex.fail(f)
		return
	}
	ex.service.stats.Requests++
	ex.service.stats.BytesIn += uint64(ex.size())
	ex.Request.Service = ex.service.shared.wire
	ex.Request.Idempotent = ex.Request.Idempotent || r.idempotent || safeMethod(&ex.Request)

	left := r.Timeout
	if ex.Request.Deadline != 0 {
		left = min(left, ex.Request.Deadline-ex.began)
	}
	if left <= 0 {
		ex.fail(fault.Deadline)
		return
	}
	ex.Request.Deadline = ex.began + left
	w.Loop.After(left, &ex.deadline)
	ex.service.hedging.Primary(ex.began, r.hedging)
	if r.hedging.Policy.Mode != hedge.Off && !ex.NoHedge {
		ex.armHedge(ex.began, r.hedging.Delay(ex.began))
	}
	ex.launch(primaryAttempt, nil)
}

// admit applies the limits of the process and of the service.
func (ex *Exchange) admit() (f *fault.Failure) {
	if ex.shard.Process.Budget.Full(ex.Held) && ex.caller.OverShare(ex) {
		return fault.Overloaded
	}
	ex.bounds = ex.service.bounds
	ex.permit, f = ex.service.shared.admit(ex.began, ex.bounds)
	ex.admitted = f == nil
	return f
}

// releasePending gives the place among max_pending back when no attempt is out any more. It
// comes before the answer, behind which the caller's next request may begin at once.
func (ex *Exchange) releasePending() {
	if ex.admitted && ex.inFlight == 0 {
		ex.admitted = false
		ex.service.shared.pending.Add(-1)
	}
}

// safeMethod tells the methods that may be sent twice by definition of the
// mode: GET and HEAD only (design: gate not_idempotent).
func safeMethod(req *protocol.Request) bool {
	return req.Codec == protocol.CodecHTTP && (string(req.Method) == "GET" || string(req.Method) == "HEAD")
}

// launch starts the next attempt, at ep or, when ep is nil, where the policy
// points once the service has a slot.
func (ex *Exchange) launch(kind attemptKind, ep *lb.Endpoint) {
	a := &ex.attempts[ex.launched]
	ex.launched++
	ex.inFlight++
	a.kind, a.ep, a.index, a.replayed = kind, nil, uint8(ex.launched-1), false
	if kind == retryAttempt {
		ex.service.stats.Retries++
	}
	switch ex.service.admit(a) {
	case slotGranted:
		a.send(ep)
	case slotQueued:
	case slotRefused:
		a.state = attemptQueued
		if kind == hedgeAttempt || ex.hedged {
			a.Failed(fault.NoSlot)
			return
		}
		a.Failed(fault.QueueFull) // and would be in the same moment again
	}
}

// answerWith answers the caller with ans, which came of an attempt, and withdraws what
// else is out.
func (ex *Exchange) answerWith(by *Attempt, ans *Response) {
	if f := ex.caller.Encode(ex, ans); f != nil {
		ans.Release()
		ex.fail(f)
		return
	}
	ex.enter(exchangeAnswered)
	if by.kind == hedgeAttempt && ans.Status < 500 {
		ex.Route.hedging.Won()
	}
	ex.conclude(&result{outcome: stats.OutcomeOf(ans.Status), by: by, ans: ans})
	ex.judge(fault.VerdictOf(ans.Status))
	ex.releasePending()
	ex.caller.Respond(ex, ans)
	ex.cancelAttempts()
	ex.recycleIfDone()
}

// answerBestOrFail answers the caller with the best bad answer, or with f.
func (ex *Exchange) answerBestOrFail(f *fault.Failure) {
	if ans := ex.takeBest(); ans != nil {
		ex.answerWith(ex.bestFrom, ans)
		return
	}
	ex.fail(f)
}

func (ex *Exchange) fail(f *fault.Failure) {
	ex.enter(exchangeAnswered)
	ex.shard.Stats.Failed(f)
	ex.conclude(&result{outcome: stats.OutcomeFailed, failure: f})
	ex.judge(f.Verdict())
	ex.releasePending()
	ex.caller.Fail(ex, f)
	ex.cancelAttempts()
	ex.recycleIfDone()
}

// Cancel is the downstream's word that the caller is gone. It tells whether
// something is left at the application, in which case over follows.
func (ex *Exchange) Cancel() (left bool) {
	ex.enter(exchangeCancelled)
	ex.conclude(&result{outcome: stats.OutcomeCancelled})
	ex.judge(fault.VerdictNone)
	ex.cancelAttempts()
	if left = ex.inFlight > 0; !left {
		ex.caller = nil
		ex.recycleIfDone()
	}
	return left
}

// enter is the one place where a live exchange changes its state.
func (ex *Exchange) enter(to exchangeState) {
	if ex.state != exchangeOpen {
		panic("proxy: exchange answered twice")
	}
	ex.state = to
	ex.shard.Loop.Stop(&ex.hedge)
}

// cancelAttempts cancels the attempts that are still out. Those that the application
// may already work on stay out until it has answered or the deadline passes.
func (ex *Exchange) cancelAttempts() {
	for i := range ex.attempts[:ex.launched] {
		ex.attempts[i].cancel()
	}
	if ex.best != nil {
		ex.takeBest().Release()
	}
	ex.releaseRequest()
}

// onDeadline: time is up for the caller, or for the losers.
func (ex *Exchange) onDeadline() {
	if ex.state == exchangeOpen {
		for i := range ex.attempts[:ex.launched] {
			ex.attempts[i].abort()
		}
		ex.answerBestOrFail(fault.Deadline)
		return
	}
	for i := range ex.attempts[:ex.launched] {
		ex.attempts[i].abort()
	}
	ex.recycleIfDone()
}

// recycleIfDone recycles the exchange when nothing refers to it any more.
func (ex *Exchange) recycleIfDone() {
	if ex.inFlight > 0 || ex.state == exchangeOpen {
		return
	}
	ex.shard.Loop.Stop(&ex.deadline)
	ex.shard.Loop.Stop(&ex.hedge)
	ex.releasePending()
	if ex.state == exchangeCancelled && ex.caller != nil {
		ex.caller.Finished(ex)
	}
	ex.report()
	ex.pool.reuse(ex)
}
