package forecast

import (
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/histogram"
)

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
// several delays, the delay in force first, and the latency that they had without hedges. It is for
// reports.
func (s *Shadow) Forecasts(now, delay time.Duration, most int) (out []Forecast, watched histogram.Distribution) {
	if most == 0 {
		return nil, watched
	}
	halves := s.recent(now)
	for _, h := range halves {
		h.counts.addTo(&watched)
		watched.Censored += int64(h.censored)
	}
	out = make([]Forecast, min(most, len(s.plans)))
	for i := range out {
		f := &out[i]
		if f.Delay = s.plans[i].delay; f.Delay == 0 {
			f.Delay, f.Current = delay, true
		}
		f.Latency = watched
		for _, h := range halves {
			f.add(h, i, uint64(s.every))
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
func (s *Shadow) recent(now time.Duration) (halves []*half) {
	for _, h := range s.halves {
		if h != nil && now-h.began <= 2*model.halfMost {
			halves = append(halves, h)
		}
	}
	return halves
}
