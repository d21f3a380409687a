package hedge

import (
	"math"
	"time"
)

// The timeline remembers requests by the millisecond in which they were sent, the
// first startsPerSlot of each, for about two seconds; it looks for one near a
// moment up to timelineReach slots to either side.
const (
	slotWidth     = time.Millisecond
	timelineSlots = 2048
	startsPerSlot = 4
	timelineReach = 100
)

// What start.took holds when it is not a latency in microseconds.
const (
	tookPending = math.MaxUint32     // not answered yet: too late to win, as over an hour would be
	tookShut    = math.MaxUint32 - 1 // the endpoint was stalled or busy: no hedge would have been sent there
)

// start is one primary attempt.
type start struct {
	endpoint uint32
	took     uint32
}

func (s *start) latency() time.Duration { return time.Duration(s.took) * time.Microsecond }

// slot is one millisecond. Its starts are chosen as they are sent, when nobody
// knows yet how long they take: chosen as they are answered, the quick ones would
// come first.
type slot struct {
	number int64 // of the millisecond, counted from 1; 0: never used
	n      int
	starts [startsPerSlot]start
}

// timeline tells how long a request to another endpoint would have taken at a
// moment that is past: as long as one that was sent there at that moment.
type timeline struct {
	slots [timelineSlots]slot
	turn  uint // where the search within a slot begins, so that none is preferred
}

func slotNumber(t time.Duration) int64 { return int64(t/slotWidth) + 1 }

// add notes a primary and returns its position in its slot; ok is false when the
// slot is full.
func (t *timeline) add(now time.Duration, endpoint uint32, shut bool) (index uint8, ok bool) {
	number := slotNumber(now)
	s := &t.slots[number%timelineSlots]
	if s.number != number {
		s.number, s.n = number, 0
	}
	if s.n == startsPerSlot {
		return 0, false
	}
	s.starts[s.n] = start{endpoint, tookPending}
	if shut {
		s.starts[s.n].took = tookShut
	}
	s.n++
	return uint8(s.n - 1), true
}

// answered notes how long the primary at that position of the slot of sent took,
// unless the timeline has gone round since.
func (t *timeline) answered(sent time.Duration, index uint8, took time.Duration) {
	number := slotNumber(sent)
	s := &t.slots[number%timelineSlots]
	if s.number == number && s.starts[index].took == tookPending {
		s.starts[index].took = uint32(min(max(took/time.Microsecond, 0), tookShut-1))
	}
}

// near returns a primary that was sent about the time at to an endpoint other than
// not: of the nearest slot that has one, rather one that was not shut. nil: there
// is none within reach.
func (t *timeline) near(at time.Duration, not uint32) *start {
	t.turn++
	number := slotNumber(at)
	for off := range int64(timelineReach + 1) {
		found := t.within(number+off, not, nil)
		if off > 0 {
			found = t.within(number-off, not, found)
		}
		if found != nil {
			return found
		}
	}
	return nil
}

// within looks in one slot for something better than found.
func (t *timeline) within(number int64, not uint32, found *start) *start {
	if number < 1 || found != nil && found.took != tookShut {
		return found
	}
	s := &t.slots[number%timelineSlots]
	if s.number != number {
		return found
	}
	for i := range s.n {
		c := &s.starts[(uint(i)+t.turn)%uint(s.n)]
		if c.endpoint != not && (found == nil || c.took != tookShut) {
			found = c
		}
		if found != nil && found.took != tookShut {
			break
		}
	}
	return found
}
