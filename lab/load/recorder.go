package load

import (
	"maps"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A recorder gathers what is counted. One lock is enough: it is held for tens of
// nanoseconds a request.
type recorder struct {
	mu           sync.Mutex
	started      time.Time // end of the warm-up
	last         time.Time // last end of a request
	counts       Counts
	latency, lag *hdrhistogram.Histogram
	keep         bool
	samples      []Sample
}

func newRecorder(keep bool) recorder {
	return recorder{
		keep:    keep,
		counts:  Counts{Errors: map[ErrorKind]int64{}, Statuses: map[int]int64{}},
		latency: newHistogram(), lag: newHistogram(),
	}
}

func (r *recorder) begin(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started, r.last = at, at
}

// end notes a request that ended at now after latency; status is 0 when there
// was no answer.
func (r *recorder) end(now time.Time, latency time.Duration, status int, kind ErrorKind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.After(r.last) {
		r.last = now
	}
	r.counts.Requests++
	if status != 0 {
		r.counts.Statuses[status]++
	}
	if kind != "" {
		r.counts.Errors[kind]++
	}
	if kind == "" || kind == ErrTimeout {
		record(r.latency, latency)
		if r.keep && len(r.samples) < maxSamples {
			r.samples = append(r.samples, Sample{Due: now.Add(-latency), Latency: latency})
		}
	}
}

// sent notes by how much a request was sent late.
func (r *recorder) sent(lag time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	record(r.lag, lag)
}

func (r *recorder) look(now time.Time) Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := Progress{
		Elapsed:  -1,
		Requests: r.counts.Requests, Errors: r.counts.Failed(),
		P50: quantile(r.latency, .5), P99: quantile(r.latency, .99),
		Max: time.Duration(r.latency.Max()),
	}
	if !r.started.IsZero() {
		p.Elapsed = now.Sub(r.started)
	}
	return p
}

func (r *recorder) result() *Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &Result{
		Counts: Counts{
			Requests: r.counts.Requests,
			Errors:   maps.Clone(r.counts.Errors),
			Statuses: maps.Clone(r.counts.Statuses),
		},
		Latency: r.latency, Lag: r.lag, Samples: r.samples,
		Elapsed: r.last.Sub(r.started),
	}
}
