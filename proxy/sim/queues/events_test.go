package queues

import (
	"math/rand/v2"
	"testing"
	"time"
)

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
