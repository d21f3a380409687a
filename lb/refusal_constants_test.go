package lb

import (
	"math/rand/v2"
	"time"
)

// refusing has two endpoints, of which the first has places for so many requests, and refuses the others.
type refusing struct {
	Events
	set  Set
	rnd  *rand.Rand
	busy int

	sent, refused int // requests to the first endpoint
}

func newRefusing() *refusing {
	r := &refusing{rnd: rand.New(rand.NewPCG(1, 2)), set: Set{Policy: Random{}}}
	r.set.Update(numbered(2, even))
	return r
}

// request sends a request.
func (r *refusing) request(takes time.Duration, places int) {
	e, sent := r.set.Pick(Query{Now: r.Now, Rand: r.rnd}), r.Now
	if e.Addr != "0" {
		return
	}
	e.Start(sent)
	r.sent++
	if r.busy == places {
		e.CountNoRoom(sent, sent)
		e.Drop()
		r.refused++
		return
	}
	r.busy++
	r.After(takes, func() {
		r.busy--
		e.CountTaken(sent)
		e.Finish(r.Now, takes)
	})
}

// run sends requests at a rate for a time.
func (r *refusing) run(rate int, lasts, takes time.Duration, places int) {
	end, over := r.Now+lasts, false
	var arrive func()
	arrive = func() {
		if over = r.Now >= end; !over {
			r.request(takes, places)
			r.After(time.Duration(r.rnd.ExpFloat64()*float64(sec)/float64(rate)), arrive)
		}
	}
	arrive()
	for !over {
		r.Next()
	}
}

// refusedOfSlow returns the share of its requests that the first endpoint refuses, if it serves 400 a second.
func refusedOfSlow() float64 {
	r := newRefusing()
	r.run(2000, 10*sec, 10*ms, 4)
	return float64(r.refused) / float64(r.sent)
}

// servedOfQuick returns how many requests the first endpoint serves in a second, if it could serve 4000.
func servedOfQuick() float64 {
	r := newRefusing()
	r.run(20_000, 5*sec, ms, 4)
	return float64(r.sent-r.refused) / 5
}

// millisecondsAfterRefusal returns how long requests to an endpoint have gaps after one has been refused.
func millisecondsAfterRefusal() float64 {
	r := newRefusing()
	e := r.set.At(0)
	e.Start(0)
	e.CountNoRoom(0, 0)
	e.Drop()
	for e.Refuses() {
		r.run(100_000, ms/10, 0, 1)
	}
	return float64(r.Now) / float64(ms)
}

// probesOfRefusing returns how many requests an endpoint gets in a minute that refuses everything.
func probesOfRefusing() float64 {
	r := newRefusing()
	r.run(1000, 60*sec, 0, 0)
	return float64(r.sent)
}

// secondsToShare returns after what time an endpoint has its whole share that has refused everything.
func secondsToShare() float64 {
	r := newRefusing()
	r.run(1000, 10*sec, 0, 0)
	since := r.Now
	for r.set.At(0).Refuses() {
		r.run(1000, ms, 0, 1)
	}
	return (r.Now - since).Seconds()
}
