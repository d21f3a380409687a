package link

import "testing"

// TestQueueKeepsWhatItNeeds: a turn of many messages allocates once, whether they leave
// in one piece or in several, and what is kept for the next turn goes when it is too
// much for the messages that come, or nobody asks for it.
func TestQueueKeepsWhatItNeeds(t *testing.T) {
	turn := func(w *Writer, messages, budget int) (kept int) {
		for range messages {
			w.message(frameRequest, 1, make([]byte, 1000), nil)
		}
		for w.ready.live > 0 {
			w.ready.take(nil, budget, nil)
		}
		return cap(w.ready.buf)
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
