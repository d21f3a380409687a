package race

import (
	"math"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/lb/spare"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/fifo"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

type attemptKind uint8

const (
	primaryAttempt attemptKind = iota
	retryAttempt
	hedgeAttempt
	streamAttempt // of a Stream, also after one that failed
)

// Attempt is one try of a request at one endpoint. The race starts and cancels it. Its carrier sends it, and ends it
// with Respond, Fail or Finish. Until it is over, its endpoint counts it as pending, and it keeps its slot of the
// service.
type Attempt struct {
	race  *Race
	kind  attemptKind
	index uint8 // position in the race; also the attempt number on the wire
	state attemptState

	replayed bool // sent a second time over HTTP: the application may have seen it before
	awaits   bool // the end of the gRPC call that it began, a stream, gives the verdict
	late     bool // its endpoint was judged for not responding in time
	errs     bool // its response is an error of 4xx or 5xx

	ep    *lb.Endpoint // nil before one is picked
	sent  time.Duration
	found spare.Level // the load of ep before the attempt

	carrier   Carrier // who has the attempt now; nil if nobody has
	carrierID uint64  // chosen by carrier

	place   service.Place       // its slot of the service, or its place in the queue for one
	waiting fifo.Node[*Attempt] // in the queue of an upstream
}

// Carry gives the attempt to c, under an id that c chooses.
func (a *Attempt) Carry(c Carrier, id uint64) { a.carrier, a.carrierID = c, id }

// Detach takes the attempt from its carrier, which must end it or pass it on.
func (a *Attempt) Detach() { a.carrier = nil }

// ID is the id that the attempt's carrier chose.
func (a *Attempt) ID() uint64 { return a.carrierID }

// Endpoint is where the attempt was sent.
func (a *Attempt) Endpoint() *lb.Endpoint { return a.ep }

// Lingering reports whether nobody waits for the response any more.
func (a *Attempt) Lingering() bool { return a.state == attemptLingering }

// Codec is the wire format of the request.
func (a *Attempt) Codec() protocol.Codec { return a.race.request.Codec }

// LogsIn reports whether the request may log in the connection that it is sent on. No other request may be
// sent on that.
func (a *Attempt) LogsIn() bool { return a.race.request.Login }

// Client returns who the request came from.
func (a *Attempt) Client() shard.Client { return a.race.owner.Client() }

// ToHead reports whether the request is a HEAD. Its response has no body.
func (a *Attempt) ToHead() bool { return string(a.race.request.Method) == "HEAD" }

// NewResponse returns an empty response, to end the attempt with.
func (a *Attempt) NewResponse() *Response { return a.race.responses.New() }

// TimeLeft returns how long the caller still waits, as far as this sidecar knows.
func (a *Attempt) TimeLeft() time.Duration { return a.race.request.Deadline - a.race.shard.Loop.Now() }

// SetTimeLeft makes the headers of the request say the time left, in memory of the race.
func (a *Attempt) SetTimeLeft() {
	req, m := a.race.request, &a.race.marks
	req.Headers, m.timeLeft = protocol.SetTimeLeft(req.Headers, a.TimeLeft(), m.timeLeft)
}

// Timeout is the route's timeout of a request.
func (a *Attempt) Timeout() time.Duration { return a.race.Policy.Timeout }

// Repeatable reports whether the request may be sent again, if the budget allows, after its connection was
// lost.
func (a *Attempt) Repeatable() bool { return a.race.repeatable() }

// MayReplay reports whether the attempt, whose connection was stale, may be sent once more. It pays for
// that, so Replay must follow.
func (a *Attempt) MayReplay() bool {
	return !a.replayed && a.state == attemptSent && a.race.mayReplay()
}

// Replay notes that the attempt is sent once more. The application may have seen the
// request: the connection may have been lost because of it.
func (a *Attempt) Replay() {
	a.replayed, a.race.MaybeProcessed = true, true
	a.race.shard.Stats.Replays++
}

// Granted implements service.Waiter.
func (a *Attempt) Granted(waited time.Duration) {
	a.race.queued += waited
	a.send(nil)
}

// withdraw takes the attempt out of the queue for slots.
func (a *Attempt) withdraw() { a.race.queued += a.race.Service.Withdraw(&a.place) }

// send gives the attempt to ep's upstream; if ep is nil, the policy picks the endpoint.
func (a *Attempt) send(ep *lb.Endpoint) {
	r, now := a.race, a.race.shard.Loop.Now()
	if ep == nil {
		q := r.Service.Query(r.Key, r.tried[:a.index])
		q.Pin = r.Pin
		ep = r.Service.Pick(q, r.avoid[:])
	}
	if ep == nil {
		a.Fail(fault.NoEndpoint)
		return
	}
	a.ep, a.sent = ep, now
	a.state.become(attemptSent)
	if r.watch.Hedgeable && a.kind == primaryAttempt {
		a.watchShadow(now)
	}
	r.tried[a.index] = ep
	if a.kind == streamAttempt {
		a.open()
		return
	}
	a.found = ep.Start(now)
	if limit := r.Policy.tryTimeout; limit > 0 && !r.try.Armed() {
		r.shard.Loop.After(limit, &r.try)
	}
	if r.Batch {
		ep.CountBatch(1)
	}
	to := ep.Ext.(*service.Endpoint)
	to.CountSent(r.Bytes, a.kind == retryAttempt, a.kind == hedgeAttempt)
	a.beginSpan()
	upstreamOf(to).Send(a)
}

// watchShadow has shadow mode observe a primary that starts at a.ep.
func (a *Attempt) watchShadow(now time.Duration) {
	r, shadow := a.race, a.race.Policy.Hedging.Shadow()
	w := &r.watch.Watch
	w.Left = r.request.Deadline - now
	if shadow.Sent(now, w, a.ep.Ext.(*service.Endpoint).ID) {
		shadow.Note(now, w, r.Service.Set.Stalled(now, a.ep) || !a.ep.Spare(now))
	}
}

// wireAttempt is the attempt number for the next hop, which includes the attempts that led to
// this race. It leaves room below 255, since older sidecars add theirs in eight bits.
func (a *Attempt) wireAttempt() uint8 {
	return uint8(min(int(a.race.Attempt)+int(a.index), math.MaxUint8-MaxAttempts))
}

// Respond ends the attempt with the endpoint's complete response. It owns res.
func (a *Attempt) Respond(res *Response) {
	r := a.race
	now := r.shard.Loop.Now()
	lingering := a.Lingering()
	a.ep.Ext.(*service.Endpoint).Stats.BytesOut += uint64(res.Size())
	if !lingering && a.estimated() {
		r.Policy.Hedging.Observe(now, now-a.sent, &r.watch)
	}
	if len(res.Trailers) > 0 || len(res.Body) == 0 || res.Status != 200 {
		a.awaits = res.ReadGRPC(r.request)
		a.ep.Ext.(*service.Endpoint).ReadLoad(now, res.Trailers)
	}
	a.errs = res.Outcome() >= 400
	if res.Failed() {
		a.end(now, stats.AttemptFailure)
	} else {
		a.judgeHedge(now)
		a.end(now, stats.AttemptServed)
	}
	if lingering {
		res.Release()
		r.owner.OnEnd()
		return
	}
	r.onResponse(a, res)
}

// Won notes that the caller got the response of the attempt, which counts as status.
func (a *Attempt) Won(status int) {
	if a.kind == hedgeAttempt && status < 500 {
		a.race.Policy.Hedging.Won()
	}
}

// RespondLocally ends the attempt with a response of the upstream's own, which says
// nothing about the endpoint. It owns res.
func (a *Attempt) RespondLocally(res *Response) {
	a.end(a.race.shard.Loop.Now(), stats.AttemptNone)
	a.race.onResponse(a, res)
}

// Fail ends the attempt without a response.
func (a *Attempt) Fail(f *fault.Failure) {
	r := a.race
	lingering := a.Lingering()
	outcome := brokenBy(f)
	if a.replayed && f.Free() {
		f = fault.Reset // the first time it was sent, the application may have seen it
	}
	switch class := r.Policy.classOf(f); {
	case f == fault.NoSlot, f == fault.NoRoute, f == fault.RequestTooLarge: // the other sidecar sent it to no application
	case class == fault.RetryIfIdempotent, class == fault.RetryNever && a.ep != nil:
		r.MaybeProcessed = true
	}
	a.span().Note(spanOutcome(f), 0, f.Code)
	now := r.shard.Loop.Now()
	if a.ep != nil && outcome == stats.AttemptNone {
		reportRefusal(a.ep, now, a.sent, f, r.Batch)
	}
	a.end(now, outcome)
	if a.kind == hedgeAttempt && (f.Free() || f == fault.NoSlot) {
		r.hedgeMissed()
	}
	if lingering {
		r.owner.OnEnd()
		return
	}
	if f != fault.NoSlot {
		r.avoid[0] = a.ep
	}
	r.onFailure(a, f)
}

// Finish ends a cancelled attempt. processed reports whether the application finished it.
func (a *Attempt) Finish(processed bool) {
	now, outcome := a.race.shard.Loop.Now(), stats.AttemptNone
	if processed {
		outcome = stats.AttemptUnseen
		a.judgeHedge(now)
	}
	a.end(now, outcome)
	a.race.owner.OnEnd()
}

// cancel ends the attempt, or lets it linger, if it is in flight. decided reports whether the race has an
// outcome.
func (a *Attempt) cancel(decided bool) {
	switch a.state {
	case attemptIdle, attemptLingering:
	case attemptLaunched, attemptQueued:
		a.withdraw()
		a.end(a.race.shard.Loop.Now(), stats.AttemptNone)
	case attemptSent:
		if decided {
			a.recordLate() // its hedge won
			a.recordOvertaken()
		}
		a.span().Withdraw(a.race.shard.Loop.Now())
		if a.carrier.Cancel(a) {
			a.state.become(attemptLingering)
			return
		}
		a.recordWithdrawn()
		a.end(a.race.shard.Loop.Now(), stats.AttemptNone)
	}
}

// abort ends the attempt at once because its deadline has passed.
func (a *Attempt) abort() {
	now := a.race.shard.Loop.Now()
	switch a.state {
	case attemptIdle:
		return
	case attemptLaunched, attemptQueued:
		a.withdraw()
	case attemptSent:
		a.recordLate()
		a.recordWithdrawn()
		a.race.MaybeProcessed = true
		a.judgeLate(now)
		a.recordServiceTime()
		a.span().Note(spanOutcome(fault.Deadline), 0, fault.Deadline.Code)
		a.carrier.Abort(a)
	case attemptLingering:
		a.judgeHedge(now)
		a.judgeLate(now)
		a.recordServiceTime()
		a.carrier.Abort(a)
	}
	a.end(now, stats.AttemptNone)
}

// judgeLate judges the endpoint once for not responding in time: retry.per_try_timeout and the
// deadline may both pass.
func (a *Attempt) judgeLate(now time.Duration) { a.late = a.late || a.ep.TimedOut(now) }

// recordServiceTime gives the automatic limit the time that the application took, at least.
func (a *Attempt) recordServiceTime() {
	if a.place.HasSlot() {
		a.race.Service.RecordServiceTime(a.sent)
	}
}

// estimated reports whether the attempt counts for the estimate of latency.
func (a *Attempt) estimated() bool { return a.kind == primaryAttempt && !a.race.Batch }

// recordOvertaken notes when the response of a hedge came.
func (a *Attempt) recordOvertaken() {
	r, now := a.race, a.race.shard.Loop.Now()
	if a.estimated() && r.hedges > 0 {
		r.overtaken = now
		r.Policy.Hedging.Overtaken(now, now-a.sent)
	}
}

// judgeHedge tells the route how long a hedge took or, if this is the primary, what the hedge saved, once the
// application has done with the attempt.
func (a *Attempt) judgeHedge(now time.Duration) {
	r, saved := a.race, time.Duration(0)
	switch {
	case a.kind == hedgeAttempt:
		r.Policy.Hedging.Responded(now, now-a.sent)
		return
	case r.hedges == r.wasted || !a.estimated():
		return
	case r.overtaken > 0:
		saved = now - r.overtaken
	case a.Lingering(): // its caller has gone, or its time was up
		return
	}
	r.Policy.Hedging.Judge(now, now-a.sent, saved)
}

// recordLate tells the estimate that a primary took longer than it was given, lest it sink.
func (a *Attempt) recordLate() {
	if a.estimated() {
		a.race.Policy.Hedging.Censor(a.race.shard.Loop.Now(), &a.race.watch)
	}
}

// recordWithdrawn notes for how long a hedge had no response before it was withdrawn.
func (a *Attempt) recordWithdrawn() {
	if now := a.race.shard.Loop.Now(); a.kind == hedgeAttempt {
		a.race.Policy.Hedging.Withdrew(now, now-a.sent)
	}
}

// end is the only way to idle. It gives back what the attempt holds.
func (a *Attempt) end(now time.Duration, outcome stats.AttemptOutcome) {
	a.state.become(attemptIdle)
	if a.ep != nil {
		a.report(now, outcome)
	}
	a.endSpan(now)
	a.race.inFlight--
	if a.kind == hedgeAttempt {
		a.race.Service.Hedging.Done()
	}
	a.race.Service.Leave(&a.place)
}

// brokenBy returns the outcome of an attempt that ended with f, and without a response.
func brokenBy(f *fault.Failure) stats.AttemptOutcome {
	if f.BlamesEndpoint() {
		return stats.AttemptBroken
	}
	return stats.AttemptNone
}

// reportRefusal tells the endpoint that it did no work for a request or stream that was sent to it, and
// ended with f. A sidecar refuses batch requests before others, so that says nothing about its room for
// these.
func reportRefusal(ep *lb.Endpoint, now, sent time.Duration, f *fault.Failure, batch bool) {
	switch {
	case f.Local():
	case f.NoRoom() && !batch:
		ep.CountRefused(now, sent)
	default:
		ep.CountRejected(now, sent)
	}
}

// judge tells the endpoint what the outcome says about it.
func (a *Attempt) judge(now time.Duration, outcome stats.AttemptOutcome) {
	switch outcome {
	case stats.AttemptBroken, stats.AttemptFailure:
		a.ep.Judge(now, false)
		a.ep.CountDeclined(now, now-a.sent, true)
	case stats.AttemptServed:
		if !a.awaits {
			a.ep.Judge(now, true)
		}
		if a.errs {
			a.ep.CountDeclined(now, now-a.sent, false)
		}
	case stats.AttemptNone, stats.AttemptUnseen:
	}
}

// report gives the outcome to the endpoint. The latency of a failure is left out: a
// quick failure must not make the endpoint look fast. A stream has no latency.
func (a *Attempt) report(now time.Duration, outcome stats.AttemptOutcome) {
	a.judge(now, outcome)
	if a.kind == streamAttempt {
		a.ep.CloseStream()
		return
	}
	s, latency := a.race.Service, now-a.sent
	a.ep.Ext.(*service.Endpoint).CountEnd(outcome, latency)
	if a.race.Batch { // its latency has the time for which it let others go first
		a.ep.CountBatch(-1)
		latency = 0
	}
	switch outcome {
	case stats.AttemptNone, stats.AttemptBroken:
		a.ep.Drop()
		return
	case stats.AttemptFailure:
		latency = 0
	case stats.AttemptServed:
		if a.errs && latency > 0 {
			latency = a.ep.AtLeast(latency)
		}
	case stats.AttemptUnseen:
	}
	a.ep.Finish(now, latency)
	if a.ep.Refuses() {
		a.ep.CountTaken(a.sent)
	}
	s.Responded(now, latency)
	if latency > 0 {
		a.ep.Learn(now, a.race.Policy.Hedging.Scaled(now, latency, a.race.watch.Class), a.found)
	}
	a.recordServiceTime()
}
