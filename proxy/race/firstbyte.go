package race

import (
	"time"

	"github.com/remora-proxy/remora/proxy/hedge"
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
	wait := r.hedging.headUntil(a) - r.shard.Loop.Now()
	a.holds = wait > 0 || a.holds
	return wait
}

// headUntil returns until when the head of the response of a may be held: as long as a hedge may help, or the sender of
// the request says so, but at most for half of the time that a may take. A hedge is held for longer than the attempts
// before it, so that not both pass heads on at once.
func (h *hedging) headUntil(a *Attempt) time.Duration {
	r := h.race
	if h.hold == 0 {
		h.hold = r.Hold
		if h.mayHedge() && r.Policy.HedgeRoute.Heads.Hold() {
			h.hold = max(h.hold, r.Policy.HedgeRoute.Delays.HeadHold(r.shard.Loop.Now(), h.watch.Class))
		}
	}
	limit := r.request.Deadline - a.visit.sent
	if try := r.Policy.tryTimeout; try > 0 {
		limit = min(limit, try)
	}
	return a.visit.sent + min(h.hold, limit/2)
}

// mayHedge reports whether no gate that holds for the whole request is closed.
func (h *hedging) mayHedge() bool {
	r := h.race
	return r.Policy.HedgeRoute.Policy.Mode == hedge.On && !r.NoHedge && !r.Batch && r.request.Idempotent && !r.cascade() &&
		r.Service.Set.Len() > 1
}

// onStream tells the latency of a primary whose response becomes the stream of src: the time until the first byte if
// the head was held, else until the head. It also tells whether the first byte soon follows the head. Where heads are
// not held, the goroutines of the stream say so later: OnFirstByte.
func (h *hedging) onStream(a *Attempt, src *StreamSource, now time.Duration) {
	route := h.race.Policy.HedgeRoute
	h.streamed = true
	switch {
	case !h.mayHedge():
	case !route.Heads.Hold():
		src.Stream.heads, src.Stream.headsUntil = &route.Heads, a.visit.sent+route.Delays.HeadHold(now, h.watch.Class)
	case now < h.headUntil(a):
		route.Heads.Followed()
	case a.holds && src.Body.Length() == 0: // in vain. Of another sidecar only the time tells: the head may just be late
		route.Heads.Missed()
		h.onLate(a, now)
		return
	}
	h.onResponse(a, now)
}
