package hedge

import (
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/histogram"
)

// A half of what a forecast is made of ends after halfTime, once it has enoughWatched requests,
// and in any case after halfMost: P99.9 needs thousands of requests.
const (
	halfTime      = longHalf
	halfMost      = 10 * time.Minute
	enoughWatched = 4096
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

// half is what shadow mode has seen in one half of the time that a forecast covers.
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
func (s *shadow) half(now time.Duration, r *Route) *half {
	h := s.halves[0]
	if h == nil || now-h.began >= halfMost || h.watched >= enoughWatched && now-h.began >= halfTime {
		h = s.halves[1].cleared(len(s.plans))
		h.began, h.primaries = now, r.Counts.Primaries-min(r.Counts.Primaries-s.seen, uint64(s.every))
		s.halves[0], s.halves[1] = h, s.halves[0]
	}
	h.requests = r.Counts.Primaries - h.primaries
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

// Forecast is what hedging with one delay would have done to the watched requests: those of the
// last half minute and more.
type Forecast struct {
	Delay    time.Duration
	Current  bool                   // reports whether Delay is the one in force now; it may have changed meanwhile
	Latency  histogram.Distribution // of the watched requests
	Hedges   uint64                 // for all requests
	Requests uint64                 // all of the route in that time
}

// Add adds o, the forecast of another loop with the same delay or nearly so, to f.
func (f *Forecast) Add(o *Forecast) {
	f.Delay = max(f.Delay, o.Delay)
	f.Latency.Add(&o.Latency)
	f.Hedges += o.Hedges
	f.Requests += o.Requests
}

// Forecasts returns what hedging would have done to the watched requests with the first most of
// several delays, the delay in force first, and the latency that they had without hedges. Unless
// the mode is Shadow it returns nil. It is for reports.
func (r *Route) Forecasts(now time.Duration, most int) (out []Forecast, watched histogram.Distribution) {
	if r.shadow == nil || most == 0 {
		return nil, watched
	}
	halves := r.shadow.recent(now)
	for _, h := range halves {
		h.counts.addTo(&watched)
		watched.Censored += int64(h.censored)
	}
	out = make([]Forecast, min(most, len(r.shadow.plans)))
	for i := range out {
		f := &out[i]
		if f.Delay = r.shadow.plans[i].delay; f.Delay == 0 {
			f.Delay, f.Current = r.Delay(now), true
		}
		f.Latency = watched
		for _, h := range halves {
			f.add(h, i, uint64(r.shadow.every))
		}
	}
	return out, watched
}

// add adds what hedging with the delay of plan i would have changed in a half, in which one in
// every requests was watched.
func (f *Forecast) add(h *half, i int, every uint64) {
	c := &h.changes[i]
	if c.counts != nil {
		c.counts.addTo(&f.Latency)
	}
	f.Latency.Censored += int64(c.censored)
	f.Hedges += c.hedges * every
	f.Requests += h.requests
}

// recent returns the halves that still count. Reading must not change them.
func (s *shadow) recent(now time.Duration) (halves []*half) {
	for _, h := range s.halves {
		if h != nil && now-h.began <= 2*halfMost {
			halves = append(halves, h)
		}
	}
	return halves
}
