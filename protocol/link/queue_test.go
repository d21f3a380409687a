package link

import (
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

// A peer that does not read has answers pile up, in the order in which requests were
// done. One look for an answer among them costs no more for that, and those that hold
// much are found wherever they are.
func TestDropAmongManyAnswers(t *testing.T) {
	const many = 10_000
	d, a := newLink(t, Settings{}, ReaderLimits{})
	var o owners
	answer := func(id uint64, n int) {
		a.w.Response(id, &protocol.Response{Status: 200, Body: make([]byte, n), DeclaredLength: -1}, protocol.CodecHTTP, o.next())
	}
	for i := range uint64(many) {
		id := i ^ 1 // each two in the wrong order
		switch {
		case id == 0: // no id
		case id%100 == 50:
			answer(id, 100<<10)
		default:
			answer(id, 10)
		}
	}
	q := &a.w.ready
	for i, s := range q.segs {
		at, near := q.find(s.id), i >= len(q.segs)-findNearby
		if near && at != i || !near && at != -1 {
			t.Fatalf("answer %d of %d, for request %d, is looked for and found at %d", i, len(q.segs), s.id, at)
		}
	}
	left, dropped := len(q.segs), map[uint64]bool{}
	for id := uint64(150); id < many; id += 100 { // all long ones but the first: takes the dead out as it goes
		if a.w.Drop(id) {
			t.Fatalf("the long answer %d counts as started", id)
		}
		dropped[id] = true
	}
	for i := range uint64(findNearby / 2) {
		if id := uint64(many - 1 - i); !dropped[id] && !a.w.Drop(id) {
			dropped[id] = true
		}
	}
	if len(dropped) != many/100-1+findNearby/2 {
		t.Errorf("%d answers dropped", len(dropped))
	}
	if o.given-o.released != 1 {
		t.Errorf("%d owners are not released, want that of the first long answer", o.given-o.released)
	}
	if !a.w.Drop(7) {
		t.Error("a short answer far ahead counts as dropped")
	}
	exchange(t, d, a)
	if n := len(d.h.responses); n != left-len(dropped) || d.h.responses[7] == nil || d.h.responses[50] == nil {
		t.Errorf("%d of %d answers arrived, with %d dropped", n, left, len(dropped))
	}
	for id := range dropped {
		if d.h.responses[id] != nil {
			t.Errorf("answer %d was dropped and arrived", id)
		}
	}
}

func BenchmarkDropOfUnknown(b *testing.B) {
	w := NewWriter()
	w.Open(1, Settings{})
	for i := range uint64(100_000) {
		w.Response(2+i^1, &protocol.Response{Status: 200, DeclaredLength: -1}, protocol.CodecHTTP, nil)
	}
	for b.Loop() {
		w.Drop(1)
	}
}

// TestQueueKeepsWhatItNeeds: a turn of many messages allocates once, whether they leave
// in one piece or in several, and what is kept for the next turn goes when it is too
// much for the messages that come, or nobody asks for it.
func TestQueueKeepsWhatItNeeds(t *testing.T) {
	turn := func(w *Writer, messages, budget int) {
		for range messages {
			w.message(frameRequest, 1, make([]byte, 1000), nil)
		}
		for w.ready.live > 0 {
			w.ready.take(nil, budget, nil)
		}
	}
	cases := []struct {
		name     string
		messages int // of 1,000 bytes each turn
		then     int // messages of one more turn; 0: no turn, but Trim
		kept     bool
	}{
		{"little", 10, 1, true},
		{"little, trimmed", 10, 0, true},
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
			if kept := cap(w.ready.buf); kept > 0 != c.kept || kept > keepInUse {
				t.Errorf("%s, taken by %d: %d bytes are kept, want some: %t", c.name, budget, kept, c.kept)
			}
		}
	}
}

func TestTrimTakesNothingThatWaits(t *testing.T) {
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
