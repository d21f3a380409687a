package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
)

//go:embed page.html
var pageSource string

var page = template.Must(template.New("page").Parse(pageSource))

// HTML writes r as one page that loads nothing else.
func HTML(w io.Writer, r *Report) error {
	columns := r.columns()
	data := struct {
		*Report
		Columns []string
		Rows    [][]string
		Chart   template.HTML
	}{Report: r}
	if c := r.chart(); c != nil {
		data.Chart = template.HTML(c.SVG())
	}
	for _, c := range columns {
		data.Columns = append(data.Columns, c.title)
	}
	for _, row := range tableRows {
		cells := []string{row.name}
		for _, c := range columns {
			cells = append(cells, row.cell(c.phase))
		}
		data.Rows = append(data.Rows, cells)
	}
	if err := page.Execute(w, data); err != nil {
		return fmt.Errorf("report: HTML: %w", err)
	}
	return nil
}
