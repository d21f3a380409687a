package http

import (
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/unwanted"
)

// unawaited is the work of the application for an attempt that nobody awaits any more.
//
// Calls in: begin, when an attempt in flight is cancelled. end, when its response has come, or the attempt is aborted.
//
// Calls out: the connection closes if the work should end.
type unawaited struct {
	*conn
	since  time.Duration // 0 means that the response is awaited
	silent bool          // the endpoint was silent then
}

// begin closes the connection of a, or leaves the attempt to finish.
func (u *unawaited) begin(a *race.Attempt) {
	p, now := u.pool, u.shard.Loop.Now()
	s := p.service
	of := unwanted.Attempt{
		Kind:     kindOf(a),
		Since:    now - a.Sent(),
		Connect:  p.dials.mean,
		Silent:   p.silent(now),
		Last:     p.live() <= 1,
		Requests: s.Stats.Requests,
	}
	d := s.Unwanted.Decide(now, &of)
	if d.Close {
		s.Stats.UnwantedClosed++
		u.presume(a, d.Hold)
		return
	}
	s.Stats.UnwantedFinished++
	u.since, u.silent = now, of.Silent
}

func kindOf(a *race.Attempt) unwanted.Kind {
	switch {
	case !a.Overtaken():
		return unwanted.Deserted
	case a.IsHedge():
		return unwanted.Needless
	}
	return unwanted.Overtaken
}

// end notes how long the application has worked on for nobody.
func (u *unawaited) end() {
	if u.since == 0 {
		return
	}
	now := u.shard.Loop.Now()
	u.pool.service.Unwanted.Finished(now, now-u.since, kindOf(u.current), u.silent)
	u.since = 0
}

// silent reports whether the endpoint has sent no response for so long that it counts as stalled.
func (p *pool) silent(now time.Duration) bool {
	after := p.service.Set.Stall.After
	return after > 0 && p.endpoint.LB.Silence(now) >= after
}

// live is the number of attempts at the endpoint that it may still respond to.
func (p *pool) live() int { return p.endpoint.LB.Pending() - p.endpoint.Presumed }

// presumed is the Carrier of an attempt whose connection was closed since nobody awaits the attempt. The attempt ends
// about when the application would have responded: the application may work on all the same, and a slow one must not
// look idle.
type presumed struct {
	pool    *pool
	attempt *race.Attempt
	timer   loop.Timer
}

// minPresumed is the least time between two looks at a silent endpoint.
const minPresumed = time.Millisecond

// presume closes the connection, and lets a end after the time hold. The connection is replaced if the pool has no
// idle one, lest the next request wait for a connect.
func (u *unawaited) presume(a *race.Attempt, hold time.Duration) {
	p := u.pool
	w := &presumed{pool: p, attempt: a}
	w.timer.Fire = w.onTimer
	u.current = nil
	u.close()
	a.Carry(w, a.ID())
	p.endpoint.Presumed++
	u.shard.Loop.After(max(hold, minPresumed), &w.timer)
	if p.idle.len() == 0 && p.waiting.Empty() && !p.retired && p.dials.may() {
		p.dials.start(nil)
	}
}

// onTimer ends the attempt, unless the endpoint is silent and another attempt will tell when it is not.
func (w *presumed) onTimer() {
	p, now := w.pool, w.pool.shard.Loop.Now()
	if p.silent(now) && p.live() > 0 {
		p.shard.Loop.After(max(p.endpoint.LB.Silence(now)/8, minPresumed), &w.timer)
		return
	}
	w.detach()
	w.attempt.Presume()
}

// Cancel implements race.Carrier. The attempt was cancelled before.
func (w *presumed) Cancel(*race.Attempt) (lingers bool) { return true }

// Abort implements race.Carrier.
func (w *presumed) Abort(*race.Attempt) {
	w.pool.shard.Loop.Stop(&w.timer)
	w.detach()
}

func (w *presumed) detach() {
	w.pool.endpoint.Presumed--
	w.attempt.Detach()
}

// Buffered implements race.Carrier.
func (w *presumed) Buffered(*race.Attempt) int { return 0 }
