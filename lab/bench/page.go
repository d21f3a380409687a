package bench

import (
	"encoding/json"
	"io"
	"slices"
	"strings"

	"github.com/remora-proxy/remora/lab/report"
)

// Page is the report with a chart of bars for each figure that is compared.
func (r *Report) Page() report.Page {
	page := report.Page{Title: "What a sidecar costs", Preface: r.preface()}
	for _, s := range r.sections() {
		section := report.Section{Title: capital(r.title(s)), Grid: r.grid(s)}
		for _, c := range s.columns {
			if bars := r.bars(s.load, c); c.ratio && len(bars.Bars) > 0 {
				section.Bars = append(section.Bars, bars)
			}
		}
		page.Sections = append(page.Sections, section)
	}
	page.Sections = append(page.Sections, report.Section{Title: "Promises, by medians", Grid: r.verdicts()})
	return page
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// JSON writes all samples, indented.
func (r *Report) JSON(w io.Writer) error { return writeJSON(w, r) }

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// bars are the medians of a figure; CPU is divided into user and system.
func (r *Report) bars(load string, c column) report.Bars {
	bars := report.Bars{Title: c.title}
	parts := []Figure{c.figure}
	if c.figure == CPU {
		bars.Title += ": user, system"
		parts = []Figure{User, System}
	}
	for _, row := range r.Rows {
		values := r.Samples.Values(row, load, c.figure)
		if len(values) == 0 {
			continue
		}
		bar := report.Bar{Name: row, Label: spread(values, c.format, false), Own: strings.HasPrefix(row, string(Remora))}
		for _, f := range parts {
			if m, known := medianOf(r.Samples.Values(row, load, f)); known {
				bar.Parts = append(bar.Parts, m)
			}
		}
		if len(bar.Parts) < len(parts) { // too short for a tick
			bar.Parts = []float64{median(values)}
		}
		if len(values) > 1 {
			bar.Low, bar.High = slices.Min(values), slices.Max(values)
		}
		bars.Bars = append(bars.Bars, bar)
	}
	return bars
}
