package hedge

import (
	"math"
	"time"
)

// The timeline keeps the first samplesPerSlot primaries of each millisecond for about two
// seconds. It looks for one near a given time in up to timelineReach slots to either side.
const (
	slotWidth      = time.Millisecond
	timelineSlots  = 2048
	samplesPerSlot = 4
	timelineReach  = 100
)

// Values of sample.took that are no latency in microseconds.
const (
	tookPending     = math.MaxUint32     // no response yet; as a latency, over an hour, it never wins
	tookUnavailable = math.MaxUint32 - 1 // the endpoint was stalled or full: it would have got no hedge
)

// sample is one primary attempt.
type sample struct {
	endpoint uint32
	took     uint32
}

func (s *sample) latency() time.Duration { return time.Duration(s.took) * time.Microsecond }

// slot holds the samples of one millisecond. They are chosen as they are sent, when
// their latency is unknown: chosen as they end, the quick ones would come first.
type slot struct {
	number  int64 // number of the millisecond, counted from 1; 0 means never used
	n       int
	samples [samplesPerSlot]sample
}

// timeline answers how long a request to another endpoint would have taken at a
// past time: as long as a primary that was sent there at that time.
type timeline struct {
	slots [timelineSlots]slot
	turn  uint // where the search within a slot begins, so that no sample is preferred
}

func slotNumber(t time.Duration) int64 { return int64(t/slotWidth) + 1 }

// add records a primary and returns its index in its slot; ok is false if the slot is full.
func (t *timeline) add(now time.Duration, endpoint uint32, unavailable bool) (index uint8, ok bool) {
	number := slotNumber(now)
	s := &t.slots[number%timelineSlots]
	if s.number != number {
		s.number, s.n = number, 0
	}
	if s.n == samplesPerSlot {
		return 0, false
	}
	s.samples[s.n] = sample{endpoint, tookPending}
	if unavailable {
		s.samples[s.n].took = tookUnavailable
	}
	s.n++
	return uint8(s.n - 1), true
}

// setLatency records the latency of the primary that was sent at the given time
// and has the given index, unless its slot was reused since.
func (t *timeline) setLatency(sent time.Duration, index uint8, took time.Duration) {
	number := slotNumber(sent)
	s := &t.slots[number%timelineSlots]
	if s.number == number && s.samples[index].took == tookPending {
		s.samples[index].took = uint32(min(max(took/time.Microsecond, 0), tookUnavailable-1))
	}
}

// near returns a primary that was sent at about the time at to an endpoint other
// than not. It takes the nearest slot that has one, and there prefers one whose
// endpoint was available. It returns nil if there is none within reach.
func (t *timeline) near(at time.Duration, not uint32) *sample {
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

// within searches one slot for a better sample than found, which may be nil.
func (t *timeline) within(number int64, not uint32, found *sample) *sample {
	if number < 1 || found != nil && found.took != tookUnavailable {
		return found
	}
	s := &t.slots[number%timelineSlots]
	if s.number != number {
		return found
	}
	for i := range s.n {
		c := &s.samples[(uint(i)+t.turn)%uint(s.n)]
		if c.endpoint != not && (found == nil || c.took != tookUnavailable) {
			found = c
		}
		if found != nil && found.took != tookUnavailable {
			break
		}
	}
	return found
}
