package bench

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/remora-proxy/remora/lab/load"
	"github.com/remora-proxy/remora/lab/steal"
)

// A Load is what a row is put under.
type Load struct {
	Name   string
	send   func(context.Context, Tools, string) (*Result, error)
	period time.Duration // of the watch
}

// A closed loop leaves no processor idle, so the watch takes from it: with this period
// 1% of two processors, against 2% with that of an open loop, whose requests it tells apart.
const closedPeriod = 10 * time.Millisecond

// Result is what a load measured.
type Result struct {
	Requests int64   `json:"requests"` // answered or failed
	Errors   int64   `json:"errors"`
	Seconds  float64 `json:"seconds"`
	Latency

	open *load.Result // of an open loop: it has each request
}

// Latency is in microseconds: of a closed loop from the sending, of an open one from
// the intended send time.
type Latency struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// latencyOf takes one of nanoseconds.
func latencyOf(h *hdrhistogram.Histogram) Latency {
	us := func(ns int64) float64 { return float64(ns) / float64(time.Microsecond) }
	return Latency{us(h.ValueAtQuantile(50)), us(h.ValueAtQuantile(99)), us(h.ValueAtQuantile(99.9)), us(h.Max())}
}

// requestTimeout is generous: a load that a machine can't carry is to be slow, not
// to fail.
const requestTimeout = time.Minute

// Closed is a loop of so many connections, each of which sends its next request as
// soon as it has its answer. It is made by wrk if there is one, in whole seconds.
func Closed(connections int, d time.Duration) Load {
	name := fmt.Sprintf("closed loop, %d connections", connections)
	if connections == 1 {
		name = "closed loop, 1 connection"
	}
	return Load{name, func(ctx context.Context, t Tools, url string) (*Result, error) {
		if t[Wrk] != "" {
			return runWrk(ctx, t[Wrk], url, connections, d)
		}
		return runLab(ctx, load.Options{Targets: []string{url}, Closed: true, Connections: connections, Duration: d})
	}, closedPeriod}
}

// sized is a closed loop of requests with bodies of so many bytes, none or at least 16.
func sized(connections, body int, d time.Duration) Load {
	return Load{"", func(ctx context.Context, t Tools, url string) (*Result, error) {
		if t[Wrk] != "" {
			return runWrk(ctx, t[Wrk], url, connections, d, "--", strconv.Itoa(body))
		}
		return runLab(ctx, load.Options{
			Targets: []string{url}, Closed: true, Connections: connections, Duration: d, Body: bytes.Repeat([]byte{'7'}, body),
		})
	}, closedPeriod}
}

// Open sends so many requests per second, whatever becomes of them.
func Open(rate float64, d time.Duration) Load {
	return Load{fmt.Sprintf("open loop, %.0f requests/s", rate), func(ctx context.Context, _ Tools, url string) (*Result, error) {
		return runLab(ctx, load.Options{Targets: []string{url}, Rate: rate, Duration: d, Samples: true})
	}, steal.Period}
}

// runLab makes load with the lab's own generator. Replicas need not send nonces back.
func runLab(ctx context.Context, o load.Options) (*Result, error) {
	o.NoNonce, o.Timeout = true, requestTimeout
	r, err := load.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	result := &Result{
		Requests: r.Counts.Requests, Errors: r.Counts.Failed(), Seconds: r.Elapsed.Seconds(), Latency: latencyOf(r.Latency),
	}
	if o.Samples {
		result.open = r
	}
	return result, nil
}

// run puts the row under load and returns what it measured, with the cost to the
// row's proxies; no figures if no request was answered.
func (l Load) run(ctx context.Context, s *Stack, w watch) (Sample, error) {
	sample := Sample{Row: s.row.Name, Load: l.Name}
	cycles, err := s.collections(ctx)
	if err != nil {
		return sample, err
	}
	var (
		r        *Result
		used     Usage
		from, to time.Time
	)
	stops, err := w.during(l.period, func() error {
		before, err := s.Meter.Usage()
		if err != nil {
			return err
		}
		from = time.Now()
		if r, err = l.send(ctx, s.Tools, s.URL); err != nil {
			return err
		}
		to = time.Now()
		after, err := s.Meter.Usage()
		used = after.Since(before)
		return err
	})
	if err != nil || r.Requests == 0 {
		return sample, err
	}
	sample.Requests, sample.Errors = r.Requests, r.Errors
	sample.Figures = Figures{Rate: float64(r.Requests) / r.Seconds}
	sample.Figures.latency(r.Latency)
	if w != nil {
		sample.tell(r, stops, from, to)
	}
	if len(s.Meter) == 0 {
		return sample, nil
	}
	sample.Figures.cost(used, r.Requests)
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

// cost adds what was used for the requests.
func (f Figures) cost(u Usage, requests int64) {
	f[CPU] = float64(u.CPU) / float64(time.Microsecond) / float64(requests)
	if share, ok := u.UserShare(); ok {
		f[User], f[System] = share*f[CPU], (1-share)*f[CPU]
	}
}

func mebibytes(b int64) float64 { return float64(b) / (1 << 20) }
