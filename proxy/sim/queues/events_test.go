package queues

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

// TestTimers: the timers that are not added to the events make no difference.
func TestTimers(t *testing.T) {
	n := Length{Requests: 3000, WarmUp: time.Second}
	for _, c := range []Cell{
		{Busy: .5, Workers: 4, Service: Lognormal10, Freezes: Independent, Replicas: 3, Callers: 3},
		{Busy: .9, Workers: 1, Service: Bimodal, Freezes: ManyShort, Replicas: 10, Callers: 1, Queued: true},
	} {
		for _, way := range []Way{On, Tied} {
			c.Queued = c.Queued || way == Tied
			all := newWorld(c, way, n, 1)
			all.allTimers = true
			want, got := all.run(), Run(c, way, n, 1)
			if want.Hedges == 0 || !reflect.DeepEqual(got, want) {
				t.Errorf("%v, %v: P99.9 %v with %d hedges, with all timers %v with %d", c, way,
					got.Quantile(.999), got.Hedges, want.Quantile(.999), want.Hedges)
			}
		}
	}
}

// TestEventsInOrder: events come by time, those of one time in the order in which they were added,
// and memory is used again only after the last event that has it.
func TestEventsInOrder(t *testing.T) {
	var q events
	var memory arena
	rng := rand.New(rand.NewPCG(1, 2))
	live := map[*request]int{}
	add := func() {
		r := memory.take()
		if live[r] > 0 {
			t.Fatal("memory was given away while events had it")
		}
		for range 1 + rng.IntN(3) {
			live[r]++
			if rng.IntN(2) == 0 {
				q.send(reaches, &r.attempts[rng.IntN(2)])
			} else {
				q.after(time.Duration(rng.IntN(4))*network/2, finishes, &r.attempts[rng.IntN(2)])
			}
		}
	}
	var last event
	for n := 0; ; n++ {
		if n < 5000 {
			add()
			if n%3 == 0 {
				add()
			}
		}
		e, ok := q.next()
		if !ok {
			break
		}
		if n > 0 && !last.before(&e) {
			t.Fatalf("event %d: %+v after %+v", n, e, last)
		}
		last = e
		r := memory.attempt(e.attempt).request
		live[r]--
		memory.release(r)
	}
	for _, left := range live {
		if left != 0 {
			t.Fatal("an event is missing")
		}
	}
	if len(memory.free) != chunk*len(memory.chunks) {
		t.Errorf("%d of %d requests are free at the end", len(memory.free), chunk*len(memory.chunks))
	}
}
