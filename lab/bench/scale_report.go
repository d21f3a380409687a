package bench

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/remora-proxy/remora/lab/report"
)

// A ScaleReport is what RunScale measured. The load of a sample is the step.
type ScaleReport struct {
	Began      time.Time   `json:"began"`
	Rounds     int         `json:"rounds"`
	Machine    Machine     `json:"machine"`
	Tools      Tools       `json:"tools"`
	Rows       []string    `json:"rows"`
	Dimensions []Dimension `json:"dimensions"`
	LeftOut    []string    `json:"left_out"` // what was not measured, and why
	Samples    Samples     `json:"samples"`
}

var scaleColumns = []column{
	{"CPU µs/request", CPU, "%.1f", 1, true, true},
	{"user", User, "%.1f", 1, false, false},
	{"system", System, "%.1f", 1, false, false},
	{"consumer's CPU", ConsumerCPU, "%.1f", 1, true, false},
	{"requests/s", Rate, "%.0f", 1, true, true},
	{"p50 µs", P50, "%.0f", 1, true, false},
	{"p99 µs", P99, "%.0f", 1, true, true},
	{"RSS MiB", RSS, "%.0f", 1, true, true},
	{"consumer's RSS", ConsumerRSS, "%.0f", 1, true, false},
}

// leaveOut notes a step that the system has too few descriptors for.
func (r *ScaleReport) leaveOut(d Dimension, step, descriptors int) {
	said := fmt.Sprintf("%s %d was left out, for it takes more than the %d connections that a process may have here: raise the "+
		"hard limit of open files (ulimit -Hn).", capital(d.Name), step, descriptors)
	if !slices.Contains(r.LeftOut, said) {
		r.LeftOut = append(r.LeftOut, said)
	}
}

// title is what a dimension's section is called.
func (d Dimension) title() string {
	unit := ""
	if d.Unit != "" {
		unit = " " + d.Unit
	}
	return fmt.Sprintf("%s: %d to %d%s", capital(d.Name), d.Steps[0], d.Steps[len(d.Steps)-1], unit)
}

// grid is the table of a dimension: the steps of one row below each other.
func (r *ScaleReport) grid(d Dimension) report.Grid {
	g := report.Grid{Head: []string{"", d.Name}}
	for _, c := range scaleColumns {
		g.Head = append(g.Head, c.title)
	}
	for _, row := range r.Rows {
		for _, step := range d.Steps {
			line, empty := []string{row, fmt.Sprint(step)}, true
			for _, c := range scaleColumns {
				text := c.cell(r.Samples.Values(row, d.load(step), c.figure))
				line, empty = append(line, text), empty && text == ""
			}
			if !empty {
				g.Rows = append(g.Rows, line)
			}
		}
	}
	return g
}

// lines is the chart of a figure: a line for each row.
func (r *ScaleReport) lines(d Dimension, c column) report.Lines {
	chart := report.Lines{Title: c.title}
	for _, step := range d.Steps {
		chart.Steps = append(chart.Steps, fmt.Sprint(step))
	}
	for _, row := range r.Rows {
		line := report.Line{Name: row}
		for i, step := range d.Steps {
			if m, known := medianOf(r.Samples.Values(row, d.load(step), c.figure)); known {
				line.Points = append(line.Points, report.LinePoint{Step: i, Value: m * c.scale})
			}
		}
		chart.Lines = append(chart.Lines, line)
	}
	return chart
}

// Check returns an error when requests failed.
func (r *ScaleReport) Check() error {
	var errs []error
	for _, s := range r.Samples {
		if s.Errors > 0 {
			errs = append(errs, fmt.Errorf("bench: %s, %s: %d requests failed", s.Row, s.Load, s.Errors))
		}
	}
	return errors.Join(errs...)
}

// preface says how it was measured, in sentences.
func (r *ScaleReport) preface() []string {
	said := []string{
		fmt.Sprintf("One dimension grows at a time; else it is a closed loop of %d connections, %d endpoints, %d route, POST of %d bytes, "+
			"%d loop a sidecar, and at most %d requests at the replica. Median [min..max] of %d rounds.",
			base.connections, base.endpoints, base.routes, base.body, base.loops, concurrency, r.Rounds),
		fmt.Sprintf("%s. Load, sidecars and replica share the machine.", r.Machine),
		"CPU, requests/s and RSS are taken in the midst of the load, with all connections open; of the latencies the start of the " +
			"load is a part. Of two sidecars the consumer is the first, and has the endpoints and routes that grow.",
	}
	said = append(said, r.LeftOut...)
	if err := r.Check(); err != nil {
		said = append(said, strings.Split(err.Error(), "\n")...)
	}
	return said
}

// Page is the report with a line chart for each figure that is compared.
func (r *ScaleReport) Page() report.Page {
	page := report.Page{Title: "How the cost grows", Preface: r.preface()}
	for _, d := range r.Dimensions {
		section := report.Section{Title: d.title(), Grid: r.grid(d)}
		for _, c := range scaleColumns {
			if c.ratio {
				section.Lines = append(section.Lines, r.lines(d, c))
			}
		}
		page.Sections = append(page.Sections, section)
	}
	return page
}

// JSON writes all samples, indented.
func (r *ScaleReport) JSON(w io.Writer) error { return writeJSON(w, r) }
