package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
)

//go:embed page.html
var pageSource string

var page = template.Must(template.New("page").Parse(pageSource))

// Size of the chart's plane, and its margins, in SVG units.
const (
	chartWidth, chartHeight = 760, 380
	chartLeft, chartTop     = 64, 16
	chartRight, chartBottom = 24, 36
)

// HTML writes r as one page that needs nothing from elsewhere.
func HTML(w io.Writer, r *Report) error {
	columns := r.columns()
	data := struct {
		*Report
		Columns []pageColumn
		Rows    []pageRow
		Chart   *chart
	}{Report: r, Chart: newChart(columns)}
	for _, c := range columns {
		data.Columns = append(data.Columns, pageColumn{c.title, c.colour})
	}
	data.Rows = pageRows(columns)
	if err := page.Execute(w, data); err != nil {
		return fmt.Errorf("report: HTML: %w", err)
	}
	return nil
}

type pageColumn struct{ Title, Colour string }

type pageRow struct {
	Name  string
	Cells []string
}

func pageRows(columns []column) []pageRow {
	var rows []pageRow
	for _, r := range tableRows {
		row := pageRow{Name: r.name}
		for _, c := range columns {
			row.Cells = append(row.Cells, r.cell(c.phase))
		}
		rows = append(rows, row)
	}
	return rows
}

// A chart is what the template draws.
type chart struct {
	Width, Height            int // with margins
	Left, Right, Top, Bottom int // of the plane
	X, Y                     []gridLine
	Lines                    []chartLine
}

type gridLine struct {
	At    float64
	Label string
}

type chartLine struct{ Title, Colour, Points string }

// newChart returns nil when there is nothing to draw.
func newChart(columns []column) *chart {
	a, ok := newAxes(columns)
	if !ok {
		return nil
	}
	ch := &chart{
		Width: chartLeft + chartWidth + chartRight, Height: chartTop + chartHeight + chartBottom,
		Left: chartLeft, Right: chartLeft + chartWidth, Top: chartTop, Bottom: chartTop + chartHeight,
	}
	x := func(q float64) float64 { return chartLeft + chartWidth*a.x(q) }
	y := func(ms float64) float64 { return chartTop + chartHeight*(1-a.y(ms)) }
	for _, t := range ticks {
		if nines(t.quantile) <= a.nines+1e-9 {
			ch.X = append(ch.X, gridLine{x(t.quantile), t.label})
		}
	}
	for _, v := range a.grid() {
		ch.Y = append(ch.Y, gridLine{y(v), fmt.Sprintf("%g ms", v)})
	}
	for _, c := range columns {
		var points []string
		for _, p := range c.phase.Curve {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(p.Quantile), y(p.MS)))
		}
		ch.Lines = append(ch.Lines, chartLine{c.title, c.colour, strings.Join(points, " ")})
	}
	return ch
}
