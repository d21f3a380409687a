package proxy

import (
	"math"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/hedge"
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
	attemptOver      attemptState = iota // not begun, or ended
	attemptWaiting                       // in the service's queue for a slot
	attemptSent                          // with an upstream
	attemptLingering                     // withdrawn, but its endpoint may still work on it
)

// attempt is one try of an exchange at one endpoint. It lives inside its
// exchange. Its endpoint counts it as pending, and its service's slot is held,
// until it is over.
type attempt struct {
	ex    *exchange
	kind  attemptKind
	index uint8 // position in the exchange; also the attempt number on the wire
	state attemptState
	slot  bool // holds a slot of the service

	replayed bool // sent again over HTTP: the application may have seen it before

	ep   *lb.Endpoint
	sent time.Duration

	// What the upstream keeps here: who has the attempt, nil if nobody has, and the id
	// that it has there.
	carrier carrier
	stream  uint64

	waiting queueLink // in the service's admission queue, or that of an upstream
}

// upstream carries attempts to one endpoint. It ends each with exactly one of
// attempt.answered, stoodIn, failed and dropped, unless cancel or abort
// said that it is over. send may end the attempt before it returns.
type upstream interface {
	send(a *attempt) // ends a, or gives it to a carrier, before it returns
	// retire closes the upstream once what it carries has ended.
	retire()
	// connections counts open connections and dials in progress.
	connections() int
	// largest is the connection that holds the most, and how much that is in all and for each of its
	// requests; nil where each connection carries one request.
	largest() (held, each int, h holder)
}

// carrier is whoever has an attempt that was sent: a connection, or the queue for one.
type carrier interface {
	// cancel withdraws a, whose request memory is not valid after the call. It
	// reports whether the endpoint may still be working on it.
	cancel(a *attempt) (lingers bool)
	// abort forgets a at once.
	abort(a *attempt)
	// buffered is how many bytes are held for a.
	buffered(a *attempt) int
}

// carry gives the attempt to c, under an id that c chooses.
func (a *attempt) carry(c carrier, id uint64) { a.carrier, a.stream = c, id }

// drop takes the attempt from its carrier.
func (a *attempt) drop() { a.carrier = nil }

// id is the attempt's with its carrier.
func (a *attempt) id() uint64 { return a.stream }

// lingering reports whether nobody waits for the response any more.
func (a *attempt) lingering() bool { return a.state == attemptLingering }

// codec is the wire format of the request.
func (a *attempt) codec() protocol.Codec { return a.ex.req.Codec }

// toHead reports whether the request is a HEAD, whose response has no body.
func (a *attempt) toHead() bool { return string(a.ex.req.Method) == "HEAD" }

// timeout is how long the route lets a request take.
func (a *attempt) timeout() time.Duration { return a.ex.route.timeout }

// mayReplay reports whether the attempt may be sent once more to the same endpoint,
// on another connection, because the one that it was put on had gone stale.
func (a *attempt) mayReplay() bool {
	return !a.replayed && a.state == attemptSent && a.ex.req.Idempotent
}

// replay counts that the attempt is sent once more. The connection may as well have
// died of the request, which therefore counts as seen from then on.
func (a *attempt) replay() {
	a.replayed, a.ex.reached = true, true
	a.ex.w.stats.Replays++
}

// send hands the attempt to ep's upstream, or to the endpoint that the policy
// picks.
func (a *attempt) send(ep *lb.Endpoint) {
	ex, now := a.ex, a.ex.w.loop.Now()
	if ep == nil {
		ep = ex.svc.pick(now, ex.tried[:a.index], ex.failedAt[:])
	}
	a.state = attemptWaiting
	if ep == nil {
		a.failed(FailNoEndpoint)
		return
	}
	a.ep, a.sent, a.state = ep, now, attemptSent
	if a.kind == primaryAttempt && ex.route.hedging.Shadows() {
		a.follow(now)
	}
	ex.tried[a.index] = ep
	ep.Started(now)
	to := ep.Ext.(*endpoint)
	to.sent(a)
	a.beginSpan()
	to.up.send(a)
}

// follow has shadow mode look at a primary that is about to start at a.ep.
func (a *attempt) follow(now time.Duration) {
	ex, s := a.ex, a.ex.svc
	ex.watch = hedge.Watch{Hedgeable: ex.req.Idempotent && !ex.cascade() && !ex.unhedged, Left: ex.req.Deadline - now}
	shut := s.set.Stalled(now, a.ep) || a.ep.Busy(now)
	ex.route.hedging.Sent(now, &ex.watch, a.ep.Ext.(*endpoint).id, shut)
}

// wireAttempt is the attempt number that the next hop sees: what led to this
// exchange counts too. It leaves room, for older sidecars add theirs in eight bits.
func (a *attempt) wireAttempt() uint8 {
	return uint8(min(int(a.ex.attempt)+int(a.index), math.MaxUint8-maxAttempts))
}

// wireHedge tells the next hop that another attempt is out, here or further up.
func (a *attempt) wireHedge() bool { return a.ex.hedged || a.kind == hedgeAttempt }

