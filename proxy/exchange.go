package proxy

import (
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/trace"
)

// maxAttempts bounds the attempts of one exchange, free retries and hedges
// included.
const maxAttempts = 6

// maxFreeEndpoints bounds how many endpoints are asked in vain for free (failed
// connects, GOAWAY) before the exchange fails.
const maxFreeEndpoints = 3

// replier is the downstream's end of an exchange: the session it came from.
// Exactly one of reply and fail is called, once, unless the session withdrew
// the exchange with cancel.
type replier interface {
	// encode makes ready what reply is to say, or tells why the caller can't have
	// ans. One of reply and fail follows before anything else.
	encode(ex *exchange, ans *answer) *Failure
	// reply takes ownership of ans, which encode has let pass.
	reply(ex *exchange, ans *answer)
	fail(ex *exchange, f *Failure)
	// greedy tells, with memory short, that ex is to be refused for what its
	// caller holds.
	greedy(ex *exchange) bool
	// at is where its connection came in, and peer the other end's "ip:port".
	at() *listener
	peer() string
	// over tells that the last attempt of a withdrawn exchange has ended. It
	// is not called when cancel said that nothing was left at the application.
	over(ex *exchange)
}

// exchangeState is where an exchange stands.
//
//	idle ──begin──▶ active ──▶ answered ──last attempt over──▶ idle
//	                   └─cancel▶ abandoned ──last attempt over──▶ idle
type exchangeState uint8

const (
	exchangeIdle      exchangeState = iota // on the free list, or being filled by a downstream
	exchangeActive                         // the caller waits
	exchangeAnswered                       // the caller has its response; losers may still be out
	exchangeAbandoned                      // the caller is gone; attempts are still out
)

// exchange is the life of one request: its deadline, its attempts, and the one
// response that comes of them. It owns the request's memory, and is recycled
// when the caller is answered or gone and the last attempt is over.
type exchange struct {
	w     *shard
	pool  *pool
	from  replier
	tag   uint64 // the downstream's own: the stream id of a link, the id of a Dubbo call
	place int    // the downstream's own: where it keeps the exchange
	state exchangeState

	message
	course
	tally

	attempts [maxAttempts]attempt
	tried    [maxAttempts]*lb.Endpoint
	failedAt [1]*lb.Endpoint // where the latest attempt failed that had its turn

	best     *answer  // best of the bad answers so far
	bestOf   *attempt // that it came of
	reached  bool     // the application may have seen the request
	lastFail *Failure // of the latest failed attempt since the last retry; of a hedge only when no other failed

	watch hedge.Watch // of the primary, in shadow mode

	traced     *traced     // nil: not sampled
	traceState trace.State // of the request, where it was marked
	marked     bool        // traceMember is there, where it can be

	deadline Timer
	hedge    Timer
	hedgeDue time.Duration // when hedge should fire; hedgeWhenever: it was late
}

// active reports whether the caller still waits.
func (ex *exchange) active() bool { return ex.state == exchangeActive }

// course is what an exchange was admitted to.
type course struct {
	route    *route
	svc      *service
	bounds   *serviceBounds // of svc when the exchange began
	pass     pass           // of the breaker in bounds
	admitted bool           // counts against max_pending of svc
}

// tally is what an exchange counts.
type tally struct {
	began   time.Duration
	queued  time.Duration // waited for slots
	retries int           // paid and status retries so far
	free    int           // free retries so far
	hedges  int           // hedges that reached an endpoint
	missed  int           // hedges that reached none
	out     int           // attempts that are not over
	n       int           // attempts used
}

// begin takes a complete request that came in by a door, and starts on it. The
// exchange may be answered before begin returns.
func (ex *exchange) begin(r *route, by *listener) {
	w := ex.w
	ex.began = w.loop.Now()
	ex.state = exchangeActive
	w.stats.Requests++
	w.millis.now(ex.began).arrived(ex.size())
	if w.tracer.on {
		ex.sample(by)
	}
	switch {
	case by.limited(ex.began):
		ex.fail(FailRateLimited)
		return
	case ex.stopped != nil:
		ex.fail(ex.stopped)
		return
	case r == nil:
		ex.fail(FailNoRoute)
		return
	}
	ex.route, ex.svc = r, r.svc
	ex.attempt, ex.hedged = ex.req.Attempt, ex.req.Hedge
	if f := ex.admit(); f != nil {
		ex.svc = nil
		ex.fail(f)
		return
	}
	ex.svc.stats.Requests++
	ex.svc.stats.BytesIn += uint64(ex.size())
	ex.req.Service = ex.svc.shared.wire
	ex.req.Idempotent = ex.req.Idempotent || r.idempotent || safeMethod(&ex.req)

	left := r.timeout
	if ex.req.Deadline != 0 {
		left = min(left, ex.req.Deadline-ex.began)
	}
	if left <= 0 {
		ex.fail(FailDeadline)
		return
	}
	ex.req.Deadline = ex.began + left
	w.loop.After(left, &ex.deadline)
	ex.svc.hedging.Primary(ex.began, r.hedging)
	if r.hedging.Policy.Mode != hedge.Off && !ex.unhedged {
		ex.armHedge(ex.began, r.hedging.Delay(ex.began))
	}
	ex.launch(primaryAttempt, nil)
}

