package race

import (
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
)

// MaxAttempts bounds the attempts of one request, with free retries and hedges.
const MaxAttempts = 6

// maxFreeEndpoints bounds how many endpoints may fail for free: failed connects and GOAWAY.
const maxFreeEndpoints = 3

// Race launches the attempts of one request, and decides which response wins. Its parts hedging and
// retrying decide when another attempt follows. A Race calls its Owner once with the outcome, unless
// Stop comes first. Attempts that lost may be in flight for longer. After Stop the owner calls Cancel or Abort.
type Race struct {
	shard     *shard.Shard
	responses *Responses
	owner     Owner
	stream    *streamRace       // nil for the race of a request
	request   *protocol.Request // of the owner, who keeps it until Cancel
	state     raceState
	Entry

	attempts [MaxAttempts]Attempt
	Launched int // attempts used
	inFlight int // attempts that are not over
	tried    [MaxAttempts]*lb.Endpoint
	avoid    [1]*lb.Endpoint // where the latest attempt failed

	best           *Response // the best of the bad responses so far
	bestFrom       *Attempt  // the attempt that best belongs to
	MaybeProcessed bool      // the application may have seen the request
	awaited        bool      // the owner waits for Started

	hedging  hedging
	learning learning
	holding  holding
	ties     ties
	retrying retrying
	tries    tryTimer
	asking   asking
	queued   time.Duration // that attempts have spent in queues for slots
	interims interims
	marks    marks
	Traced   *Traced // nil means not sampled
}

// Owner is whose request a Race is run for.
type Owner interface {
	// Won gets the response of the attempt by. It owns res.
	Won(by *Attempt, res *Response)
	// Lost is why the request has no response.
	Lost(f *fault.Failure)
	// Lingered is called when an attempt that lingered has ended. After the last one InFlight is 0.
	Lingered(how Ended)
	// Interim gets an interim response, ahead of Won or Lost. res is valid until it returns.
	Interim(res *protocol.Response)
	// Started is called once after AwaitStart, if the attempt that waited gets its slot.
	Started()
	// Client is who the request came from.
	Client() shard.Client
}

// Ended says how an attempt has ended that lingered.
type Ended uint8

const (
	// Withdrawn means that the attempt has ended early: how long the application would have taken is not known.
	Withdrawn Ended = iota
	// Presumed means that the attempt was waited for until about the time of its response, or until the deadline,
	// without one.
	Presumed
	// Responded means that the application has responded.
	Responded
)

// Entry is what a request enters a race with.
type Entry struct {
	Service       *service.Service
	Policy        *Policy
	Key           uint64        // of the request, if the service picks by key
	Pin           *lb.Endpoint  // that the request is pinned to; nil means none
	Bytes         int           // length of the request
	CallerAttempt uint8         // attempt number of the request at its caller; 0 means the first
	CallerHedged  bool          // the caller hedges: the request is a hedge, or one is in flight beside it
	Tied          bool          // the request is a tied hedge
	Batch         bool          // the request, or its route, is batch
	NoHedge       bool          // the caller opted out of hedges, or the request is pinned
	Class         []byte        // the class of latency that the caller named; nil means none
	Keyed         bool          // the application recognizes copies of the request by their Idempotency-Key
	Hold          time.Duration // for how long from Start on the sender wants heads to be held; see Attempt.HoldsHead
}

// Start launches the first attempt. The timer of the first hedge is armed once the attempt is sent. The owner
// of the race has filled in the Entry. The race may be over before Start returns.
func (r *Race) Start(now time.Duration) {
	r.state.become(raceOn)
	r.hedging.start(now)
	r.launch(primaryAttempt, nil)
}

// launch starts the next attempt: at ep or, if ep is nil, where the policy picks once
// the service has a slot. The attempt may be over before launch returns.
func (r *Race) launch(kind attemptKind, ep *lb.Endpoint) {
	a := &r.attempts[r.Launched]
	r.Launched++
	r.inFlight++
	a.reset(kind, r.Launched-1)
	a.state.become(attemptLaunched)
	if kind == retryAttempt {
		r.Service.Stats.Retries++
	}
	switch r.Service.Admission.Admit(&a.place, &service.Ask{
		Stream: kind == streamAttempt,
		Key:    r.Key, Batch: r.Batch, Retry: kind == retryAttempt || r.CallerAttempt > 0,
		Hedge: kind == hedgeAttempt || r.CallerHedged, Tied: r.Tied, Spare: kind == primaryAttempt && r.CallerHedged,
	}) {
	case service.SlotGranted:
		a.send(ep)
	case service.SlotQueued:
		a.state.become(attemptQueued)
	case service.SlotRefused:
		if kind == hedgeAttempt || r.CallerHedged {
			a.Fail(fault.NoSlot) // only the caller's sidecar sees this: its primary is in flight
			return
		}
		a.Fail(fault.QueueFull)
	}
}

