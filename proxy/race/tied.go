package race

import (
	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/service"
)

// A hedge is tied if it may wait at its endpoint until the primary starts: until a worker takes the primary. That is half
// of the tied requests of Dean and Barroso, "The Tail at Scale" (CACM, 2013), where a hedge that starts withdraws the
// primary, too. Here the primary stays, as the hedge's endpoint may freeze.

// ties keeps the hedges of one race tied to the primary in flight.
type ties struct {
	race *Race
	tie  tie
}

// tie is whether hedges are tied to the primary in flight, or to the retry in its place.
//
//	untied ──hedge──▶ tied ──Started──▶ started
//
// Each leads to untied when the primary has ended.
type tie uint8

const (
	untied  tie = iota
	tied        // the endpoint of the primary tells when it starts
	started     // hedges must not wait
)

// StartUpstream is an Upstream whose carriers are StartCarriers.
type StartUpstream interface {
	Upstream
	// TellsStart reports whether an attempt that is sent now may wait at the endpoint for a worker.
	TellsStart() bool
}

// StartCarrier is a Carrier to an endpoint where attempts may wait for a worker.
type StartCarrier interface {
	Carrier
	// TellsStart reports whether AskStart and Withdraw may be called.
	TellsStart() bool
	// AskStart makes the endpoint tell when a starts. Attempt.Started follows, unless a ends before.
	AskStart(a *Attempt)
	// Withdraw makes the endpoint withdraw a, if a still waits there. Then a fails with fault.NoSlot.
	Withdraw(a *Attempt)
}

// mayWait reports whether a hedge that is sent to ep now may be tied.
func mayWait(ep *lb.Endpoint) bool {
	up, ok := upstreamOf(ep.Ext.(*service.Endpoint)).(StartUpstream)
	return ok && up.TellsStart()
}

// startsOf returns the carrier of an attempt in flight whose endpoint tells when it starts, or nil.
func startsOf(a *Attempt) StartCarrier {
	if a.state == attemptSent {
		if c, ok := a.carrier.(StartCarrier); ok && c.TellsStart() {
			return c
		}
	}
	return nil
}

// launch launches a hedge to ep. The hedge is tied if it may wait there, and if the endpoint of the primary tells when the
// primary starts.
func (t *ties) launch(ep *lb.Endpoint) {
	primary := t.primary()
	ties := t.tie == untied && primary != nil && mayWait(ep)
	if ties {
		t.tie = tied
	}
	t.race.launch(hedgeAttempt, ep)
	if ties && t.tie == tied {
		startsOf(primary).AskStart(primary)
	}
}

// primary returns the primary in flight, or the retry in its place, if its endpoint tells when it starts; else nil.
func (t *ties) primary() *Attempt {
	r := t.race
	for i := range r.attempts[:r.Launched] {
		if a := &r.attempts[i]; a.kind != hedgeAttempt && startsOf(a) != nil {
			return a
		}
	}
	return nil
}

// Started notes that a worker has taken the attempt.
func (a *Attempt) Started() {
	if a.kind != hedgeAttempt && a.state == attemptSent {
		a.race.ties.untie(started)
	}
}

// onOver notes that an attempt of the race, which goes on, has ended or lingers.
func (t *ties) onOver(a *Attempt) {
	if a.kind != hedgeAttempt {
		t.untie(untied)
	}
}

// untie withdraws the hedges that still wait. They end as if they had been refused.
func (t *ties) untie(next tie) {
	r, was := t.race, t.tie
	t.tie = next
	if was != tied {
		return
	}
	for i := range r.attempts[:r.Launched] {
		if a := &r.attempts[i]; a.kind == hedgeAttempt {
			if c := startsOf(a); c != nil {
				c.Withdraw(a)
			}
		}
	}
}

// AwaitStart reports whether the request waits for a slot. If so, Started of the owner may follow.
func (r *Race) AwaitStart() bool {
	r.awaited = r.waiting() != nil
	return r.awaited
}

// waiting returns the attempt that waits for a slot, if no other is at an endpoint; else nil.
func (r *Race) waiting() (waits *Attempt) {
	for i := range r.attempts[:r.Launched] {
		switch a := &r.attempts[i]; a.state {
		case attemptQueued:
			waits = a
		case attemptSent, attemptLingering:
			return nil
		case attemptIdle, attemptLaunched, attemptAsking: // one that asks has its slot, and is at no endpoint yet
		}
	}
	return waits
}

// Untie says that a tied hedge must not wait for a slot any longer. If it waits, it fails.
func (r *Race) Untie() {
	waits := r.waiting()
	if r.Tied && waits != nil {
		waits.withdraw()
		waits.Fail(fault.NoSlot)
		return
	}
	r.Tied = false
}
