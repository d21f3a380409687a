package forecast

import (
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/histogram"
)

// latencies counts requests by latency. A bucket is two of the histogram's.
type latencies [histogram.Buckets / 2]int32

func (l *latencies) addTo(d *histogram.Distribution) {
	for i, n := range l {
		if n != 0 { // most are
			d.Counts[2*i] += int64(n / 2)
			d.Counts[2*i+1] += int64(n - n/2)
		}
	}
}

// half is what a Shadow has seen in one half of the time that a forecast covers.
type half struct {
	began     time.Duration
	primaries uint64 // of the route, before those that the first watched one stands for
	requests  uint64 // of the route, since then
	watched   int64
	counts    latencies // of the watched requests, as they were
	censored  int32
	changes   []change // by plan
}

// change is the effect that hedging with one delay would have had on the watched requests.
type change struct {
	hedges   uint64
	censored int32
	counts   *latencies // differences to those of the half; nil means none
}

// half returns the current half.
func (s *Shadow) half(now time.Duration, primaries uint64) *half {
	h := s.halves[0]
	if h == nil || now-h.began >= model.halfMost || h.watched >= model.enough && now-h.began >= model.half {
		h = s.halves[1].cleared(len(s.plans))
		h.began, h.primaries = now, primaries-min(primaries-s.seen, uint64(s.every))
		s.halves[0], s.halves[1] = h, s.halves[0]
	}
	h.requests = primaries - h.primaries
	return h
}

// cleared returns an empty half, in the memory of h if that is not nil.
func (h *half) cleared(plans int) *half {
	if h == nil {
		return &half{changes: make([]change, plans)}
	}
	*h = half{changes: h.changes}
	for i := range h.changes {
		c := &h.changes[i]
		c.hedges, c.censored = 0, 0
		if c.counts != nil {
			clear(c.counts[:])
		}
	}
	return h
}

func (h *half) add(took time.Duration, cutOff bool) {
	h.watched++
	if cutOff {
		h.censored++
	} else {
		h.counts[histogram.BucketOf(took)/2]++
	}
}

// move counts a request with the latency took, or cut off, as one with the latency to.
func (c *change) move(took, to time.Duration, cutOff bool) {
	if c.counts == nil {
		c.counts = new(latencies)
	}
	if cutOff {
		c.censored--
	} else {
		c.counts[histogram.BucketOf(took)/2]--
	}
	c.counts[histogram.BucketOf(to)/2]++
}
