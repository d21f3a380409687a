package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/remora-proxy/remora/lab/child"
)

// Stages are closed loops of callers in front of a service whose requests take a fixed time.
// n callers can't get more than n divided by that time: the ceiling of a stage.
type Stages struct {
	Connections []int         // one stage each
	Delay       time.Duration // of a request at the service
	Ready       time.Duration // how long the URL may take to respond with 2xx at the start
	Sidecars    []Sidecar
	Token       string // of the admin APIs
}

// Sidecar is a process whose CPU time is reported. Admin is a host and a port.
type Sidecar struct{ Name, Admin string }

// Stage is the result of one number of connections.
type Stage struct {
	Connections int
	Good        int64   // responses with status 2xx
	Failed      int64   // all other requests
	Rate        float64 // good responses per second
	Ceiling     float64 // of Rate
	P50, P99    time.Duration
	CPU         []time.Duration // of each sidecar, per good response of all
}

// Run makes the load that o asks for in each stage. The warm-up comes once, before the first
// stage, with the most connections.
func (s *Stages) Run(ctx context.Context, o Options) (stages []Stage, err error) {
	if len(s.Connections) == 0 || slices.Min(s.Connections) < 1 || s.Delay <= 0 || len(o.Targets) != 1 {
		return nil, errors.New("load: want one URL, stages of at least 1 connection, and a delay above 0")
	}
	if !strings.HasPrefix(o.Targets[0], "http://") {
		return nil, fmt.Errorf("load: stages of %s: want http://", o.Targets[0])
	}
	if err := s.awaitReady(ctx, o.Targets[0]); err != nil {
		return nil, err
	}
	o.Closed = true
	if o.Warmup > 0 {
		warm := o
		warm.Connections, warm.Duration, warm.Warmup = slices.Max(s.Connections), o.Warmup, 0
		if _, err := Run(ctx, warm); err != nil {
			return nil, err
		}
		o.Warmup = 0
	}
	for _, n := range s.Connections {
		stage, err := s.stage(ctx, o, n)
		if err != nil {
			return nil, err
		}
		stages = append(stages, stage)
	}
	return stages, nil
}

func (s *Stages) stage(ctx context.Context, o Options, connections int) (Stage, error) {
	o.Connections = connections
	before, err := s.cpu(ctx)
	if err != nil {
		return Stage{}, err
	}
	r, err := Run(ctx, o)
	if err != nil {
		return Stage{}, err
	}
	after, err := s.cpu(ctx)
	if err != nil {
		return Stage{}, err
	}
	stage := Stage{
		Connections: connections, Failed: r.Counts.Failed(), Good: r.Counts.Requests - r.Counts.Failed(),
		Ceiling: float64(connections) / s.Delay.Seconds(), P50: r.Quantile(.5), P99: r.Quantile(.99),
	}
	stage.Rate = float64(stage.Good) / r.Elapsed.Seconds()
	for i := range before {
		stage.CPU = append(stage.CPU, (after[i]-before[i])/time.Duration(max(1, stage.Good)))
	}
	return stage, nil
}

func (s *Stages) awaitReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, s.Ready)
	defer cancel()
	for {
		_, err := child.Call(ctx, http.MethodGet, url)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("load: %s is not ready: %w", url, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// cpu returns the CPU time of each sidecar since its start.
func (s *Stages) cpu(ctx context.Context) (all []time.Duration, err error) {
	for _, sidecar := range s.Sidecars {
		metrics, err := child.CallAs(ctx, s.Token, http.MethodGet, "http://"+sidecar.Admin+"/metrics")
		seconds := 0.0
		if err == nil {
			seconds, err = child.Metric(metrics, "process_cpu_seconds_total")
		}
		if err != nil {
			return nil, fmt.Errorf("load: CPU time of %s: %w", sidecar.Name, err)
		}
		all = append(all, time.Duration(seconds*float64(time.Second)))
	}
	return all, nil
}

// Text writes the stages as a Markdown table, and below it the score: the best rate.
func (s *Stages) Text(w io.Writer, stages []Stage) error {
	head := []string{"connections", "QPS", "ceiling", "share of ceiling", "p50 ms", "p99 ms", "failed"}
	for _, sidecar := range s.Sidecars {
		head = append(head, sidecar.Name+" CPU µs")
	}
	var b strings.Builder
	row := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	row(append(head, "together"))
	b.WriteString(strings.Repeat("|---:", len(head)+1) + "|\n")
	score := 0.0
	for _, stage := range stages {
		cells := []string{
			strconv.Itoa(stage.Connections), fmt.Sprintf("%.0f", stage.Rate), fmt.Sprintf("%.0f", stage.Ceiling),
			fmt.Sprintf("%.1f%%", 100*stage.Rate/stage.Ceiling),
			fmt.Sprintf("%.1f", ms(stage.P50)), fmt.Sprintf("%.1f", ms(stage.P99)), strconv.FormatInt(stage.Failed, 10),
		}
		sum := time.Duration(0)
		for _, d := range stage.CPU {
			sum += d
			cells = append(cells, fmt.Sprintf("%.1f", 1e3*ms(d)))
		}
		row(append(cells, fmt.Sprintf("%.1f", 1e3*ms(sum))))
		score = max(score, stage.Rate)
	}
	fmt.Fprintf(&b, "\nscore: %.0f\n", score)
	_, err := io.WriteString(w, b.String())
	return err
}
