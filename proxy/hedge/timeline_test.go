package hedge

import (
	"testing"
	"time"
)

func TestTimeline(t *testing.T) {
	const mine, other, third = 1, 2, 3
	at := func(n int) time.Duration { return 10*time.Second + time.Duration(n)*ms }
	for _, c := range []struct {
		name string
		do   func(l *timeline)
		want uint32 // as in sample.took; 0 means that there is none
	}{
		{"nothing was sent", func(l *timeline) {}, 0},
		{"only to the same endpoint", func(l *timeline) { l.note(at(500), mine, 3*ms) }, 0},
		{"to another", func(l *timeline) { l.note(at(500), other, 3*ms) }, 3000},
		{"no response yet", func(l *timeline) { l.note(at(500), other, 0) }, tookPending},
		{"the nearest", func(l *timeline) {
			l.note(at(490), other, 3*ms)
			l.note(at(505), other, 4*ms)
			l.note(at(530), other, 5*ms)
		}, 4000},
		{"out of reach", func(l *timeline) { l.note(at(500-timelineReach-1), other, 3*ms) }, 0},
		{"unavailable", func(l *timeline) { l.add(at(500), other, true) }, tookUnavailable},
		{"available ones first", func(l *timeline) {
			l.add(at(500), other, true)
			l.note(at(500), third, 3*ms)
		}, 3000},
		{"as near on the other side, and available", func(l *timeline) {
			l.add(at(501), other, true)
			l.note(at(499), third, 3*ms)
		}, 3000},
		{"in a slot that was reused", func(l *timeline) { l.note(at(500-timelineSlots), other, 3*ms) }, 0},
		{"more than a slot holds", func(l *timeline) {
			for range samplesPerSlot {
				l.note(at(500), mine, 3*ms)
			}
			l.note(at(500), other, 4*ms)
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var l timeline
			c.do(&l)
			for range 3 { // the search starts at another sample each time
				var got uint32
				if s := l.near(at(500), mine); s != nil {
					got = s.took
				}
				if got != c.want {
					t.Errorf("found %d, want %d", got, c.want)
				}
			}
		})
	}
}

// note adds a primary. took is 0 if it is still in flight.
func (t *timeline) note(at time.Duration, endpoint uint32, took time.Duration) {
	if i, ok := t.add(at, endpoint, false); ok && took > 0 {
		t.setLatency(at, i, took)
	}
}

// A primary whose slot was reused before its response changes nothing there.
func TestTimelineReusedSlot(t *testing.T) {
	var l timeline
	i, _ := l.add(5*ms, 1, false)
	l.add(5*ms+timelineSlots*slotWidth, 2, false)
	l.setLatency(5*ms, i, time.Second)
	if s := l.near(5*ms+timelineSlots*slotWidth, 9); s == nil || s.took != tookPending {
		t.Errorf("found %+v, want one that is pending", s)
	}
}
