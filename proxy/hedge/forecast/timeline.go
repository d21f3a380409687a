package forecast

import (
	"math"
	"sort"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/histogram"
)

const (
	// A timeline has room for maxNoted primaries, in 16 KiB: those of model.kept, at one in each
	// model.noteEvery.
	minNoted, maxNoted = 64, 2048

	// timelineUnit is the unit of noted.sent, a number that wraps around after a day.
	timelineUnit = 32 * time.Microsecond
)

// Values of noted.took that are no bucket of the histogram.
const (
	tookPending     = math.MaxUint16     // no response yet
	tookUnavailable = math.MaxUint16 - 1 // the endpoint was stalled or full: it would have got no hedge
)

// noted is one primary attempt. It was chosen when it was sent, when its latency was unknown:
// chosen as they end, the quick ones would come first.
type noted struct {
	sent     uint32
	endpoint uint16 // the low bits of its number
	took     uint16 // a bucket: the latency if the request were of the quickest class
}

// latency returns the latency of a response.
func (n *noted) latency() time.Duration { return histogram.MiddleOf(int(n.took)) }

// timeline answers how long a request to another endpoint would have taken at a past time: as
// long as a primary that was sent there at about that time. It is a ring, in the order of
// sending, that grows with the rate of requests.
type timeline struct {
	ring  []noted // its length is a power of 2
	added uint32  // primaries so far; the last is at (added-1) % len(ring)
}

func timelineTime(t time.Duration) uint32 { return uint32(t / timelineUnit) }

func (t *timeline) at(number uint32) *noted { return &t.ring[number&uint32(len(t.ring)-1)] }

// oldest returns the number of the oldest primary in the ring.
func (t *timeline) oldest() uint32 { return t.added - min(t.added, uint32(len(t.ring))) }

// add notes a primary and returns its number.
func (t *timeline) add(now time.Duration, endpoint uint32, unavailable bool) uint32 {
	sent := timelineTime(now)
	if full := t.added-t.oldest() == uint32(len(t.ring)); full && len(t.ring) < maxNoted &&
		(len(t.ring) == 0 || sent-t.at(t.oldest()).sent < timelineTime(model.kept)) {
		t.grow()
	}
	n := noted{sent: sent, endpoint: uint16(endpoint), took: tookPending}
	if unavailable {
		n.took = tookUnavailable
	}
	*t.at(t.added) = n
	t.added++
	return t.added - 1
}

func (t *timeline) grow() {
	larger := timeline{ring: make([]noted, max(minNoted, 2*len(t.ring))), added: t.added}
	for i := t.oldest(); i != t.added; i++ {
		*larger.at(i) = *t.at(i)
	}
	*t = larger
}

// setLatency records how long the primary with this number would have taken if its request were of the quickest class. A
// primary that is forgotten is left out.
func (t *timeline) setLatency(number uint32, took time.Duration) {
	if t.added-number > uint32(len(t.ring)) {
		return
	}
	if n := t.at(number); n.took == tookPending {
		n.took = uint16(histogram.BucketOf(took))
	}
}

// near returns the primary that was sent nearest to the time at, to an endpoint other than not.
// One whose endpoint was available is preferred to one that is nearer by up to model.noteEvery. It
// returns nil if there is none within reach.
func (t *timeline) near(at time.Duration, not uint32) (found *noted) {
	want, oldest := timelineTime(at), t.oldest()
	length := int(t.added - oldest)
	first := oldest + uint32(sort.Search(length, func(i int) bool { return int32(t.at(oldest+uint32(i)).sent-want) >= 0 }))
	before, after := first-1, first
	for limit := int32(model.reach / timelineUnit); ; {
		back, ahead := int32(math.MaxInt32), int32(math.MaxInt32)
		if before-oldest < uint32(length) {
			back = int32(want - t.at(before).sent)
		}
		if after != t.added {
			ahead = int32(t.at(after).sent - want)
		}
		if min(back, ahead) > limit {
			return found
		}
		var n *noted
		if ahead <= back {
			n = t.at(after)
			after++
		} else {
			n = t.at(before)
			before--
		}
		switch {
		case n.endpoint == uint16(not):
		case n.took != tookUnavailable:
			return n
		case found == nil:
			found, limit = n, min(limit, min(back, ahead)+int32(model.noteEvery/timelineUnit))
		}
	}
}
