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
