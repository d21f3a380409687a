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

// maxAttempts bounds the attempts of one exchange, with free retries and hedges.
const maxAttempts = 6

// maxFreeEndpoints bounds how many endpoints may fail for free: failed connects and GOAWAY.
const maxFreeEndpoints = 3

// Exchange is the life of one request: its deadline, its attempts and its one response. It owns
// the request's memory. It is recycled when the caller has its response or has gone, and the
// last attempt is over.
type Exchange struct {
	shard     *shard.Shard
	pool      *Pool
	caller    Caller
	StreamID  uint64 // for the session: the stream id of a link, or the id of a Dubbo call
	CallIndex int    // for the session: where it keeps the exchange
	state     exchangeState

	message
	course
	tally

	attempts [maxAttempts]Attempt
	tried    [maxAttempts]*lb.Endpoint
	avoid    [1]*lb.Endpoint // where the latest attempt failed

	best           *Response      // the best of the bad responses so far
	bestFrom       *Attempt       // the attempt that best belongs to
	MaybeProcessed bool           // the application may have seen the request
	lastFail       *fault.Failure // of the latest failed attempt since the last retry; a hedge's only if no other failed

	watch hedge.Watch // of the primary

	traced     *traced     // nil means not sampled
	traceState trace.State // of the request, if it is marked
	marked     bool        // traceState was looked at, and has trace.Member if it can

	timers
}

// timers of an exchange.
type timers struct {
	deadline loop.Timer
	hedge    loop.Timer
	hedgeDue time.Duration // when hedge is due; hedgeWhenever after it was late once
	try      loop.Timer    // armed for the oldest attempt, if there is retry.per_try_timeout
	retry    loop.Timer    // armed while a retry waits for notBefore
}

// course is what an exchange was admitted to.
type course struct {
	Route    *Route
	service  *Service
	bounds   *Bounds      // of the service when the exchange began
	permit   limit.Permit // of the breaker in bounds
	admitted bool         // counts against the service's max_pending
	sessions *sessions    // of the service when the exchange began; nil means none
	key      uint64       // of the request, if the service picks by key
	pin      *lb.Endpoint // that the request is pinned to; nil means none
}

// tally is what an exchange counts.
type tally struct {
	began        time.Duration
	queued       time.Duration // time in queues for slots
	retries      int           // paid retries, and those of bad responses
	freeRetries  int
	hedges       int            // hedges that reached an endpoint
	wasted       int            // of these, hedges that were refused, and not replaced
	missedHedges int            // hedges that reached none
	overtaken    time.Duration  // when a hedge's response came before the primary's; 0: it did not
	inFlight     int            // attempts that are not over
	launched     int            // attempts used
	filtered     uint8          // filters of the route that have seen the request and not its end
	decided      bool           // filters have begun to see the outcome
	outer        uint8          // filters that have not seen it; they are the first ones
	tryLate      bool           // the timer try was late, and put off once
	notBefore    time.Duration  // when a retry or hedge may follow, as a gRPC server said; never: none may
	copied       bool           // a copy of another request: see BeginCopy
	Injected     stats.Injected // faults of the route
	Fallback     Fallback
	Cached       stats.Cached // what the route's cache did
	interims     interims
}

// Open reports whether the caller still waits.
func (ex *Exchange) Open() bool { return ex.state == exchangeOpen }