// Conclude gives the owner the best bad response, or f if there is none.
func (r *Race) Conclude(f *fault.Failure) {
	if r.best != nil {
		r.owner.Won(r.takeBest())
		return
	}
	if r.MaybeProcessed && f.Free() {
		f = fault.Reset // an earlier attempt may have been carried out
	}
	r.owner.Lost(f)
}

// Stop ends the race: no attempt begins any more. The owner has its outcome, or wants none.
func (r *Race) Stop() {
	if r.state != raceOn {
		return
	}
	r.state.become(raceOver)
	for _, t := range [...]*loop.Timer{&r.hedging.timer, &r.tries.timer, &r.retrying.timer} {
		if t.Armed() {
			r.shard.Loop.Stop(t)
		}
	}
}

// Cancel cancels the attempts in flight, of a race that is over, and forgets the best bad response. An
// attempt that the application may already work on lingers until the application has responded or
// Abort. decided reports whether the caller has a response or a failure; else it has gone.
func (r *Race) Cancel(decided bool) {
	for i := range r.attempts[:r.Launched] {
		r.attempts[i].cancel(decided)
	}
	if _, res := r.takeBest(); res != nil {
		res.Release()
	}
}

// Abort ends the attempts in flight at once. f is why: fault.Deadline if their time is up.
func (r *Race) Abort(f *fault.Failure) {
	for i := range r.attempts[:r.Launched] {
		r.attempts[i].abort(f)
	}
}

// InFlight is the number of attempts that are not over.
func (r *Race) InFlight() int { return r.inFlight }

// mayStillWin reports whether an attempt is left that could win: one that neither is over nor lingers.
func (r *Race) mayStillWin() bool {
	for i := range r.attempts[:r.Launched] {
		if s := r.attempts[i].state; s != attemptIdle && s != attemptLingering {
			return true
		}
	}
	return false
}

// cascade reports whether the request is itself a hedge or retry of its caller.
func (r *Race) cascade() bool { return r.CallerAttempt > 0 || r.CallerHedged }

// Buffered is the number of bytes that the race holds: the best bad response so far, and what the carriers
// of its attempts hold.
func (r *Race) Buffered() (n int) {
	if r.best != nil {
		n = r.best.Held
	}
	for i := range r.attempts[:r.Launched] {
		if a := &r.attempts[i]; a.carrier != nil {
			n += a.carrier.Buffered(a)
		}
	}
	return n
}

// CountWin notes that the caller got the response of by, which counts as status.
func (r *Race) CountWin(by *Attempt, status int) {
	if by.kind == hedgeAttempt && status < 500 {
		r.Policy.HedgeRoute.Counts.HedgesWon++
	}
}

// Record fills in what the access log says of attempts. by is the attempt that won, or nil.
func (r *Race) Record(to *accesslog.Record, by *Attempt, now time.Duration) {
	to.Queued, to.Attempts, to.Hedges = r.queued, r.Launched, int(r.hedging.sent)
	for i := range r.attempts[:r.Launched] {
		a := &r.attempts[i]
		if a.kind == retryAttempt {
			to.Retries++
		}
		if a.visit.ep != nil {
			to.Endpoint = a.visit.ep.Addr
		}
		to.Queued += a.place.Waits(now)
	}
	if by != nil {
		to.Endpoint, to.HedgeWon = by.visit.ep.Addr, by.kind == hedgeAttempt
	}
}

// Init prepares a race of the loop of w, whose requests belong to o.
func (r *Race) Init(w *shard.Shard, responses *Responses, o Owner, request *protocol.Request) {
	r.shard, r.responses, r.owner, r.request = w, responses, o, request
	r.hedging.init(r)
	r.learning.race, r.holding.race, r.ties.race = r, r, r
	r.retrying.init(r)
	r.tries.init(r)
	r.asking.init(r)
	for i := range r.attempts {
		a := &r.attempts[i]
		a.race = r
		a.place.Init(a)
	}
}

// Reset makes the race ready for the next request. No attempt is in flight.
func (r *Race) Reset() {
	if r.state == raceIdle {
		return // never started
	}
	r.state.become(raceIdle)
	for i := range r.attempts[:r.Launched] { // a removed endpoint must not be kept here
		r.attempts[i].visit.ep = nil
	}
	r.Launched = 0
	r.Entry, r.interims, r.queued = Entry{}, interims{}, 0
	r.tried, r.avoid[0] = [MaxAttempts]*lb.Endpoint{}, nil
	r.MaybeProcessed, r.awaited = false, false
	r.hedging.reset()
	r.learning.reset()
	r.holding.hold, r.ties.tie = 0, untied
	r.retrying.reset()
	r.marks.reset()
}
