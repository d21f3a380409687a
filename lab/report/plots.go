package report

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"slices"

	"github.com/remora-proxy/remora/lab/load"
)

// tailLines are the lines of tail.svg: a row of the tail bench, its title and its colour.
var tailLines = []struct{ row, title, colour string }{
	{"haproxy", "HAProxy leastconn, 1 hop", "#8a8f98"},
	{"envoy-hedge", "Envoy, hedge after 5 ms, 1 hop", "#7b4fa3"},
	{"remora-off", "Remora, hedging off", "#c2571a"},
	{"remora", "Remora, hedging auto", "#1769aa"},
	{"remora-max2", "Remora, hedging auto, max 2", "#2a8a4a"},
}

// tailSample is what tail.svg needs of a sample of the tail bench.
type tailSample struct {
	Row   string       `json:"row"`
	Curve []load.Point `json:"curve"`
}

// Plots draws two files into dir: tail.svg from the samples of the tail bench, and
// forecast.svg from a report of the demo in shadow mode. Both sources are JSON files.
func Plots(dir, tail, shadow string) error {
	var samples struct{ Samples []tailSample }
	var demo Report
	if err := errors.Join(readJSON(tail, &samples), readJSON(shadow, &demo)); err != nil {
		return err
	}
	if demo.Off == nil || len(demo.Off.Forecasts) < 2 {
		return fmt.Errorf("report: %s has no forecasts", shadow)
	}
	latencies := latencyChart(tailCurves(samples.Samples))
	if latencies == nil {
		return fmt.Errorf("report: %s has no curves", tail)
	}
	charts := map[string]*Chart{"tail.svg": latencies, "forecast.svg": forecastChart(demo.Off.Forecasts)}
	for name, chart := range charts {
		if err := draw(filepath.Join(dir, name), chart.SVG); err != nil {
			return err
		}
	}
	return nil
}

func draw(path string, chart func() (template.HTML, error)) error {
	svg, err := chart()
	if err == nil {
		err = os.WriteFile(path, []byte(svg), 0o644)
	}
	if err != nil {
		return fmt.Errorf("report: %s: %w", path, err)
	}
	return nil
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return fmt.Errorf("report: %s: %w", path, err)
	}
	return nil
}

// tailCurves joins the curves of each row: medians of the rounds, up to the quantile 99.99%.
func tailCurves(samples []tailSample) (lines []Line) {
	for _, l := range tailLines {
		rounds := map[float64][]float64{}
		for _, s := range samples {
			for _, p := range s.Curve {
				if s.Row == l.row && p.Quantile > 0 && p.Quantile <= 0.9999 {
					rounds[p.Quantile] = append(rounds[p.Quantile], p.MS)
				}
			}
		}
		line := Line{Title: l.title, Colour: l.colour}
		for q, ms := range rounds {
			line.Points = append(line.Points, XY{q, median(ms)})
		}
		slices.SortFunc(line.Points, func(a, b XY) int { return cmp.Compare(a.X, b.X) })
		if len(line.Points) > 0 {
			lines = append(lines, line)
		}
	}
	return lines
}

// median sorts the values, of which there is at least one.
func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// forecastChart draws P99, P99.9 and extra load over the delay of the hedge.
func forecastChart(forecasts []Forecast) *Chart {
	forecasts = slices.DeleteFunc(slices.Clone(forecasts), func(f Forecast) bool { return f.Current })
	slices.SortFunc(forecasts, func(a, b Forecast) int { return cmp.Compare(a.DelayMS, b.DelayMS) })
	p99, p999, extra := Line{Title: "P99, ms", Colour: "#1769aa"}, Line{Title: "P99.9, ms", Colour: "#c2571a"},
		Line{Title: "extra load, %", Colour: "#2a8a4a"}
	var delays []float64
	for _, f := range forecasts {
		delays = append(delays, f.DelayMS)
		if f.P99 != nil {
			p99.Points = append(p99.Points, XY{f.DelayMS, *f.P99})
		}
		if f.P999 != nil {
			p999.Points = append(p999.Points, XY{f.DelayMS, *f.P999})
		}
		if f.ExtraLoad > 0 {
			extra.Points = append(extra.Points, XY{f.DelayMS, 100 * f.ExtraLoad})
		}
	}
	return &Chart{
		X: logAxis("delay of the hedge, ms", "", delays), Y: logAxis("ms or %", "", around(0.1, 100)),
		Lines: []Line{p999, p99, extra},
	}
}
