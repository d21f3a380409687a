package link

import (
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

// A peer that does not read lets responses accumulate in the order in which requests
// finished. Dropping one must not cost more for that. Long responses are found wherever
// they are.
func TestDropResponses(t *testing.T) {
	const many = 10_000
	d, a := newLink(t, Settings{}, ReaderLimits{})
	var o owners
	respond := func(id uint64, n int) {
		a.w.Response(id, &protocol.Response{Status: 200, Body: make([]byte, n), DeclaredLength: -1}, protocol.CodecHTTP, o.next())
	}
	for i := range uint64(many) {
		id := i ^ 1 // each pair in the wrong order
		switch {
		case id == 0: // not a valid id
		case id%100 == 50:
			respond(id, 100<<10)
		default:
			respond(id, 10)
		}
	}
	q := &a.w.messages
	for i, s := range q.segs {
		at, near := q.find(s.id), i >= len(q.segs)-findNearby
		if near && at != i || !near && at != -1 {
			t.Fatalf("response %d of %d, for request %d: find returns %d", i, len(q.segs), s.id, at)
		}
	}
	left, dropped := len(q.segs), map[uint64]bool{}
	for id := uint64(150); id < many; id += 100 { // all long ones but the first; compacts the queue
		if a.w.Drop(id) {
			t.Fatalf("the long response %d counts as started", id)
		}
		dropped[id] = true
	}
	for i := range uint64(findNearby / 2) {
		if id := many - 1 - i; !dropped[id] && !a.w.Drop(id) {
			dropped[id] = true
		}
	}
	if len(dropped) != many/100-1+findNearby/2 {
		t.Errorf("%d responses dropped", len(dropped))
	}
	if o.given-o.released != 1 {
		t.Errorf("%d owners are not released, want that of the first long response", o.given-o.released)
	}
	if !a.w.Drop(7) {
		t.Error("a short response far ahead counts as dropped")
	}
	exchange(t, d, a)
	if n := len(d.h.responses); n != left-len(dropped) || d.h.responses[7] == nil || d.h.responses[50] == nil {
		t.Errorf("%d of %d responses arrived, with %d dropped", n, left, len(dropped))
	}
	for id := range dropped {
		if d.h.responses[id] != nil {
			t.Errorf("response %d was dropped and arrived", id)
		}
	}
}

func BenchmarkDropUnknown(b *testing.B) {
	w := NewWriter()
	w.Open(1, Settings{})
	for i := range uint64(100_000) {
		w.Response(2+i^1, &protocol.Response{Status: 200, DeclaredLength: -1}, protocol.CodecHTTP, nil)
	}
	for b.Loop() {
		w.Drop(1)
	}
}

// TestQueueMemory checks that a turn of many messages allocates once, whether they
// leave in one piece or in several. The kept memory is dropped if the next messages
// need little of it, or by Trim.
func TestQueueMemory(t *testing.T) {
	turn := func(w *Writer, messages, budget int) {
		for range messages {
			w.message(frameRequest, 1, make([]byte, 1000), false, nil)
		}
		for w.messages.live > 0 {
			w.messages.take(nil, budget, nil)
		}
	}
	cases := []struct {
		name     string
		messages int // of 1,000 bytes each turn
		then     int // messages of one more turn; 0 means Trim instead
		kept     bool
	}{
		{"little", 10, 1, true},
		{"one, trimmed", 1, 0, true},
		{"little, trimmed", 10, 0, false},
		{"much", 150, 150, true},
		{"much, then a quarter", 150, 75, true},
		{"much, then little", 150, 1, false},
		{"much, trimmed", 150, 0, false},
		{"too much", 1000, 1000, false},
	}
	for _, c := range cases {
		for _, budget := range []int{1 << 30, 64 << 10, 1} {
			w := NewWriter()
			w.Open(MaxVersion, Settings{})
			turn(w, c.messages, budget)
			if c.then > 0 {
				turn(w, c.then, budget)
			} else {
				w.Trim()
			}
			if kept := cap(w.messages.buf); kept > 0 != c.kept || kept > keepInUse {
				t.Errorf("%s, taken by %d: %d bytes are kept, want some: %t", c.name, budget, kept, c.kept)
			}
		}
	}
}

func TestTrimPendingMessages(t *testing.T) {
	d, a := newLink(t, Settings{}, ReaderLimits{})
	for id := range uint64(200) {
		d.w.Request(id+1, big(1000), 0, nil)
	}
	d.w.Trim()
	exchange(t, d, a)
	if len(a.h.requests) != 200 {
		t.Errorf("%d of 200 requests arrived", len(a.h.requests))
	}
}

// TestQueueForgets: a queue that has closed its gaps refers to no message that has left, so that the memory of the message can go.
func TestQueueForgets(t *testing.T) {
	var q queue
	for id, size := range []int{2 * compactOver, 10, 10} {
		q.buf = append(q.buf, make([]byte, size)...)
		q.push(uint64(id), &outgoing{})
	}
	q.kill(0)
	q.take(nil, 1, func(*outgoing) {})
	if q.live != 1 || q.pending() != 10 {
		t.Fatalf("%d messages of %d bytes are left", q.live, q.pending())
	}
	for i, s := range q.segs[:cap(q.segs)] {
		if held := s.long != nil; held != (i == q.head) {
			t.Errorf("segment %d of %d refers to a message: %t", i, len(q.segs), held)
		}
	}
}
