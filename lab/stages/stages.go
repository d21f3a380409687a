// Package stages measures how much of what is possible a closed loop of callers
// gets: callers that each wait for an answer before they ask again, in front of
// a service whose calls take a fixed time, can't get more than their number
// divided by that time. It tells the CPU time that sidecars took meanwhile.
package stages

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/remora-proxy/remora/lab/load"
)

// Options says what to measure. All fields but Warmup, Sidecars and Token have to
// be set.
type Options struct {
	URL         string
	Connections []int         // one stage each
	Delay       time.Duration // of one call at the service
	Warmup      time.Duration // once, with the most connections, and not counted
	Duration    time.Duration // of a stage
	Ready       time.Duration // how long the URL may take to answer 200 at the start

	Sidecars []Sidecar
	Token    string // of their admin APIs
}

// Sidecar is a process whose CPU time is told.
type Sidecar struct{ Name, Admin string } // Admin: host:port

// Stage is what one number of connections got.
type Stage struct {
	Connections int
	Good        int64   // answers with status 2xx
	Failed      int64   // everything else
	Rate        float64 // good answers per second
	Ceiling     float64 // of Rate
	P99         time.Duration
	CPU         []time.Duration // of each sidecar, per good answer of all
}

// Share is the part of the ceiling that was reached.
func (s *Stage) Share() float64 { return s.Rate / s.Ceiling }

// Report is what was measured.
type Report struct {
	Sidecars []Sidecar
	Stages   []Stage
}

// Score is the best rate of all stages.
func (r *Report) Score() float64 {
	score := 0.0
	for _, s := range r.Stages {
		score = max(score, s.Rate)
	}
	return score
}

// Run measures, for as long as all stages take together.
func Run(ctx context.Context, o Options) (*Report, error) {
	most := 0
	for _, n := range o.Connections {
		if n < 1 {
			return nil, fmt.Errorf("stages: a stage of %d connections", n)
		}
		most = max(most, n)
	}
	if most == 0 || o.Delay <= 0 || o.Duration <= 0 || o.Warmup < 0 {
		return nil, errors.New("stages: want stages, and a delay and a duration that are positive")
	}
	if err := awaitReady(ctx, o.URL, o.Ready); err != nil {
		return nil, err
	}
	if o.Warmup > 0 {
		if _, err := o.run(ctx, most, o.Warmup); err != nil {
			return nil, err
		}
	}
	r := &Report{Sidecars: o.Sidecars}
	for _, n := range o.Connections {
		s, err := o.stage(ctx, n)
		if err != nil {
			return nil, err
		}
		r.Stages = append(r.Stages, s)
	}
	return r, nil
}

func (o *Options) run(ctx context.Context, connections int, d time.Duration) (*load.Result, error) {
	return load.Run(ctx, load.Options{
		Targets: []string{o.URL}, Method: "GET", Closed: true, NoNonce: true,
		Connections: connections, Duration: d, Timeout: 5 * time.Second,
	})
}

func (o *Options) stage(ctx context.Context, connections int) (Stage, error) {
	before, err := o.cpu(ctx)
	if err != nil {
		return Stage{}, err
	}
	res, err := o.run(ctx, connections, o.Duration)
	if err != nil {
		return Stage{}, err
	}
	after, err := o.cpu(ctx)
	if err != nil {
		return Stage{}, err
	}
	s := Stage{
		Connections: connections, Failed: res.Counts.Failed(), Good: res.Counts.Requests - res.Counts.Failed(),
		Ceiling: float64(connections) / o.Delay.Seconds(), P99: res.Quantile(.99),
	}
	s.Rate = float64(s.Good) / res.Elapsed.Seconds()
	for i := range before {
		s.CPU = append(s.CPU, (after[i]-before[i])/time.Duration(max(1, s.Good)))
	}
	return s, nil
}

// awaitReady returns once the URL answers 200.
func awaitReady(ctx context.Context, url string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		body, err := get(ctx, url, "")
		if err == nil {
			return body.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stages: %s did not get ready: %w", url, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// cpu reads the CPU time of each sidecar since its start.
func (o *Options) cpu(ctx context.Context) ([]time.Duration, error) {
	var all []time.Duration
	for _, s := range o.Sidecars {
		d, err := cpuOf(ctx, s.Admin, o.Token)
		if err != nil {
			return nil, fmt.Errorf("stages: CPU time of %s: %w", s.Name, err)
		}
		all = append(all, d)
	}
	return all, nil
}

func cpuOf(ctx context.Context, admin, token string) (time.Duration, error) {
	body, err := get(ctx, "http://"+admin+"/metrics", token)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "process_cpu_seconds_total "); ok {
			seconds, err := strconv.ParseFloat(text, 64)
			return time.Duration(seconds * float64(time.Second)), err
		}
	}
	return 0, errors.Join(errors.New("no process_cpu_seconds_total"), lines.Err())
}

// get returns the body of an answer with status 200, which the caller closes.
func get(ctx context.Context, url, token string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != 200 {
		resp.Body.Close()
		return nil, fmt.Errorf("status %d", resp.StatusCode)
	}
	return resp.Body, nil
}

// Text writes the report as a Markdown table and the score below it.
func (r *Report) Text(w io.Writer) error {
	head := []string{"connections", "QPS", "ceiling", "share of ceiling", "p99 ms", "failed"}
	for _, s := range r.Sidecars {
		head = append(head, s.Name+" CPU µs")
	}
	var b strings.Builder
	row(&b, append(head, "together"))
	b.WriteString(strings.Repeat("|---:", len(head)+1) + "|\n")
	for i := range r.Stages {
		row(&b, r.Stages[i].cells())
	}
	fmt.Fprintf(&b, "\nscore: %.0f\n", r.Score())
	_, err := io.WriteString(w, b.String())
	return err
}

func row(b *strings.Builder, cells []string) {
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

func (s *Stage) cells() []string {
	cells := []string{
		strconv.Itoa(s.Connections),
		fmt.Sprintf("%.0f", s.Rate),
		fmt.Sprintf("%.0f", s.Ceiling),
		fmt.Sprintf("%.1f%%", 100*s.Share()),
		fmt.Sprintf("%.1f", float64(s.P99)/float64(time.Millisecond)),
		strconv.FormatInt(s.Failed, 10),
	}
	sum := time.Duration(0)
	for _, d := range s.CPU {
		sum += d
		cells = append(cells, micros(d))
	}
	return append(cells, micros(sum))
}

func micros(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/float64(time.Microsecond)) }
