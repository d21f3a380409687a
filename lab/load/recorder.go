package load

import (
	"cmp"
	"fmt"
	"io"
	"sync"
	"time"
)

// recorder collects what is counted. Its lock is held for tens of nanoseconds per request.
type recorder struct {
	log  io.Writer // or nil
	each func(End) // or nil
	keep bool      // samples

	mu      sync.Mutex
	started time.Time // end of the warm-up
	last    time.Time // last end of a request
	sum     Result    // without Elapsed
}

// outcome is how a request ended.
type outcome struct {
	status int       // 0 means no response
	kind   ErrorKind // "" means success
	code   string    // of ErrStatus: x-remora-error
}

func (r *recorder) begin(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started, r.last = at, at
}

// end records a request that ended at now.
func (r *recorder) end(req request, now time.Time, o outcome) {
	latency := now.Sub(req.due)
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.After(r.last) {
		r.last = now
	}
	r.sum.Counts.Requests++
	if o.status != 0 {
		r.sum.Counts.Statuses[o.status]++
	}
	if o.kind != "" {
		r.sum.Counts.Errors[o.kind]++
	}
	if o.kind == "" || o.kind == ErrTimeout {
		record(r.sum.Latency, latency)
		if r.keep && len(r.sum.Samples) < maxSamples {
			r.sum.Samples = append(r.sum.Samples, Sample{Due: req.due, Latency: latency})
		}
	}
	if r.each != nil {
		r.each(End{req.index, req.due, latency, o.kind})
	}
	r.write(req, latency, o)
}

// write logs the end of a request. The caller holds the lock.
func (r *recorder) write(req request, latency time.Duration, o outcome) {
	if r.log == nil {
		return
	}
	waited := int64(-1)
	if !req.sent.IsZero() {
		waited = req.sent.Sub(req.due).Microseconds()
	}
	fmt.Fprintf(r.log, "%d %d %d %s %s %016x %d\n", req.due.UnixMicro(), latency.Microseconds(), o.status,
		cmp.Or(string(o.kind), "-"), cmp.Or(o.code, "-"), req.nonce, waited)
}

// stray records a response at now that no request awaits.
func (r *recorder) stray(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sum.Counts.Errors[ErrStray]++
	r.write(request{due: now}, 0, outcome{kind: ErrStray})
}

// sent records how late a request was sent.
func (r *recorder) sent(lag time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	record(r.sum.Lag, lag)
}

func (r *recorder) look(now time.Time) Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := Progress{
		Elapsed:  -1,
		Requests: r.sum.Counts.Requests, Errors: r.sum.Counts.Failed(),
		P50: r.sum.Quantile(.5), P99: r.sum.Quantile(.99), Max: r.sum.Max(),
	}
	if !r.started.IsZero() {
		p.Elapsed = now.Sub(r.started)
	}
	return p
}

// result returns what was recorded. Nothing may be recorded after it.
func (r *recorder) result() *Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sum.Elapsed = r.last.Sub(r.started)
	return &r.sum
}