// Begin starts on a complete request that came in at l. r is nil if it has no route.
// The exchange may be over before Begin returns.
func (ex *Exchange) Begin(r *Route, l *Listener) {
	ex.open(l)
	f := ex.refuse(r, l)
	if f == nil && r.Answer != nil {
		r.respond(ex)
		return
	}
	if f == nil && r.early != nil {
		ex.Route = r
		r.Service.takePin(ex) // the filter sees what the application sees
		if ex.overShare() {
			f = fault.Overloaded
		} else if r.early.Early(ex) {
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
	if len(r.filters) > 0 {
		ex.Resume()
		return
	}
	ex.start(ex.began)
}

// start sends the request: its first attempt and, later, its hedges.
func (ex *Exchange) start(now time.Duration) {
	ex.startHedging(now)
	ex.launch(primaryAttempt, nil)
}

func (ex *Exchange) open(l *Listener) {
	w := ex.shard
	ex.began = w.Loop.Now()
	ex.state.become(exchangeOpen)
	w.Stats.Requests++
	w.Milliseconds.Now(ex.began).Arrived(ex.size())
	if w.Sampler.On {
		ex.sample(l)
	}
}

// refuse returns why the request goes no further, before any service is asked.
func (ex *Exchange) refuse(r *Route, l *Listener) *fault.Failure {
	switch {
	case l.Rate != nil && Limited(l.Rate, ex.began, ex.caller, &ex.Request):
		return fault.RateLimited
	case ex.Refusal != nil:
		return ex.Refusal
	case l.Ruled(r) && ex.Forbidden(r, l):
		return fault.NotAllowed
	case r == nil:
		return fault.NoRoute
	case ex.Limit(r, ex.began) <= 0:
		return fault.Deadline
	case r.Rate != nil && Limited(r.Rate, ex.began, ex.caller, &ex.Request):
		return fault.RateLimited
	}
	return nil
}

// admit applies the limits of the process and of the route's service.
func (ex *Exchange) admit(r *Route) (f *fault.Failure) {
	ex.Route = r
	ex.attempt, ex.hedged = ex.Request.Attempt, ex.Request.Hedge
	if r.batch {
		ex.Request.Batch = true
	}
	ex.batch = ex.Request.Batch
	s := r.Service
	if ex.overShare() {
		return fault.Overloaded
	}
	if ex.batch && ex.shard.Process.RefusesBatch(ex.Held) {
		return fault.Overloaded
	}
	if ex.permit, f = s.shared.admit(ex.began, s.bounds, ex.batch); f != nil {
		return f
	}
	ex.service, ex.bounds, ex.admitted = s, s.bounds, true
	s.count(ex)
	if s.sessions != nil {
		s.join(ex)
	}
	ex.Request.Service = s.shared.wire
	ex.Request.Idempotent = r.mayRepeat(&ex.Request)
	return nil
}

// safeMethod reports whether the method alone allows sending a request twice: GET and HEAD.
func safeMethod(req *protocol.Request) bool {
	return req.Codec == protocol.CodecHTTP && (string(req.Method) == "GET" || string(req.Method) == "HEAD")
}

// setDeadline arms the deadline: the caller's own or the route's timeout, the sooner of both.
func (ex *Exchange) setDeadline() {
	left := ex.Limit(ex.Route, ex.began)
	ex.Request.Deadline = ex.began + left
	ex.shard.Loop.After(left, &ex.deadline)
}

// startHedging arms the hedge timer, in shadow mode only of a request that is watched. A batch
// request is not hedged, and tells nothing about how long others take.
func (ex *Exchange) startHedging(now time.Duration) {
	ex.watch = hedge.Watch{}
	if ex.batch {
		return
	}
	r := ex.Route.hedging
	ex.service.hedging.Primary(now, r)
	if ex.Route.classHeader != "" && ex.ClassName == nil {
		ex.ClassName = protocol.Find(ex.Request.Headers, ex.Route.classHeader)
	}
	ex.watch.Class = r.ClassOf(now, ex.ClassName, len(ex.Request.Body))
	if ex.NoHedge || r.Policy.Mode == hedge.Off {
		return
	}
	if r.Shadows() && ex.Request.Idempotent && !ex.cascade() && ex.service.set.Len() > 1 {
		r.Begin(&ex.watch)
	}
	if r.Policy.Mode == hedge.On || ex.watch.Watched {
		ex.armHedge(now, r.DelayOf(now, ex.watch.Class))
	}
}

// launch starts the next attempt: at ep or, if ep is nil, where the policy picks once
// the service has a slot. The attempt may be over before launch returns.
func (ex *Exchange) launch(kind attemptKind, ep *lb.Endpoint) {
	a := &ex.attempts[ex.launched]
	ex.launched++
	ex.inFlight++
	a.kind, a.ep, a.index, a.replayed, a.awaits, a.late, a.errs = kind, nil, uint8(ex.launched-1), false, false, false, false
	a.state.become(attemptLaunched)
	if kind == retryAttempt {
		ex.service.stats.Retries++
	}
	switch ex.service.admit(a) {
	case slotGranted:
		a.send(ep)
	case slotQueued:
	case slotRefused:
		if kind == hedgeAttempt || ex.hedged {
			a.Failed(fault.NoSlot)
			return
		}
		a.Failed(fault.QueueFull) // a retry now would fail too
	}
}

// answerWith gives the caller res, which belongs to the attempt by, and cancels the others. by is
// nil for an answer of the route.
func (ex *Exchange) answerWith(by *Attempt, res *Response) {
	if ex.Route.outcomes != nil {
		if res = ex.passResponse(res); res == nil {
			return // ex may be over
		}
	}
	if ex.sessions != nil {
		res.Headers = ex.sessions.cookies(ex, by).Apply(res.Headers)
	}
	if f := ex.caller.Encode(ex, res); f != nil {
		res.Release()
		ex.fail(f)
		return
	}
	ex.leaveOpen(exchangeAnswered)
	if res.Source != nil {
		res.Source.Lease.follow(ex)
	}
	status := res.outcome()
	if by != nil && by.kind == hedgeAttempt && status < 500 {
		ex.Route.hedging.Won()
	}
	ex.conclude(&result{outcome: stats.OutcomeOf(status), by: by, res: res})
	ex.judge(fault.VerdictOf(status))
	ex.releasePending()
	ex.caller.Respond(ex, res)
	ex.cancelAttempts()
	ex.recycleIfDone()
}

func (ex *Exchange) answerBestOrFail(f *fault.Failure) {
	if res := ex.takeBest(); res != nil {
		ex.answerWith(ex.bestFrom, res)
		return
	}
	if ex.MaybeProcessed && f.Free() {
		f = fault.Reset // an earlier attempt may have been carried out
	}
	ex.fail(f)
}

func (ex *Exchange) fail(f *fault.Failure) {
	if ex.Route != nil && ex.Route.outcomes != nil && ex.passFailure(f) {
		return // ex may be over
	}
	ex.leaveOpen(exchangeAnswered)
	if !ex.copied {
		ex.reportFailure(f)
	}
	ex.conclude(&result{outcome: stats.OutcomeFailed, failure: f})
	ex.judgeFailure(f)
	ex.releasePending()
	ex.caller.Fail(ex, f)
	ex.cancelAttempts()
	ex.recycleIfDone()
}

// Cancel is called by the session when its peer has gone or withdraws the request. It
// reports whether attempts are left at the application; then Caller.Finished follows.
func (ex *Exchange) Cancel() (left bool) {
	ex.leaveOpen(exchangeCancelled)
	ex.conclude(&result{outcome: stats.OutcomeCancelled})
	ex.judge(fault.VerdictNone)
	ex.cancelAttempts()
	if left = ex.inFlight > 0; !left {
		ex.caller = nil
		ex.recycleIfDone()
	}
	return left
}

// leaveOpen ends the wait of the caller, which gets exactly one response.
func (ex *Exchange) leaveOpen(next exchangeState) {
	ex.state.become(next)
	ex.stopTimers()
	if ex.filtered > 0 {
		ex.endFilters()
	}
}

// judge gives the outcome of the request to the breaker of its service.
func (ex *Exchange) judge(v fault.Verdict) {
	if ex.service != nil {
		ex.bounds.judge(ex.shard.Loop.Now(), &ex.permit, v)
	}
}

// releasePending frees the exchange's place in max_pending once no attempt is in flight. The
// response comes after it: the caller's next request may begin in the same callback.
func (ex *Exchange) releasePending() {
	if ex.admitted && ex.inFlight == 0 {
		ex.admitted = false
		ex.service.shared.pending.Add(-1)
	}
}

// cancelAttempts cancels the attempts in flight. An attempt that the application may
// already work on lingers until the application has responded or the deadline passes.
func (ex *Exchange) cancelAttempts() {
	for i := range ex.attempts[:ex.launched] {
		ex.attempts[i].cancel()
	}
	if ex.best != nil {
		ex.takeBest().Release()
	}
	ex.releaseRequest()
}

// onDeadline aborts what is left: for a caller that waits, or for losers alone.
func (ex *Exchange) onDeadline() {
	for i := range ex.attempts[:ex.launched] {
		ex.attempts[i].abort()
	}
	if ex.state == exchangeOpen {
		ex.answerBestOrFail(fault.Deadline)
		return
	}
	ex.recycleIfDone()
}

// recycleIfDone recycles the exchange when nothing refers to it any more.
func (ex *Exchange) recycleIfDone() {
	if ex.inFlight > 0 || ex.state == exchangeOpen {
		return
	}
	if ex.deadline.Armed() {
		ex.shard.Loop.Stop(&ex.deadline)
	}
	ex.stopTimers()
	ex.releasePending()
	if ex.state == exchangeCancelled && ex.caller != nil {
		ex.caller.Finished(ex)
	}
	ex.exportTrace()
	ex.state.become(exchangeIdle)
	ex.pool.reuse(ex)
}
