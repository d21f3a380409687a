package dubbo

import (
	"slices"
	"testing"

	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/race"
)

// TestQueueDropsWithdrawnCalls checks that the queue stays bounded while calls are
// withdrawn, and keeps the order of the others.
func TestQueueDropsWithdrawnCalls(t *testing.T) {
	c := &client{calls: newTable()}
	var want []int64
	for i := range 100 * mux.MaxStreams {
		a := &race.Attempt{}
		id := c.calls.add(a)
		a.Carry(c, uint64(id))
		c.enqueue(id)
		if i%1000 == 0 {
			want = append(want, id)
		} else {
			c.forget(a)
		}
	}
	if len(c.queue) > 2*mux.MaxStreams || len(c.calls.calls) > len(want)+1 {
		t.Errorf("%d ids are queued, in %d places", len(c.queue), len(c.calls.calls))
	}
	got := slices.DeleteFunc(c.queue, func(id int64) bool { return c.calls.find(id) == nil })
	if !slices.Equal(got, want) {
		t.Errorf("queued are %x, want %x", got, want)
	}
}

// TestPlacesAreReused: places of a table are used again, for new ids. None is negative, also after very many uses of a place.
func TestPlacesAreReused(t *testing.T) {
	table := newTable()
	first, second := &race.Attempt{}, &race.Attempt{}
	kept := []int64{table.add(first), table.add(second)}
	table.remove(kept[0])
	table.calls[0].id |= idMask - (idStep - 1) // its last use before ids begin anew
	last := int64(-1)
	for range 100 {
		a := &race.Attempt{}
		id := table.add(a)
		if id < 0 || id == last || table.find(id) == nil || table.find(id).a != a || table.find(last) != nil || table.n != 2 {
			t.Fatalf("id %x after %x, %d calls", id, last, table.n)
		}
		if got := table.find(kept[1]); got == nil || got.a != second {
			t.Fatal("another call is lost")
		}
		table.remove(id)
		if table.find(id) != nil {
			t.Fatalf("%x is found after its end", id)
		}
		last = id
	}
	if len(table.calls) != 2 {
		t.Errorf("%d places for two calls", len(table.calls))
	}
}
