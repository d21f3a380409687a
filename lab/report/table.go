package report

import (
	"fmt"
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
	{"p50", func(p *Phase) string { return fmt.Sprintf("%.2f", p.P50) }},
	{"p90", func(p *Phase) string { return fmt.Sprintf("%.2f", p.P90) }},
	{"p99", func(p *Phase) string { return fmt.Sprintf("%.2f", p.P99) }},
	{"p99.9", func(p *Phase) string { return fmt.Sprintf("%.2f", p.P999) }},
	{"max", func(p *Phase) string { return fmt.Sprintf("%.2f", p.Max) }},
	{"hedges sent", func(p *Phase) string { return fmt.Sprint(p.Hedges) }},
	{"hedges won", func(p *Phase) string { return fmt.Sprint(p.HedgesWon) }},
	{"extra load", func(p *Phase) string { return fmt.Sprintf("%.2f%%", 100*p.ExtraLoad) }},
	{"freezes", func(p *Phase) string { return fmt.Sprint(p.Stalls) }},
}

// Table shows the phases side by side.
func (r *Report) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%.0f requests/s for %g s each, three replicas, mode %s; latency in ms\n\n", r.Rate, r.Seconds, r.Mode)
	// With AlignRight every cell must end in a tab, also the last one.
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', tabwriter.AlignRight)
	columns := r.columns()
	fmt.Fprint(w, "\t")
	for _, c := range columns {
		fmt.Fprintf(w, "%s\t", c.title)
	}
	fmt.Fprintln(w)
	for _, r := range tableRows {
		fmt.Fprintf(w, "%s\t", r.name)
		for _, c := range columns {
			fmt.Fprintf(w, "%s\t", r.cell(c.phase))
		}
		fmt.Fprintln(w)
	}
	w.Flush() // to memory, which can't fail
	return b.String()
}
