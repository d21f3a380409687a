package spare

import (
	"math/bits"
	"time"
)

// levels is the number of ranges of load; the last one has all loads of 1,536 and more.
const levels = 24

// Level is a range of loads: each below 8, then two in each doubling.
type Level uint8

// LevelOf returns the level of a load in requests.
func LevelOf(load float64) Level {
	if load < 8 {
		return Level(max(0, load))
	}
	n := uint(min(load, 1<<20))
	doubling := bits.Len(n) - 4 // 0 for 8 to 15
	return Level(min(8+2*doubling+int(n>>(doubling+2)&1), levels-1))
}

// Curve is the latency of an endpoint by its load, learned from all endpoints of a set. The zero value
// knows nothing.
type Curve struct {
	quartiles [levels]quartile
	unloaded  float64 // the least quartile of late, and the drift, as a logarithm; 0 means unknown
	added     int     // latencies since the samples were halved, at halved
	halved    time.Duration
}

// quartile follows the lower quartile of latencies.
type quartile struct {
	log     float64 // binary logarithm of nanoseconds
	samples float64 // up to remembered
}

// Learn learns the latency of a request that found its endpoint at level l. log is the binary logarithm
// of the latency in nanoseconds.
func (c *Curve) Learn(now time.Duration, log float64, l Level) {
	c.fade(now)
	c.added++
	c.quartiles[l].add(log)
}

// add moves the quartile down by three quarters of a step for a latency below it, and up by one quarter
// for a latency above it. So it settles where a quarter of the latencies is below.
func (q *quartile) add(log float64) {
	if q.samples == 0 {
		q.log = log
	}
	q.samples = min(q.samples+1, model.remembered)
	step := model.step / q.samples
	q.log += min(max(log-q.log, -0.75*step), 0.25*step)
}

// fade halves the samples when that is due.
func (c *Curve) fade(now time.Duration) {
	age := now - c.halved
	if age < model.half || age < model.halfMost && c.added < model.halfSamples {
		return
	}
	if least := c.least(); least > 0 {
		c.unloaded = least + model.drift
	}
	if age >= 2*model.halfMost { // after a pause nothing counts
		*c = Curve{}
	}
	c.halved, c.added = now, 0
	for i := range c.quartiles {
		c.quartiles[i].samples /= 2
	}
}

// least returns the least quartile, of the known levels and of late; 0 means that none is known.
func (c *Curve) least() float64 {
	least := c.unloaded
	for i := range c.quartiles {
		if q := &c.quartiles[i]; q.samples >= model.known && (least == 0 || q.log < least) {
			least = q.log
		}
	}
	return least
}

// slower returns how much longer than unloaded a request takes if it finds level l, as a power of 2. A
// level of which nothing is known counts as the next higher known level. Without a higher one, known is
// false, and slower is that of the highest known level, or 0.
func (c *Curve) slower(now time.Duration, l Level) (slower float64, known bool) {
	c.fade(now)
	least := c.least()
	for i := range c.quartiles {
		if c.quartiles[i].samples < model.known {
			continue
		}
		if slower = c.quartiles[i].log - least; Level(i) >= l {
			return slower, true
		}
	}
	return slower, false
}

// HasRoom reports whether an endpoint can serve one more request at once. load is its present load, usual
// its usual one. For a stuck request, HasRoom reports whether the endpoint can serve it soon: one request
// may be before it, and the wait may be as long as the request itself takes. If requests usually wait at
// the endpoint, or it is unknown whether they do, a stuck request is treated like any other: a replica
// with one worker is silent for long whenever it has more than one request.
func (c *Curve) HasRoom(now time.Duration, load, usual float64, stuck bool) bool {
	most, guess := model.slower, max(model.guess, usual)
	if stuck {
		if slower, known := c.slower(now, LevelOf(usual)); known && slower <= model.slower {
			load, most, guess = load-1, model.stuckSlower, 2*guess
		}
	}
	if load < 1 {
		return true
	}
	slower, known := c.slower(now, LevelOf(load))
	return slower <= most && (known || load < guess)
}

// Usual is the usual load of an endpoint: the moving average of the loads that requests found.
type Usual struct {
	load    float64
	samples uint32 // up to those that the average is made of
}

// Add adds the load that a request found.
func (u *Usual) Add(load float64) {
	if u.samples < model.usual {
		u.samples++
	}
	u.load += (load - u.load) / float64(u.samples)
}

// Load returns the usual load.
func (u *Usual) Load() float64 { return u.load }

// Known reports whether any request was added.
func (u *Usual) Known() bool { return u.samples > 0 }
