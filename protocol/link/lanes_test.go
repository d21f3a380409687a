package link

import (
	"bytes"
	"slices"
	"testing"
)

// dataOrder returns the ids of the DATA frames in b. Nothing else may follow them.
func dataOrder(t *testing.T, b []byte) (order []uint64) {
	t.Helper()
	for i, f := range frames(t, b) {
		if f.typ == frameData {
			order = append(order, f.id)
		} else if len(order) > 0 {
			t.Errorf("frame %d, %v, comes after DATA", i, f)
		}
	}
	return order
}

// Long messages of about the same length end in their order.
func TestScheduleOldestFirst(t *testing.T) {
	d, _ := newLink(t, Settings{Window: MaxWindow}, ReaderLimits{})
	for id := range uint64(3) {
		d.w.Request(id+1, big(100<<10), 0, nil)
	}
	d.w.Request(4, typical(1), 0, nil)
	order := dataOrder(t, d.w.Append(nil, 1<<20))
	if len(order) < 15 || !slices.IsSorted(order) {
		t.Errorf("DATA went out in the order %v", order)
	}
}

// Shorter messages go before longer ones that have begun, and yet these get each eighth frame.
func TestScheduleShorterFirst(t *testing.T) {
	d, _ := newLink(t, Settings{Window: MaxWindow}, ReaderLimits{})
	d.w.Request(1, big(4<<20), 0, nil)
	d.w.Request(2, big(1<<20), 0, nil)
	if order := dataOrder(t, d.w.Append(nil, 1000)); !slices.Equal(order, []uint64{2}) {
		t.Fatalf("DATA began in the order %v", order)
	}
	for id := range uint64(100) {
		d.w.Request(id+3, big(20_000), 0, nil)
	}
	var order []uint64
	for len(order) < 160 {
		d.w.Granted(MaxWindow)
		order = append(order, dataOrder(t, d.w.Append(nil, 1<<20))...)
	}
	var short []uint64
	longer := map[uint64]int{}
	for _, id := range order[:160] {
		if id < 3 {
			longer[id]++
		} else {
			short = append(short, id)
		}
	}
	if longer[1] != 10 || longer[2] != 10 || !slices.IsSorted(short) {
		t.Errorf("DATA went out in the order %v", order)
	}
}

// TestLanes: each lane has messages up to four times as long as those of the lane before.
func TestLanes(t *testing.T) {
	for n, want := range map[int]int{1: 0, 64 << 10: 0, 64<<10 + 1: 1, 256 << 10: 1, 256<<10 + 1: 2, 1 << 20: 2, 4 << 20: 3, 16 << 20: 4, 16<<20 + 1: 5, 1 << 30: 5} {
		if got := laneOf(n); got != want {
			t.Errorf("%d bytes: lane %d, want %d", n, got, want)
		}
	}
}

// Gather does not copy bodies, so their owners are released by Sent, or by Close if it comes first.
func TestGather(t *testing.T) {
	for _, end := range []func(*Writer){(*Writer).Sent, func(w *Writer) { w.Close(); w.Sent() }} {
		d, a := newLink(t, Settings{Window: MaxWindow}, ReaderLimits{})
		var o owners
		req := big(100 << 10)
		d.w.Request(1, req, 0, o.next())
		d.w.Request(2, typical(1), 0, o.next())
		_, parts := d.w.Gather([]byte("of the caller"), nil, 1<<20)
		if o.released != 1 || d.w.Queued() < len(req.Body) {
			t.Errorf("%d owners released, %d bytes queued", o.released, d.w.Queued())
		}
		copy(req.Body, "until now")
		for _, b := range parts {
			feed(t, a, b)
		}
		if got := a.h.requests[1]; got == nil || !bytes.Equal(got.Body, req.Body) || a.h.requests[2] == nil {
			t.Error("the requests did not arrive")
		}
		if end(d.w); o.released != 2 || d.w.Queued() != 0 {
			t.Errorf("%d owners released, %d bytes queued", o.released, d.w.Queued())
		}
		for _, s := range d.w.data.ended[:cap(d.w.data.ended)] {
			if s != nil {
				t.Error("a message that was sent is kept")
			}
		}
	}
}
