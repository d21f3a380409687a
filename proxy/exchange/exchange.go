package exchange

import (
	"iter"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

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

	race     race.Race
	deadline loop.Timer
	outcome  outcomes
	copied   bool // a copy of another request: see Copies
	began    time.Duration

	Injected stats.Injected // faults of the route
	Fallback Fallback
	Cached   stats.Cached // what the route's cache did
}

// course is what an exchange was admitted to.
type course struct {
	Route    *Route
	service  *service.Service
	passage  service.Passage
	sessions *service.Sessions // of the service when the exchange began; nil means none
	key      uint64            // of the request, if the service picks by key
	pin      *lb.Endpoint      // that the request is pinned to; nil means none
}

// outcomes is which filters of the route see the request and its outcome.
type outcomes struct {
	filtered uint8 // filters that have seen the request and not its end; they are the first ones
	decided  bool  // filters have begun to see the outcome
	outer    uint8 // filters that have not seen it; they are the first ones
}

// Open reports whether the caller still waits.
func (ex *Exchange) Open() bool { return ex.state == exchangeOpen }

// Begin starts on a complete request that came in at l. r is nil if it has no route.
// The exchange may be over before Begin returns.
func (ex *Exchange) Begin(r *Route, l *Listener) {
	ex.open(l)
	f := ex.refuse(r, l, ex.began)
	if f == nil && r.Answer != nil {
		r.respond(ex)
		return
	}
	if f == nil && r.early != nil {
		ex.Route = r
		ex.takePin(r.Service) // the filter sees what the application sees
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
	ex.enter()
	ex.race.Start(now)
}

// enter fills in what the admitted request enters the race with.
func (ex *Exchange) enter() {
	e := &ex.race.Entry
	e.Service, e.Policy, e.Key, e.Pin, e.Bytes = ex.service, &ex.Route.Policy, ex.key, ex.pin, ex.size()
	e.Attempt, e.Hedged, e.Batch, e.NoHedge, e.Class = ex.Request.Attempt, ex.Request.Hedge, ex.batch, ex.NoHedge, ex.ClassName
}

func (ex *Exchange) open(l *Listener) {
	w := ex.shard
	ex.began = w.Loop.Now()
	ex.state.become(exchangeOpen)
	if ex.copied = l.copies; ex.copied {
		return
	}
	w.Stats.Requests++
	w.Milliseconds.Now(ex.began).Arrived(ex.size())
	if w.Sampler.On {
		ex.sample(l)
	}
}

// CheckHead applies rules and rate limits to a request whose body has not arrived. Begin does not apply them
// again. ex keeps the route r, which may be nil. final reports whether the request needs no body: Begin responds
// at once, with a failure or with the answer of the route.
func (ex *Exchange) CheckHead(r *Route, l *Listener) (final bool) {
	ex.Refusal = ex.refuse(r, l, ex.shard.Loop.Now())
	ex.Route, ex.headChecked = r, true
	return ex.Refusal != nil || r.Answer != nil
}

// HeadChecked reports whether CheckHead was called.
func (ex *Exchange) HeadChecked() bool { return ex.headChecked }

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

// admit applies the limits of the process and of the route's service.
func (ex *Exchange) admit(r *Route) (f *fault.Failure) {
	ex.Route = r
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
	if f = s.Pass(&ex.passage, ex.began, ex.batch, ex); f != nil {
		return f
	}
	ex.service = s
	s.Arrived(ex.began, ex.size())
	if s.Sessions != nil {
		ex.join(s)
	}
	ex.Request.Service = s.WireName()
	ex.Request.Idempotent = r.mayRepeat(&ex.Request)
	return nil
}

var _ service.Claimant = (*Exchange)(nil)

// Concurrency implements service.Claimant.
func (ex *Exchange) Concurrency() int { return ex.caller.Concurrency(ex) }

// WithOthers counts ex and those of others that are in flight at the service of its route. A nil one of others
// does not count.
func (ex *Exchange) WithOthers(others iter.Seq[*Exchange]) int {
	n := 1
	for other := range others {
		if other != nil && other != ex && other.service == ex.Route.Service {
			n++
		}
	}
	return n
}

// safeMethod reports whether the method alone allows sending a request twice: GET and HEAD.
func safeMethod(req *protocol.Request) bool {
	return req.Codec == protocol.CodecHTTP && (string(req.Method) == "GET" || string(req.Method) == "HEAD")
}

// setDeadline arms the deadline: the caller's own or the route's timeout, the sooner of both.
func (ex *Exchange) setDeadline() {
	left := ex.TimeLeft(ex.Route, ex.began)
	ex.Request.Deadline = ex.began + left
	ex.shard.Loop.After(left, &ex.deadline)
}

// answerWith gives the caller res, which belongs to the attempt by, and cancels the others. by is
// nil for an answer of the route.
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
	ex.leaveOpen(exchangeAnswered)
	if res.Source != nil {
		res.Source.Stream.Follow(ClientOf(ex.caller), &ex.passage)
	}
	status := res.Outcome()
	if by != nil {
		by.Won(status)
	}
	ex.conclude(&result{outcome: stats.OutcomeOf(status), by: by, res: res})
	ex.judge(fault.VerdictOf(status))
	ex.releasePending()
	ex.caller.Respond(ex, res)
	ex.finish(true)
	ex.recycleIfDone()
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

// releasePending frees the exchange's place in max_pending once no attempt is in flight. The
// response comes after it: the caller's next request may begin in the same callback.
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

// owner is an Exchange as the Owner of its race.
type owner Exchange

// Won implements Owner.
func (o *owner) Won(by *race.Attempt, res *race.Response) { (*Exchange)(o).answerWith(by, res) }

// Lost implements Owner.
func (o *owner) Lost(f *fault.Failure) { (*Exchange)(o).fail(f) }

// Ended implements Owner.
func (o *owner) Ended() { (*Exchange)(o).recycleIfDone() }

// Interim implements Owner.
func (o *owner) Interim(res *protocol.Response) {
	if to, ok := o.caller.(InterimCaller); ok {
		to.Interim((*Exchange)(o), res)
	}
}

// Peer implements Owner.
func (o *owner) Peer() string { return o.caller.RemoteAddr() }

// MaybeProcessed reports whether an application may have seen the request.
func (ex *Exchange) MaybeProcessed() bool { return ex.race.MaybeProcessed }
