package exchange

import (
	"math"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

type attemptKind uint8

const (
	primaryAttempt attemptKind = iota
	retryAttempt
	hedgeAttempt
)

// attemptState is where an attempt stands.
//
//	over ─▶ waiting ─▶ sent ─▶ over
//	           │         └─cancel▶ lingering ─▶ over
//	           └─cancel▶ over
type attemptState uint8

const (
	attemptIdle      attemptState = iota // not begun, or ended
	attemptQueued                        // in the service's queue for a slot
	attemptSent                          // with an upstream
	attemptLingering                     // withdrawn, but its endpoint may still work on it
)

// Attempt is one try of an exchange at one endpoint. It lives inside its
// exchange. Its endpoint counts it as pending, and its service's slot is held,
// until it is over.
type Attempt struct {
	ex    *Exchange
	kind  attemptKind
	index uint8 // position in the exchange; also the attempt number on the wire
	state attemptState
	slot  bool // holds a slot of the service

	replayed bool // sent again over HTTP: the application may have seen it before

	ep   *lb.Endpoint
	sent time.Duration

	// What the upstream keeps here: who has the attempt, nil if nobody has, and the id
	// that it has there.
	carrier   carrier
	carrierID uint64

	queued queueNode // in the service's admission queue, or that of an upstream
}

// Carry gives the attempt to c, under an id that c chooses.
func (a *Attempt) Carry(c carrier, id uint64) { a.carrier, a.carrierID = c, id }

// Release takes the attempt from its carrier.
func (a *Attempt) Release() { a.carrier = nil }

// ID is the attempt's with its carrier.
func (a *Attempt) ID() uint64 { return a.carrierID }

// Lingering reports whether nobody waits for the response any more.
func (a *Attempt) Lingering() bool { return a.state == attemptLingering }

// Codec is the wire format of the request.
func (a *Attempt) Codec() protocol.Codec { return a.ex.Request.Codec }

// ToHead reports whether the request is a HEAD, whose response has no body.
func (a *Attempt) ToHead() bool { return string(a.ex.Request.Method) == "HEAD" }

// Timeout is how long the route lets a request take.
func (a *Attempt) Timeout() time.Duration { return a.ex.Route.Timeout }

// MayReplay reports whether the attempt may be sent once more to the same endpoint,
// on another connection, because the one that it was put on had gone stale.
func (a *Attempt) MayReplay() bool {
	return !a.replayed && a.state == attemptSent && a.ex.Request.Idempotent
}

// Replay counts that the attempt is sent once more. The connection may as well have
// died of the request, which therefore counts as seen from then on.
func (a *Attempt) Replay() {
	a.replayed, a.ex.MaybeProcessed = true, true
	a.ex.shard.Stats.Replays++
}

// send hands the attempt to ep's upstream, or to the endpoint that the policy
// picks.
func (a *Attempt) send(ep *lb.Endpoint) {
	ex, now := a.ex, a.ex.shard.Loop.Now()
	if ep == nil {
		ep = ex.service.pick(now, ex.tried[:a.index], ex.avoid[:])
	}
	a.state = attemptQueued
	if ep == nil {
		a.Failed(fault.NoEndpoint)
		return
	}
	a.ep, a.sent, a.state = ep, now, attemptSent
	if a.kind == primaryAttempt && ex.Route.hedging.Shadows() {
		a.watchShadow(now)
	}
	ex.tried[a.index] = ep
	ep.Started(now)
	to := ep.Ext.(*Endpoint)
	to.sent(a)
	a.beginSpan()
	to.up.Send(a)
}

// watchShadow has shadow mode look at a primary that is about to start at a.ep.
func (a *Attempt) watchShadow(now time.Duration) {
	ex, s := a.ex, a.ex.service
	ex.watch = hedge.Watch{Hedgeable: ex.Request.Idempotent && !ex.cascade() && !ex.NoHedge, Left: ex.Request.Deadline - now}
	shut := s.set.Stalled(now, a.ep) || a.ep.Busy(now)
	ex.Route.hedging.Sent(now, &ex.watch, a.ep.Ext.(*Endpoint).id, shut)
}

// wireAttempt is the attempt number that the next hop sees: what led to this
// exchange counts too. It leaves room, for older sidecars add theirs in eight bits.
func (a *Attempt) wireAttempt() uint8 {
	return uint8(min(int(a.ex.attempt)+int(a.index), math.MaxUint8-maxAttempts))
}

// wireHedge tells the next hop that another attempt is out, here or further up.
func (a *Attempt) wireHedge() bool { return a.ex.hedged || a.kind == hedgeAttempt }

// Answered: the endpoint's answer is here, complete. Takes ownership of ans.
func (a *Attempt) Answered(ans *Response) {
	ex := a.ex
	now := ex.shard.Loop.Now()
	lingering := a.Lingering()
	a.ep.Ext.(*Endpoint).stats.BytesOut += uint64(ans.size())
	if !lingering && a.kind == primaryAttempt {
		ex.Route.hedging.Answered(now, now-a.sent, &ex.watch)
	}
	if ans.Status >= 500 {
		a.end(now, stats.AttemptFailure)
	} else {
		a.end(now, stats.AttemptServed)
	}
	if lingering {
		ans.Release()
		ex.recycleIfDone()
		return
	}
	ex.onAnswer(a, ans)
}

// AnsweredLocally: the upstream answers by itself, and nothing is learned of the
// endpoint. Takes ownership of ans.
func (a *Attempt) AnsweredLocally(ans *Response) {
	a.end(a.ex.shard.Loop.Now(), stats.AttemptNone)
	a.ex.onAnswer(a, ans)
}

// Failed: the attempt came to nothing.
func (a *Attempt) Failed(f *fault.Failure) {
	ex := a.ex
	lingering := a.Lingering()
	how := stats.AttemptNone
	if f.BlamesEndpoint() {
		how = stats.AttemptBroken
	}
	if a.replayed && (f.Retry == fault.RetryFree || f.Retry == fault.RetryFreeElsewhere) {
		f = fault.Reset // that it could not be sent again unsays nothing
	}
	if f.Retry == fault.RetryIfIdempotent || f.Retry == fault.RetryNever && a.ep != nil {
		ex.MaybeProcessed = true
	}
	a.span().Note(spanOutcome(f), 0, f.Code)
	a.end(ex.shard.Loop.Now(), how)
	if a.kind == hedgeAttempt && (f.Retry == fault.RetryFree || f.Retry == fault.RetryFreeElsewhere || f == fault.NoSlot) {
		ex.hedgeMissed()
	}
	if lingering {
		ex.recycleIfDone()
		return
	}
	if f != fault.NoSlot {
		ex.avoid[0] = a.ep
	}
	ex.onFailure(a, f)
}

// Ended: a withdrawn attempt is over; answered tells whether the application
// finished it all the same.
func (a *Attempt) Ended(answered bool) {
	how := stats.AttemptNone
	if answered {
		how = stats.AttemptUnseen
	}
	a.end(a.ex.shard.Loop.Now(), how)
	a.ex.recycleIfDone()
}

// cancel withdraws the attempt if it is still out.
func (a *Attempt) cancel() {
	switch a.state {
	case attemptIdle, attemptLingering:
	case attemptQueued:
		a.ex.service.unqueue(a)
		a.end(a.ex.shard.Loop.Now(), stats.AttemptNone)
	case attemptSent:
		if a.ex.state == exchangeAnswered {
			a.recordLate() // its hedge won
		}
		a.span().Withdraw(a.ex.shard.Loop.Now())
		if a.carrier.Cancel(a) {
			a.state = attemptLingering
			return
		}
		a.end(a.ex.shard.Loop.Now(), stats.AttemptNone)
	}
}

// abort ends the attempt at once, its deadline having passed.
func (a *Attempt) abort() {
	now := a.ex.shard.Loop.Now()
	switch a.state {
	case attemptIdle:
		return
	case attemptQueued:
		a.ex.service.unqueue(a)
	case attemptSent:
		a.recordLate()
		a.ex.MaybeProcessed = true
		a.ep.TimedOut(now)
		a.recordServiceTime()
		a.span().Note(spanOutcome(fault.Deadline), 0, fault.Deadline.Code)
		a.carrier.Abort(a)
	case attemptLingering:
		a.ep.TimedOut(now)
		a.recordServiceTime()
		a.carrier.Abort(a)
	}
	a.end(now, stats.AttemptNone)
}

// recordServiceTime tells the slots how long the application took, or that it took at
// least so long.
func (a *Attempt) recordServiceTime() {
	if a.slot {
		a.ex.service.RecordServiceTime(a.sent)
	}
}

// recordLate tells the estimate that a primary took longer than it was given: left
// out, it would make the estimate sink.
func (a *Attempt) recordLate() {
	if a.kind == primaryAttempt {
		a.ex.Route.hedging.Late(a.ex.shard.Loop.Now(), &a.ex.watch)
	}
}

// end settles the books of the endpoint and the service.
func (a *Attempt) end(now time.Duration, how stats.AttemptOutcome) {
	if a.state == attemptIdle {
		panic("proxy: attempt ended twice")
	}
	if a.ep != nil {
		a.settle(now, how)
	}
	a.endSpan(now)
	a.state = attemptIdle
	a.ex.inFlight--
	if a.kind == hedgeAttempt {
		a.ex.service.hedging.Done()
	}
	if a.slot {
		a.slot = false
		a.ex.service.release()
	}
}

// settle is end for the endpoint. The latency of a failure would speak for it, here
// and to those it is reported to: failing may be quick.
func (a *Attempt) settle(now time.Duration, how stats.AttemptOutcome) {
	latency := now - a.sent
	a.ep.Ext.(*Endpoint).ended(how, latency)
	switch how {
	case stats.AttemptNone:
		a.ep.Dropped(now)
		return
	case stats.AttemptBroken:
		a.ep.Judge(now, false)
		a.ep.Dropped(now)
		return
	case stats.AttemptUnseen:
		a.ep.Answered(now, latency)
	case stats.AttemptServed:
		a.ep.Judge(now, true)
		a.ep.Answered(now, latency)
	case stats.AttemptFailure:
		latency = 0
		a.ep.Judge(now, false)
		a.ep.Answered(now, latency)
	}
	a.ex.service.observe(now, latency)
	a.recordServiceTime()
}
