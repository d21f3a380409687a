package race

import (
	"time"
)

// A stream is hedged until the first byte of its body, if that soon follows the head: the carrier of an attempt then
// holds a head without a byte of a body, as if it had not arrived. Once the head has been passed on, its attempt has
// won. A carrier that is a link can't hold heads, so it asks the other sidecar to.

// HoldsHead returns for how much longer the carrier of a holds the head of a response that will be a stream, as long as
// no byte of its body has arrived. 0 or less means that the head is passed on.
func (a *Attempt) HoldsHead() time.Duration {
	r := a.race
	if r.Hold == 0 && !r.Policy.HedgeRoute.Heads.Hold() || a.Lingering() {
		return 0
	}
	wait := r.holding.until(a) - r.shard.Loop.Now()
	a.holds = wait > 0 || a.holds
	return wait
}

// holding holds the heads of the responses of one race.
type holding struct {
	race *Race
	hold time.Duration // for how long heads are held; 0 before anyone asked
}

// until returns until when the head of the response of a may be held: as long as a hedge may help, or the sender of
// the request says so, but at most for half of the time that a may take. A hedge is held for longer than the attempts
// before it, so that not both pass heads on at once.
func (h *holding) until(a *Attempt) time.Duration {
	r := h.race
	if h.hold == 0 {
		h.hold = r.Hold
		if r.hedging.mayHedge() && r.Policy.HedgeRoute.Heads.Hold() {
			h.hold = max(h.hold, r.Policy.HedgeRoute.Delays.HeadHold(r.shard.Loop.Now(), r.learning.watch.Class))
		}
	}
	limit := r.request.Deadline - a.visit.sent
	if try := r.Policy.tryTimeout; try > 0 {
		limit = min(limit, try)
	}
	return a.visit.sent + min(h.hold, limit/2)
}

// onStream tells the latency of a primary whose response becomes the stream of src: the time until the first byte if
// the head was held, else until the head. It also tells whether the first byte soon follows the head. Where heads are
// not held, the goroutines of the stream say so later: OnFirstByte.
func (h *holding) onStream(a *Attempt, src *StreamSource, now time.Duration) {
	r, route := h.race, h.race.Policy.HedgeRoute
	r.learning.streamed = true
	switch {
	case !r.hedging.mayHedge():
	case !route.Heads.Hold():
		src.Stream.heads, src.Stream.headsUntil = &route.Heads, a.visit.sent+route.Delays.HeadHold(now, r.learning.watch.Class)
	case now < h.until(a):
		route.Heads.Followed()
	case a.holds && src.Body.Length() == 0: // in vain. Of another sidecar only the time tells: the head may just be late
		route.Heads.Missed()
		r.learning.onLate(a, now)
		return
	}
	r.learning.onResponse(a, now)
}
