package load

import (
	"sort"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/remora-proxy/remora/lab/steal"
)

// Sample is a request whose latency was counted.
type Sample struct {
	Due     time.Time // intended send time
	Latency time.Duration
}

// maxSamples bounds what Options.Samples keeps; what comes later is not in
// Result.Samples.
const maxSamples = 1 << 23

// margin is how far around a stop requests are disturbed by it at least: those that
// were under way, and those that came before the queues behind it were worked off.
const margin = 5 * time.Millisecond

// echo is the time in which requests are disturbed by a stop. A machine that is half
// busy takes as long as the stop to work off what came meanwhile.
func echo(s steal.Stop) steal.Stop {
	behind := max(margin, s.To.Sub(s.From))
	s.From, s.To = s.From.Add(-margin), s.To.Add(behind)
	return s
}

// Undisturbed is the latency, in nanoseconds, of those r.Samples that were due when
// no processor stood still (r.Stops), nor within 5 ms of it, nor for as long after it
// as it took. What decides is when a request was due and never how long it took, so
// slow requests are as likely to stay as fast ones.
func (r *Result) Undisturbed() *hdrhistogram.Histogram {
	h := newHistogram()
	loud := make([]steal.Stop, 0, len(r.Stops))
	for _, s := range r.Stops {
		loud = append(loud, echo(s))
	}
	loud = steal.Merge(loud)
	for _, s := range r.Samples {
		next := sort.Search(len(loud), func(i int) bool { return !loud[i].To.Before(s.Due) })
		if next == len(loud) || s.Due.Before(loud[next].From) {
			record(h, s.Latency)
		}
	}
	return h
}

// UndisturbedJSON is what JSON says of Result.Undisturbed. Latencies are in
// milliseconds.
type UndisturbedJSON struct {
	Requests int64   `json:"requests"`
	Stops    int     `json:"stops"` // of at least steal.Least
	Stopped  float64 `json:"stopped_ms"`
	P50      float64 `json:"p50_ms"`
	P90      float64 `json:"p90_ms"`
	P99      float64 `json:"p99_ms"`
	P999     float64 `json:"p999_ms"`
	P9999    float64 `json:"p9999_ms"`
	Max      float64 `json:"max_ms"`
	Curve    []Point `json:"curve"`
}

func (r *Result) undisturbed() *UndisturbedJSON {
	h := r.Undisturbed()
	j := &UndisturbedJSON{
		Requests: h.TotalCount(), Stops: len(r.Stops),
		P50: ms(quantile(h, .5)), P90: ms(quantile(h, .9)), P99: ms(quantile(h, .99)),
		P999: ms(quantile(h, .999)), P9999: ms(quantile(h, .9999)), Max: ms(time.Duration(h.Max())),
		Curve: curve(h),
	}
	for _, s := range r.Stops {
		j.Stopped += ms(s.To.Sub(s.From))
	}
	return j
}