// answered: the endpoint's answer is here, complete. Takes ownership of ans.
func (a *attempt) answered(ans *answer) {
	ex := a.ex
	now := ex.w.loop.Now()
	lingering := a.lingering()
	a.ep.Ext.(*endpoint).stats.BytesOut += uint64(ans.size())
	if !lingering && a.kind == primaryAttempt {
		ex.route.hedging.Answered(now, now-a.sent, &ex.watch)
	}
	if ans.Status >= 500 {
		a.end(now, endFailure)
	} else {
		a.end(now, endServed)
	}
	if lingering {
		ans.Release()
		ex.settle()
		return
	}
	ex.onAnswer(a, ans)
}

// stoodIn: the upstream answers by itself, and nothing is learned of the
// endpoint. Takes ownership of ans.
func (a *attempt) stoodIn(ans *answer) {
	a.end(a.ex.w.loop.Now(), endNothing)
	a.ex.onAnswer(a, ans)
}

// failed: the attempt came to nothing.
func (a *attempt) failed(f *Failure) {
	ex := a.ex
	lingering := a.lingering()
	how := endNothing
	if f.blames() {
		how = endBroken
	}
	if a.replayed && (f.retry == retryConnect || f.retry == retryUnsent) {
		f = FailReset // that it could not be sent again unsays nothing
	}
	if f.retry == retryReset || f.retry == retryNever && a.ep != nil {
		ex.reached = true
	}
	a.span().Note(spanOutcome(f), 0, f.Code)
	a.end(ex.w.loop.Now(), how)
	if a.kind == hedgeAttempt && (f.retry == retryConnect || f.retry == retryUnsent || f == FailNoSlot) {
		ex.hedgeMissed()
	}
	if lingering {
		ex.settle()
		return
	}
	if f != FailNoSlot {
		ex.failedAt[0] = a.ep
	}
	ex.onFailure(a, f)
}

// dropped: a withdrawn attempt is over; answered tells whether the application
// finished it all the same.
func (a *attempt) dropped(answered bool) {
	how := endNothing
	if answered {
		how = endUnseen
	}
	a.end(a.ex.w.loop.Now(), how)
	a.ex.settle()
}

// cancel withdraws the attempt if it is still out.
func (a *attempt) cancel() {
	switch a.state {
	case attemptOver, attemptLingering:
	case attemptWaiting:
		a.ex.svc.unqueue(a)
		a.end(a.ex.w.loop.Now(), endNothing)
	case attemptSent:
		if a.ex.state == exchangeAnswered {
			a.censor() // its hedge won
		}
		a.span().Withdraw(a.ex.w.loop.Now())
		if a.carrier.cancel(a) {
			a.state = attemptLingering
			return
		}
		a.end(a.ex.w.loop.Now(), endNothing)
	}
}

// abort ends the attempt at once, its deadline having passed.
func (a *attempt) abort() {
	now := a.ex.w.loop.Now()
	switch a.state {
	case attemptOver:
		return
	case attemptWaiting:
		a.ex.svc.unqueue(a)
	case attemptSent:
		a.censor()
		a.ex.reached = true
		a.ep.TimedOut(now)
		a.measure()
		a.span().Note(spanOutcome(FailDeadline), 0, FailDeadline.Code)
		a.carrier.abort(a)
	case attemptLingering:
		a.ep.TimedOut(now)
		a.measure()
		a.carrier.abort(a)
	}
	a.end(now, endNothing)
}

// measure tells the slots how long the application took, or that it took at
// least so long.
func (a *attempt) measure() {
	if a.slot {
		a.ex.svc.measured(a.sent)
	}
}

// censor tells the estimate that a primary took longer than it was given: left
// out, it would make the estimate sink.
func (a *attempt) censor() {
	if a.kind == primaryAttempt {
		a.ex.route.hedging.Late(a.ex.w.loop.Now(), &a.ex.watch)
	}
}

// end settles the books of the endpoint and the service.
func (a *attempt) end(now time.Duration, how Ending) {
	if a.state == attemptOver {
		panic("proxy: attempt ended twice")
	}
	if a.ep != nil {
		a.settle(now, how)
	}
	a.endSpan(now)
	a.state = attemptOver
	a.ex.out--
	if a.kind == hedgeAttempt {
		a.ex.svc.hedging.Done()
	}
	if a.slot {
		a.slot = false
		a.ex.svc.release()
	}
}

// settle is end for the endpoint. The latency of a failure would speak for it, here
// and to those it is reported to: failing may be quick.
func (a *attempt) settle(now time.Duration, how Ending) {
	latency := now - a.sent
	a.ep.Ext.(*endpoint).ended(how, latency)
	switch how {
	case endNothing:
		a.ep.Dropped(now)
		return
	case endBroken:
		a.ep.Judge(now, false)
		a.ep.Dropped(now)
		return
	case endUnseen:
		a.ep.Answered(now, latency)
	case endServed:
		a.ep.Judge(now, true)
		a.ep.Answered(now, latency)
	case endFailure:
		latency = 0
		a.ep.Judge(now, false)
		a.ep.Answered(now, latency)
	}
	a.ex.svc.observe(now, latency)
	a.measure()
}
