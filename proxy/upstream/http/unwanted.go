package http

import (
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/unwanted"
)

// decideUnwanted closes the connection of a, which nobody awaits any more, or leaves the attempt to finish.
func (c *conn) decideUnwanted(a *race.Attempt) {
	p, now := c.pool, c.shard.Loop.Now()
	s := p.service
	of := unwanted.Attempt{
		Kind:     kindOf(a),
		Since:    now - a.Sent(),
		Connect:  p.connect,
		Silent:   p.silent(now),
		Last:     p.live() <= 1,
		Requests: s.Stats.Requests,
	}
	d := s.Unwanted.Decide(now, &of)
	if d.Close {
		s.Stats.UnwantedClosed++
		c.presume(a, d.Hold)
		return
	}
	s.Stats.UnwantedFinished++
	c.unwanted, c.unheard = now, of.Silent
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

// learnUnwanted notes how long the application has worked on for nobody.
func (c *conn) learnUnwanted() {
	if c.unwanted == 0 {
		return
	}
	now := c.shard.Loop.Now()
	c.pool.service.Unwanted.Finished(now, now-c.unwanted, kindOf(c.current), c.unheard)
	c.unwanted = 0
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
func (c *conn) presume(a *race.Attempt, hold time.Duration) {
	p := c.pool
	w := &presumed{pool: p, attempt: a}
	w.timer.Fire = w.onTimer
	c.current = nil
	c.close()
	a.Carry(w, a.ID())
	p.endpoint.Presumed++
	c.shard.Loop.After(max(hold, minPresumed), &w.timer)
	if len(p.idle) == 0 && p.waiting.Empty() && !p.retired && p.mayDial() {
		p.dial(nil)
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
