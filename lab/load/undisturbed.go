package load

import (
	"slices"
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

// margin is how far around a stop requests are disturbed by it: those that were
// under way, and those that came before the queues behind it were worked off.
const margin = 5 * time.Millisecond

// Undisturbed is the latency, in nanoseconds, of those r.Samples that were due when
// no processor stood still (r.Stops), nor within 5 ms of it. What decides is when
// a request was due and never how long it took, so slow requests are as likely to
// stay as fast ones.
func (r *Result) Undisturbed() *hdrhistogram.Histogram {
	h := newHistogram()
	loud := merge(r.Stops)
	for _, s := range r.Samples {
		next := sort.Search(len(loud), func(i int) bool { return !loud[i].To.Before(s.Due) })
		if next == len(loud) || s.Due.Before(loud[next].From) {
			record(h, s.Latency)
		}
	}
	return h
}

// merge returns the stops of all processors with their margins, in order and apart
// from each other.
func merge(stops []steal.Stop) []steal.Stop {
	sorted := slices.SortedFunc(slices.Values(stops), func(a, b steal.Stop) int { return a.From.Compare(b.From) })
	var merged []steal.Stop
	for _, s := range sorted {
		s.From, s.To = s.From.Add(-margin), s.To.Add(margin)
		last := len(merged) - 1
		if last < 0 || merged[last].To.Before(s.From) {
			merged = append(merged, s)
			continue
		}
		merged[last].To = slices.MaxFunc([]time.Time{merged[last].To, s.To}, time.Time.Compare)
	}
	return merged
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
