package report

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/remora-proxy/remora/lab/bench"
)

// frontierLines are the lines of a frontier: a figure of all rows whose names begin so.
var frontierLines = []struct {
	rows          []string
	figure        bench.Figure
	title, colour string
}{
	{[]string{"envoy"}, bench.P999, "P99.9, Envoy with a hedge after 3 to 25 ms", "#c9a9e0"},
	{[]string{"off", "budget-"}, bench.P999, "P99.9, Remora with budgets of 1 to 20%", "#8fc1ea"},
	{[]string{"envoy"}, bench.P99, "P99, Envoy", "#7b4fa3"},
	{[]string{"off", "budget-"}, bench.P99, "P99, Remora", "#1769aa"},
}

// Frontiers draws frontier-SHAPE.svg into dir for each shape: the tail of latency over the extra
// load, from the samples of the bench of frontiers, a JSON file. HAProxy is a level line, as it
// hedges nothing.
func Frontiers(dir, measured string) error {
	var of struct {
		Loads   []string
		Rows    []string
		Samples bench.Samples
	}
	if err := readJSON(measured, &of); err != nil {
		return err
	}
	for _, shape := range of.Loads {
		chart := frontierChart(of.Samples, of.Rows, shape)
		if chart == nil {
			return fmt.Errorf("report: %s has no frontier of %s", measured, shape)
		}
		slug := strings.ReplaceAll(strings.ReplaceAll(shape, "%", ""), " ", "-")
		if err := draw(filepath.Join(dir, "frontier-"+slug+".svg"), chart.SVG); err != nil {
			return err
		}
	}
	return nil
}

// frontierChart draws a shape. It is nil without a figure.
func frontierChart(samples bench.Samples, rows []string, shape string) *Chart {
	var lines []Line
	var all []float64
	most := 1.0 // extra load, in percent
	point := func(row string, f bench.Figure) (XY, bool) {
		extra, tail := samples.Values(row, shape, bench.Extra), samples.Values(row, shape, f)
		if len(extra) == 0 || len(tail) == 0 {
			return XY{}, false
		}
		p := XY{max(0, median(extra)), median(tail) / 1000}
		all, most = append(all, p.Y), max(most, p.X)
		return p, true
	}
	for _, l := range frontierLines {
		line := Line{Title: l.title, Colour: l.colour}
		for _, row := range rows {
			if !slices.ContainsFunc(l.rows, func(prefix string) bool { return strings.HasPrefix(row, prefix) }) {
				continue
			}
			if p, ok := point(row, l.figure); ok {
				line.Points = append(line.Points, p)
			}
		}
		slices.SortFunc(line.Points, func(a, b XY) int { return cmp.Compare(a.X, b.X) })
		if len(line.Points) > 0 {
			lines = append(lines, line)
		}
	}
	p, ok := point("haproxy", bench.P99)
	if len(all) == 0 {
		return nil
	}
	chart := &Chart{X: linearAxis(most), Y: logAxis("latency", " ms", around(slices.Min(all), slices.Max(all))), Lines: lines}
	chart.X.Title = "extra load, %"
	if ok {
		last := chart.X.Ticks[len(chart.X.Ticks)-1].Value
		chart.Lines = append(lines, Line{Title: "P99, HAProxy", Colour: "#8a8f98", Points: []XY{{0, p.Y}, {last, p.Y}}})
	}
	return chart
}
