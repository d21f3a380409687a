package load

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// recorder collects what is counted. One lock is enough: it is held for tens of
// nanoseconds per request.
type recorder struct {
	mu           sync.Mutex
	started      time.Time // end of the warm-up
	last         time.Time // last end of a request
	counts       Counts
	latency, lag *hdrhistogram.Histogram
	log          io.Writer // or nil
	keep         bool
	samples      []Sample
}

// outcome is how a request ended.
type outcome struct {
	status int       // 0 means no response
	kind   ErrorKind // "" means success
	code   string    // of ErrStatus: x-remora-error
}

func newRecorder(o *Options) recorder {
	return recorder{
		keep: o.Samples, log: o.Log,
		counts:  Counts{Errors: map[ErrorKind]int64{}, Statuses: map[int]int64{}},
		latency: newHistogram(), lag: newHistogram(),
	}
}

func (r *recorder) begin(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started, r.last = at, at
}

// end records a request that ended at now after latency.
func (r *recorder) end(now time.Time, latency time.Duration, o outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.After(r.last) {
		r.last = now
	}
	r.counts.Requests++
	if o.status != 0 {
		r.counts.Statuses[o.status]++
	}
	if o.kind != "" {
		r.counts.Errors[o.kind]++
	}
	if o.kind == "" || o.kind == ErrTimeout {
		record(r.latency, latency)
		if r.keep && len(r.samples) < maxSamples {
			r.samples = append(r.samples, Sample{Due: now.Add(-latency), Latency: latency})
		}
	}
	if r.log != nil {
		fmt.Fprintln(r.log, now.Add(-latency).UnixMicro(), latency.Microseconds(), o.status,
			cmp.Or(string(o.kind), "-"), cmp.Or(o.code, "-"))
	}
}

// sent records how late a request was sent.
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
