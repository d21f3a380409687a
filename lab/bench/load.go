package bench

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/remora-proxy/remora/lab/child"
	"github.com/remora-proxy/remora/lab/load"
	"github.com/remora-proxy/remora/lab/steal"
)

// Load is what a row is measured under.
type Load struct {
	Name       string
	job        Job                                 // of rows that have it; "" means all rows
	bytes      int                                 // of a body, if that is what costs
	handshakes bool                                // its requests are handshakes
	period     time.Duration                       // of the probes of processors
	prepare    func(context.Context, *Stack) error // not measured; nil means a warm-up of the row
	send       func(context.Context, *Stack) (*Result, error)
}

// Result is what a load measured. Its figures are those that only this load has, and latencies:
// from the sending of a request in a closed loop, from the intended send time in an open one.
type Result struct {
	Requests int64        `json:"requests"` // with a response or failed
	Errors   int64        `json:"errors"`
	Seconds  float64      `json:"seconds"`
	Figures  Figures      `json:"figures"`
	open     *load.Result // of an open loop: it has each request
}

// requestTimeout is long: a load that a machine can't carry is slow, but must not fail.
const requestTimeout = time.Minute

// closedPeriod is longer than steal.Period: a closed loop leaves no processor idle, so that
// each probe takes from it. It costs 1% of two processors, the shorter period 2%.
const closedPeriod = 10 * time.Millisecond

// Closed is a loop of so many connections, each of which sends its next request as soon
// as it has its response. wrk makes it if it is installed, in whole seconds.
func Closed(connections int, d time.Duration) Load {
	name := fmt.Sprintf("closed loop, %d connections", connections)
	if connections == 1 {
		name = "closed loop, 1 connection"
	}
	return calls{}.closed(name, connections, d)
}

// calls are the requests of a closed loop. The zero value is POSTs of 300 bytes.
type calls struct {
	get   string // path and query of GETs instead
	size  int    // of the bodies of POSTs, if not 300 bytes
	close bool   // each has a new connection
}

func (c calls) closed(name string, connections int, d time.Duration) Load {
	return Load{Name: name, period: closedPeriod, send: func(ctx context.Context, s *Stack) (*Result, error) {
		if s.Tools[Wrk] != "" {
			return c.wrk(ctx, s, connections, d)
		}
		o := load.Options{Targets: []string{c.url(s)}, Closed: true, Connections: connections, Duration: d}
		if c.get != "" {
			o.Method = http.MethodGet
		}
		if c.size > 0 {
			o.Body = make([]byte, c.size)
		}
		if c.close {
			o.Header = []load.Header{{Name: "connection", Value: "close"}}
		}
		return s.runLab(ctx, o)
	}}
}

func (c calls) url(s *Stack) string {
	return strings.TrimSuffix(s.URL, computePath) + cmp.Or(c.get, computePath)
}

// Open sends so many requests per second, whatever becomes of them.
func Open(rate float64, d time.Duration) Load {
	name := fmt.Sprintf("open loop, %.0f requests/s", rate)
	return Load{Name: name, period: steal.Period, send: func(ctx context.Context, s *Stack) (*Result, error) {
		return s.runLab(ctx, load.Options{Targets: []string{s.URL}, Rate: rate, Duration: d, Samples: true})
	}}
}

// runLab makes load with the lab's own generator. Replicas need not send nonces back.
func (s *Stack) runLab(ctx context.Context, o load.Options) (_ *Result, err error) {
	o.NoNonce, o.Timeout = true, requestTimeout
	if s.row.scheme() == "https://" {
		if o.TLS, err = s.clientTLS(); err != nil {
			return nil, err
		}
	}
	r, err := load.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	return resultOf(r), nil
}

func resultOf(r *load.Result) *Result {
	result := &Result{
		Requests: r.Counts.Requests, Errors: r.Counts.Failed(),
		Seconds: r.Elapsed.Seconds(), Figures: latencyOf(r.Latency),
	}
	if r.Samples != nil {
		result.open = r
	}
	return result
}

// wrkScripts make the requests, and print a last line with a Result.
//
//go:embed wrk
var wrkScripts embed.FS

var wrkResult = regexp.MustCompile(`(?m)^RESULT (.*)$`)

