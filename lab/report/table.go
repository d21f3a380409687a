package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"text/tabwriter"
)

// tableRows are the rows of the table in the terminal and on the page.
var tableRows = []struct {
	name string
	cell func(*Phase) string
}{
	{"requests", func(p *Phase) string { return fmt.Sprint(p.Requests) }},
	{"errors", func(p *Phase) string { return fmt.Sprint(p.Errors) }},
	{"p50", func(p *Phase) string { return milliseconds(&p.P50) }},
	{"p90", func(p *Phase) string { return milliseconds(&p.P90) }},
	{"p99", func(p *Phase) string { return milliseconds(&p.P99) }},
	{"p99.9", func(p *Phase) string { return milliseconds(&p.P999) }},
	{"max", func(p *Phase) string { return milliseconds(&p.Max) }},
	{"hedges sent", func(p *Phase) string { return fmt.Sprint(p.Hedges) }},
	{"hedges won", func(p *Phase) string { return fmt.Sprint(p.HedgesWon) }},
	{"extra load", func(p *Phase) string { return percent(p.ExtraLoad) }},
	{"freezes", func(p *Phase) string { return fmt.Sprint(p.Stalls) }},
}

// cells are the table's. The first row is the head.
func (r *Report) cells() [][]string {
	columns := r.columns()
	table := [][]string{{""}}
	for _, c := range columns {
		table[0] = append(table[0], c.title)
	}
	for _, row := range tableRows {
		cells := []string{row.name}
		for _, c := range columns {
			cells = append(cells, row.cell(c.phase))
		}
		table = append(table, cells)
	}
	return table
}

// Table shows the phases side by side.
func (r *Report) Table() string {
	return fmt.Sprintf("%.0f requests/s for %g s each, three replicas, mode %s; latency in ms\n\n%s",
		r.Rate, r.Seconds, r.Mode, aligned(r.cells()))
}

// aligned puts the cells of each column below each other.
func aligned(table [][]string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', tabwriter.AlignRight)
	for _, cells := range table {
		// With AlignRight every cell must end in a tab, also the last one.
		fmt.Fprintln(w, strings.Join(cells, "\t")+"\t")
	}
	w.Flush() // to memory, which can't fail
	return b.String()
}

// milliseconds is a dash if the time is unknown.
func milliseconds(ms *float64) string {
	if ms == nil {
		return "–"
	}
	return fmt.Sprintf("%.2f", *ms)
}

func percent(share float64) string { return fmt.Sprintf("%.2f%%", 100*share) }

// ForecastTable shows the forecast of shadow mode, if any, beside what hedging then did.
func (r *Report) ForecastTable() string {
	if r.Off == nil || len(r.Off.Forecasts) == 0 {
		return ""
	}
	table := [][]string{{"", "p99", "p99.9", "extra load"}}
	row := func(name string, p99, p999 *float64, load float64) {
		table = append(table, []string{name, milliseconds(p99), milliseconds(p999), percent(load)})
	}
	measured := func(name string, p *Phase) {
		row("measured "+name, &p.P99, &p.P999, p.ExtraLoad)
		if p.Seen != nil {
			row("as the sidecar saw it", p.Seen.P99, p.Seen.P999, p.ExtraLoad)
		}
	}
	measured("without hedging", r.Off)
	for _, f := range r.Off.Forecasts {
		name := fmt.Sprintf("forecast with delay %.1f", f.DelayMS)
		if f.Current {
			name += " (the current one)"
		}
		row(name, f.P99, f.P999, f.ExtraLoad)
	}
	if r.On != nil {
		measured("with hedging", r.On)
	}
	return aligned(table) + r.unseen() + "\n"
}

// unseenShare is the part of the P99 that may pass outside the sidecar without a remark.
const unseenShare = 0.1

// unseen says how much of the latency passed outside the sidecar, if it is much. The forecast
// can't know it.
func (r *Report) unseen() string {
	s := r.Off.Seen
	if s == nil || s.P99 == nil || r.Off.P99-*s.P99 <= unseenShare*r.Off.P99 {
		return ""
	}
	return fmt.Sprintf("\n%.2f of %.2f ms of the p99 passed before the sidecar had the request or after it had the\n"+
		"response: the caller, the kernel and the sidecar waiting for a CPU. No hedge helps there, and the\n"+
		"forecast does not know of it: compare it with what the sidecar saw.\n", r.Off.P99-*s.P99, r.Off.P99)
}

//go:embed page.html
var pageText string

var page = template.Must(template.New("").Parse(pageText))

// HTML writes r as one page that loads nothing else.
func (r *Report) HTML(w io.Writer) (err error) {
	var drawn template.HTML
	if c := r.chart(); c != nil {
		drawn, err = c.SVG()
	}
	if err == nil {
		err = page.Execute(w, map[string]any{"Report": r, "Cells": r.cells(), "Chart": drawn})
	}
	if err != nil {
		return fmt.Errorf("report: HTML: %w", err)
	}
	return nil
}
