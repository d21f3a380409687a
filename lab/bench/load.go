package bench

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/remora-proxy/remora/lab/load"
	"github.com/remora-proxy/remora/lab/steal"
)

// Load is what a row is measured under.
type Load struct {
	Name   string
	send   func(context.Context, *Stack) (*Result, error)
	period time.Duration // of the probes of processors

	// prepare comes before the load and is not measured; nil means a warm-up of the row.
	prepare func(context.Context, *Stack) error
}

// closedPeriod is longer than steal.Period: a closed loop leaves no processor idle, so that
// each probe takes from it. It costs 1% of two processors, the shorter period 2%.
const closedPeriod = 10 * time.Millisecond

// Result is what a load measured.
type Result struct {
	Requests int64   `json:"requests"` // with a response or failed
	Errors   int64   `json:"errors"`
	Seconds  float64 `json:"seconds"`
	Latency

	open *load.Result // of an open loop: it has each request
	more Figures
}

// Latency is in microseconds. It counts from the sending in a closed loop, and from the
// intended send time in an open one.
type Latency struct {
	P50   float64 `json:"p50"`
	P95   float64 `json:"p95,omitempty"` // not of wrk
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	P9999 float64 `json:"p9999,omitempty"` // not of wrk
	Max   float64 `json:"max"`
}

// latencyOf converts a histogram of nanoseconds.
func latencyOf(h *hdrhistogram.Histogram) Latency {
	us := func(ns int64) float64 { return float64(ns) / float64(time.Microsecond) }
	at := func(percent float64) float64 { return us(h.ValueAtQuantile(percent)) }
	return Latency{P50: at(50), P95: at(95), P99: at(99), P999: at(99.9), P9999: at(99.99), Max: us(h.Max())}
}

// requestTimeout is long: a load that a machine can't carry is slow, but must not fail.
const requestTimeout = time.Minute

// Closed is a loop of so many connections, each of which sends its next request as soon
// as it has its response. wrk makes it if it is installed, in whole seconds.
func Closed(connections int, d time.Duration) Load {
	name := fmt.Sprintf("closed loop, %d connections", connections)
	if connections == 1 {
		name = "closed loop, 1 connection"
	}
	return Load{name, func(ctx context.Context, s *Stack) (*Result, error) {
		if s.Tools[Wrk] != "" {
			return runWrk(ctx, s.Tools[Wrk], s.row.script, s.URL, connections, d)
		}
		return runLab(ctx, load.Options{Targets: []string{s.URL}, Closed: true, Connections: connections, Duration: d})
	}, closedPeriod, nil}
}

// Open sends so many requests per second, whatever becomes of them.
func Open(rate float64, d time.Duration) Load {
	return Load{fmt.Sprintf("open loop, %.0f requests/s", rate), func(ctx context.Context, s *Stack) (*Result, error) {
		return runLab(ctx, load.Options{Targets: []string{s.URL}, Rate: rate, Duration: d, Samples: true})
	}, steal.Period, nil}
}

// runLab makes load with the lab's own generator. Replicas need not send nonces back.
func runLab(ctx context.Context, o load.Options) (*Result, error) {
	o.NoNonce, o.Timeout = true, requestTimeout
	r, err := load.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	return resultOf(r), nil
}

func resultOf(r *load.Result) *Result {
	result := &Result{
		Requests: r.Counts.Requests, Errors: r.Counts.Failed(), Seconds: r.Elapsed.Seconds(), Latency: latencyOf(r.Latency),
	}
	if r.Samples != nil {
		result.open = r
	}
	return result
}

// run puts the row under load, and returns what it measured and what its proxies used. The
// sample has no figures if no request got a response.
func (l Load) run(ctx context.Context, s *Stack, o *Options) (Sample, error) {
	sample := Sample{Row: s.row.Name, Load: l.Name}
	if l.prepare != nil {
		if err := l.prepare(ctx, s); err != nil {
			return sample, err
		}
	}
	cycles, err := s.collections(ctx)
	if err != nil {
		return sample, err
	}
	var (
		r        *Result
		used     Usage
		first    Usage
		from, to time.Time
	)
	stops, err := o.watched(l.period, func() error {
		before, err := s.Meter.Usage()
		if err != nil {
			return err
		}
		beforeFirst, err := s.first.Usage()
		if err != nil {
			return err
		}
		from = time.Now()
		if r, err = l.send(ctx, s); err != nil {
			return err
		}
		to = time.Now()
		after, err := s.Meter.Usage()
		if err != nil {
			return err
		}
		afterFirst, err := s.first.Usage()
		used, first = after.Since(before), afterFirst.Since(beforeFirst)
		return err
	})
	if err != nil || r.Requests == 0 {
		return sample, err
	}
	sample.Requests, sample.Errors = r.Requests, r.Errors
	sample.Figures = Figures{Rate: float64(r.Requests) / r.Seconds}
	maps.Copy(sample.Figures, r.more)
	sample.Figures.latency(r.Latency)
	if r.open != nil {
		sample.Curve = load.Curve(r.open.Latency)
	}
	if o.Watch {
		sample.addStops(r, stops, from, to)
	}
	if len(s.Meter) == 0 {
		return sample, nil
	}
	sample.Figures.cost(used, r.Requests)
	if len(s.Meter) > 1 {
		sample.Figures[First] = float64(first.CPU) / float64(time.Microsecond) / float64(r.Requests)
	}
	rss, err := s.Meter.RSS()
	if err != nil {
		return sample, err
	}
	sample.Figures[RSS] = mebibytes(rss)
	if len(s.admins) == 0 {
		return sample, nil
	}
	since, err := s.collections(ctx)
	sample.Figures[Collections] = since - cycles
	return sample, err
}

// Limits for stops of a processor, in percent. They apply before any latency is known, so
// that no latency is chosen for being good.
const (
	tooRestless  = 2  // of a load's time: a verdict says so
	tooDisturbed = 50 // of an open loop's requests: the other requests are too few for a latency
)

// addStops adds how long processors stood still between two times. The latencies of an open
// loop become those of its undisturbed requests.
func (s *Sample) addStops(r *Result, stops []steal.Stop, from, to time.Time) {
	percent := func(part, whole float64) float64 { return 100 * part / whole }
	s.Figures[Stopped] = percent(float64(steal.Total(stops, from, to)), float64(to.Sub(from)))
	if r.open == nil || len(r.open.Samples) == 0 {
		return
	}
	all := r.Latency
	s.All = &all
	r.open.Stops = stops
	calm := r.open.Undisturbed()
	requests := float64(len(r.open.Samples))
	s.Figures[Disturbed] = percent(requests-float64(calm.TotalCount()), requests)
	for _, f := range latencies {
		delete(s.Figures, f)
	}
	s.Curve = nil
	if s.Figures[Disturbed] <= tooDisturbed {
		s.Figures.latency(latencyOf(calm))
		s.Curve = load.Curve(calm)
	}
}