// wrk makes a closed loop with wrk, which costs the machine less than a load in Go.
func (c calls) wrk(ctx context.Context, s *Stack, connections int, d time.Duration) (*Result, error) {
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.0fs", math.Ceil(d.Seconds())) }
	ctx, cancel := context.WithTimeout(ctx, d+requestTimeout)
	defer cancel()
	script := cmp.Or(s.row.script, "post.lua")
	if c.get != "" {
		script = "result.lua"
	}
	args := []string{"-t" + strconv.Itoa(max(1, min(s.row.cores, connections))), "-c" + strconv.Itoa(connections), "-d" + seconds(d),
		"--timeout", seconds(requestTimeout), "-s", filepath.Join(s.dir, "wrk", script)}
	if c.close {
		args = append(args, "-H", "Connection: close")
	}
	args = append(args, c.url(s))
	if c.size > 0 {
		args = append(args, "--", strconv.Itoa(c.size))
	}
	program, args := s.Tools.pin(s.cores.load, s.Tools[Wrk], args)
	out, err := child.Output(ctx, program, args...)
	if err != nil {
		return nil, err
	}
	return parseWrk(out)
}

// parseWrk reads the line that result.lua prints.
func parseWrk(out []byte) (*Result, error) {
	m := wrkResult.FindSubmatch(out)
	if m == nil {
		return nil, errors.New("wrk printed no result")
	}
	r := &Result{}
	if err := json.Unmarshal(m[1], r); err != nil {
		return nil, fmt.Errorf("wrk: %w", err)
	}
	return r, nil
}

// run returns what the load measured and what the proxies used; no figures if no request ended.
func (l Load) run(ctx context.Context, s *Stack, o *Options) (Sample, error) {
	sample := Sample{Row: s.row.Name, Load: l.Name}
	if l.prepare != nil {
		if err := l.prepare(ctx, s); err != nil {
			return sample, err
		}
	}
	counts, err := s.counts(ctx)
	if err != nil {
		return sample, err
	}
	var r *Result
	var before, after Usage
	stops, err := o.watched(l.period, func() (err error) {
		if before, err = s.Meter.Usage(); err != nil {
			return err
		}
		if r, err = l.send(ctx, s); err != nil {
			return err
		}
		after, err = s.Meter.Usage()
		return err
	})
	if err != nil || r.Requests == 0 {
		return sample, err
	}
	sample.Requests, sample.Errors = r.Requests, r.Errors
	sample.Figures = Figures{Rate: float64(r.Requests) / r.Seconds}
	maps.Copy(sample.Figures, r.Figures)
	if r.open != nil {
		sample.Curve = load.Curve(r.open.Latency)
	}
	if o.Watch {
		sample.addStops(r.open, stops, before.At, after.At)
	}
	if len(s.Meter) > 0 {
		maps.Copy(sample.Figures, after.Since(before).figures(r.Requests, len(s.Meter)))
		if l.handshakes {
			sample.Figures[PerCore] = 1e6 / sample.Figures[CPU]
		}
		if l.bytes > 0 {
			sample.Figures[PerGiB] = sample.Figures[CPU] / 1e6 * (1 << 30) / float64(l.bytes)
		}
	}
	since, err := s.counts(ctx)
	for figure, n := range since {
		sample.Figures[figure] = n - counts[figure]
	}
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
func (s *Sample) addStops(open *load.Result, stops []steal.Stop, from, to time.Time) {
	percent := func(part, whole float64) float64 { return 100 * part / whole }
	s.Figures[Stopped] = percent(float64(steal.Total(stops, from, to)), float64(to.Sub(from)))
	if open == nil || len(open.Samples) == 0 {
		return
	}
	s.All, s.Curve = Figures{}, nil
	for _, f := range latencies {
		s.All[f] = s.Figures[f]
		delete(s.Figures, f)
	}
	open.Stops = stops
	calm := open.Undisturbed()
	requests := float64(len(open.Samples))
	s.Figures[Disturbed] = percent(requests-float64(calm.TotalCount()), requests)
	if s.Figures[Disturbed] <= tooDisturbed {
		maps.Copy(s.Figures, latencyOf(calm))
		s.Curve = load.Curve(calm)
	}
}