// admit applies the limits of the process and of the service.
func (ex *exchange) admit() (f *Failure) {
	if ex.w.shared.budget.full(ex.held) && ex.from.greedy(ex) {
		return FailOverloaded
	}
	ex.bounds = ex.svc.bounds
	ex.pass, f = ex.svc.shared.admit(ex.began, ex.bounds)
	ex.admitted = f == nil
	return f
}

// leave gives the place among max_pending back when no attempt is out any more. It
// comes before the answer, behind which the caller's next request may begin at once.
func (ex *exchange) leave() {
	if ex.admitted && ex.out == 0 {
		ex.admitted = false
		ex.svc.shared.pending.Add(-1)
	}
}

// safeMethod tells the methods that may be sent twice by definition of the
// mode: GET and HEAD only (design: gate not_idempotent).
func safeMethod(req *protocol.Request) bool {
	return req.Codec == protocol.CodecHTTP && (string(req.Method) == "GET" || string(req.Method) == "HEAD")
}

// launch starts the next attempt, at ep or, when ep is nil, where the policy
// points once the service has a slot.
func (ex *exchange) launch(kind attemptKind, ep *lb.Endpoint) {
	a := &ex.attempts[ex.n]
	ex.n++
	ex.out++
	a.kind, a.ep, a.index, a.replayed = kind, nil, uint8(ex.n-1), false
	if kind == retryAttempt {
		ex.svc.stats.Retries++
	}
	switch ex.svc.admit(a) {
	case slotGranted:
		a.send(ep)
	case slotQueued:
	case slotRefused:
		a.state = attemptWaiting
		if kind == hedgeAttempt || ex.hedged {
			a.failed(FailNoSlot)
			return
		}
		a.failed(FailQueueFull) // and would be in the same moment again
	}
}

// win answers the caller with ans, which came of an attempt, and withdraws what
// else is out.
func (ex *exchange) win(by *attempt, ans *answer) {
	if f := ex.from.encode(ex, ans); f != nil {
		ans.Release()
		ex.fail(f)
		return
	}
	ex.enter(exchangeAnswered)
	if by.kind == hedgeAttempt && ans.Status < 500 {
		ex.route.hedging.Won()
	}
	ex.finished(&conclusion{outcome: outcomeOf(ans.Status), by: by, ans: ans})
	ex.judge(verdictOf(ans.Status))
	ex.leave()
	ex.from.reply(ex, ans)
	ex.withdraw()
	ex.settle()
}

// giveUp answers the caller with the best bad answer, or with f.
func (ex *exchange) giveUp(f *Failure) {
	if ans := ex.takeBest(); ans != nil {
		ex.win(ex.bestOf, ans)
		return
	}
	ex.fail(f)
}

func (ex *exchange) fail(f *Failure) {
	ex.enter(exchangeAnswered)
	ex.w.stats.failed(f)
	ex.finished(&conclusion{outcome: OutcomeFailed, failure: f})
	ex.judge(f.verdict())
	ex.leave()
	ex.from.fail(ex, f)
	ex.withdraw()
	ex.settle()
}

// cancel is the downstream's word that the caller is gone. It tells whether
// something is left at the application, in which case over follows.
func (ex *exchange) cancel() (left bool) {
	ex.enter(exchangeAbandoned)
	ex.finished(&conclusion{outcome: OutcomeCancelled})
	ex.judge(verdictNone)
	ex.withdraw()
	if left = ex.out > 0; !left {
		ex.from = nil
		ex.settle()
	}
	return left
}

// enter is the one place where a live exchange changes its state.
func (ex *exchange) enter(to exchangeState) {
	if ex.state != exchangeActive {
		panic("proxy: exchange answered twice")
	}
	ex.state = to
	ex.w.loop.Stop(&ex.hedge)
}

// withdraw cancels the attempts that are still out. Those that the application
// may already work on stay out until it has answered or the deadline passes.
func (ex *exchange) withdraw() {
	for i := range ex.attempts[:ex.n] {
		ex.attempts[i].cancel()
	}
	if ex.best != nil {
		ex.takeBest().Release()
	}
	ex.releaseRequest()
}

// onDeadline: time is up for the caller, or for the losers.
func (ex *exchange) onDeadline() {
	if ex.state == exchangeActive {
		for i := range ex.attempts[:ex.n] {
			ex.attempts[i].abort()
		}
		ex.giveUp(FailDeadline)
		return
	}
	for i := range ex.attempts[:ex.n] {
		ex.attempts[i].abort()
	}
	ex.settle()
}

// settle recycles the exchange when nothing refers to it any more.
func (ex *exchange) settle() {
	if ex.out > 0 || ex.state == exchangeActive {
		return
	}
	ex.w.loop.Stop(&ex.deadline)
	ex.w.loop.Stop(&ex.hedge)
	ex.leave()
	if ex.state == exchangeAbandoned && ex.from != nil {
		ex.from.over(ex)
	}
	ex.report()
	ex.pool.reuse(ex)
}
