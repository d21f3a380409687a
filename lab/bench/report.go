package bench

import (
	"fmt"
	"slices"
	"time"

	"github.com/remora-proxy/remora/lab/report"
)

// A Report is what a run measured.
type Report struct {
	Began   time.Time          `json:"began"`
	Rounds  int                `json:"rounds"`
	Machine Machine            `json:"machine"`
	Tools   Tools              `json:"tools"`
	Missing map[Program]string `json:"missing"` // programs, and how to come by them
	Rows    []string           `json:"rows"`
	Loads   []string           `json:"loads"`
	Rest    Rest               `json:"rest"`
	Samples Samples            `json:"samples"`

	Unwatched string    `json:"unwatched,omitempty"` // why nobody watched the processors
	Repeats   int       `json:"repeats"`             // at most, of a load that was disturbed
	Failures  []Failure `json:"failures,omitempty"`
}

// A column is a figure in a table.
type column struct {
	title  string
	figure Figure
	format string
	scale  float64
	ranged bool // with the least and the most of the rounds
	ratio  bool // it is compared between rows
}

var loadColumns = []column{
	{"CPU µs/request", CPU, "%.1f", 1, true, true},
	{"user", User, "%.1f", 1, false, false},
	{"system", System, "%.1f", 1, false, false},
	{"requests/s", Rate, "%.0f", 1, true, true},
	{"p50 µs", P50, "%.0f", 1, true, true},
	{"p99 µs", P99, "%.0f", 1, true, true},
	{"p99.9 µs", P999, "%.0f", 1, true, true},
	{"max ms", Max, "%.1f", 1e-3, true, false},
	{"RSS MiB", RSS, "%.0f", 1, false, false},
	{"GC cycles", Collections, "%.0f", 1, false, false},
	{"stopped %", Stopped, "%.1f", 1, true, false},
	{"disturbed %", Disturbed, "%.1f", 1, true, false},
}

var restColumns = []column{
	{"CPU ms/s", RestCPU, "%.2f", 1, true, true},
	{"RSS MiB", RestRSS, "%.1f", 1, true, true},
	{"of these its own", OwnRSS, "%.1f", 1, true, false},
	{"KiB per idle connection", Connection, "%.2f", 1, true, true},
}

// comparisons are the rows whose ratios are told, where both were measured.
var comparisons = []struct{ row, base string }{
	{"remora-1", "nginx-1"}, {"remora-1", "haproxy-1"}, {"remora-1", "envoy-1"},
	{"remora-2", "relay-2"}, {"remora-2", "nginx-2"}, {"remora-2", "haproxy-2"}, {"remora-2", "envoy-2"},
	{"remora-2-tls", "remora-2"}, {"remora-2-observed", "remora-2"}, {"remora-2-nogc", "remora-2"},
}

// A section is what was measured under one load.
type section struct {
	load    string
	columns []column
}

func (r *Report) sections() (all []section) {
	for _, load := range r.Loads {
		all = append(all, section{load, loadColumns})
	}
	if r.Rest.Connections > 0 {
		all = append(all, section{AtRest, restColumns})
	}
	return all
}

// title is what the section is called in the report.
func (r *Report) title(s section) string {
	if s.load != AtRest {
		return s.load
	}
	return fmt.Sprintf("%s for %g s, then %d idle connections", AtRest, r.Rest.Duration.Seconds(), r.Rest.Connections)
}

// grid is the section's table: the rows, and their ratios. What nothing was measured
// of is left out, be it a row or a column.
func (r *Report) grid(s section) report.Grid {
	columns := slices.DeleteFunc(slices.Clone(s.columns), func(c column) bool {
		return !slices.ContainsFunc(r.Rows, func(row string) bool { return r.cell(row, s.load, c) != "" })
	})
	g := report.Grid{Head: []string{""}}
	for _, c := range columns {
		g.Head = append(g.Head, c.title)
	}
	add := func(name string, cell func(column) string) {
		line, empty := []string{name}, true
		for _, c := range columns {
			text := cell(c)
			line, empty = append(line, text), empty && text == ""
		}
		if !empty {
			g.Rows = append(g.Rows, line)
		}
	}
	for _, row := range r.Rows {
		add(row, func(c column) string { return r.cell(row, s.load, c) })
	}
	for _, p := range comparisons {
		add(p.row+" / "+p.base, func(c column) string {
			if !c.ratio {
				return ""
			}
			return spread(r.Samples.Ratios(p.row, p.base, s.load, c.figure), "%.2f", true)
		})
	}
	return g
}

// cell says how many rounds a latency was lost of because they were disturbed.
func (r *Report) cell(row, load string, c column) string {
	text := c.cell(r.Samples.Values(row, load, c.figure))
	lost := 0
	if c.figure.ofLatency() {
		lost = r.Samples.lost(row, load)
	}
	switch {
	case lost == 0:
		return text
	case text == "":
		return "disturbed"
	}
	return fmt.Sprintf("%s, %d disturbed", text, lost)
}

// cell says what was measured of the column's figure.
func (c column) cell(values []float64) string {
	scaled := make([]float64, len(values))
	for i, v := range values {
		scaled[i] = v * c.scale
	}
	return spread(scaled, c.format, c.ranged)
}

// spread is the median, and [min..max] of more than one value if ranged; "" of none.
func spread(values []float64, format string, ranged bool) string {
	if len(values) == 0 {
		return ""
	}
	text := fmt.Sprintf(format, median(values))
	if ranged && len(values) > 1 {
		text += fmt.Sprintf(" ["+format+".."+format+"]", slices.Min(values), slices.Max(values))
	}
	return text
}

// verdicts is the table of what is promised.
func (r *Report) verdicts() report.Grid {
	g := report.Grid{Head: []string{"promise", "measured", "limit", ""}}
	for _, v := range r.Samples.Verdicts() {
		bound, verdict := "at most", "does not hold"
		if v.AtLeast {
			bound = "at least"
		}
		if v.Holds() {
			verdict = "holds"
		}
		limit := fmt.Sprintf("%s %.2f", bound, v.Limit)
		if v.LimitIs != "" {
			limit += ", " + v.LimitIs
		}
		if v.Restless {
			verdict += ", but processors stood still"
		}
		if v.Rounds < r.Rounds {
			verdict += fmt.Sprintf(", by %d of %d rounds", v.Rounds, r.Rounds)
		}
		line := []string{v.What, fmt.Sprintf("%.2f", v.Measured), limit, verdict}
		if !v.Known {
			line = []string{v.What, "", "", "not measured"}
		}
		g.Rows = append(g.Rows, line)
	}
	return g
}
