package report

import (
	"fmt"
	"math"
	"strings"
)

// An axes maps quantiles and milliseconds to [0, 1]: quantiles by nines, since
// it is the last of the requests that matter, milliseconds by their logarithm.
type axes struct{ nines, low, high float64 }

// ticks are the quantiles that are labelled.
var ticks = []struct {
	quantile float64
	label    string
}{{0, "0"}, {0.9, "90%"}, {0.99, "99%"}, {0.999, "99.9%"}, {0.9999, "99.99%"}}

// newAxes covers all curves of columns; ok is false when there is nothing to
// show.
func newAxes(columns []column) (a axes, ok bool) {
	a = axes{nines: 1, low: math.Inf(1), high: 0}
	for _, c := range columns {
		for _, p := range c.phase.Curve {
			if p.MS <= 0 {
				continue
			}
			if p.Quantile < 1 {
				a.nines = max(a.nines, nines(p.Quantile))
			}
			a.low, a.high = min(a.low, p.MS), max(a.high, p.MS)
			ok = true
		}
	}
	// Whole decades divided in 1, 2, 5.
	a.low, a.high = niceBelow(a.low), niceAbove(a.high)
	if a.high <= a.low {
		a.high = niceAbove(a.low * 1.01)
	}
	return a, ok
}

func nines(q float64) float64 { return -math.Log10(1 - q) }

func (a axes) x(q float64) float64 {
	if q >= 1 {
		return 1
	}
	return min(1, nines(q)/a.nines)
}

func (a axes) y(ms float64) float64 {
	return math.Log(max(ms, a.low)/a.low) / math.Log(a.high/a.low)
}

// grid are the labelled latencies.
func (a axes) grid() []float64 {
	var g []float64
	for v := a.low; v <= a.high*1.001; v = niceAbove(v * 1.01) {
		g = append(g, v)
	}
	return g
}

func niceAbove(v float64) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if v <= decade*m*1.0001 {
			return decade * m
		}
	}
	return decade * 10
}

func niceBelow(v float64) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(v)*1.0000001))
	for _, m := range []float64{5, 2} {
		if v >= decade*m*0.9999 {
			return decade * m
		}
	}
	return decade
}

// at is the curve's value at quantile q: that of the first point at or past it.
func at(curve []Point, q float64) (ms float64, ok bool) {
	for _, p := range curve {
		if p.Quantile >= q {
			return p.MS, true
		}
	}
	return 0, false
}

// Plot draws the latency of each phase over the quantiles, in plain characters,
// width columns and height rows without labels.
func (r *Report) Plot(width, height int) string {
	columns := r.columns()
	a, ok := newAxes(columns)
	if !ok {
		return ""
	}
	cells := make([][]rune, height)
	for i := range cells {
		cells[i] = []rune(strings.Repeat(" ", width))
	}
	for _, c := range columns {
		for x := range width {
			q := 1 - math.Pow(10, -a.nines*float64(x)/float64(width-1))
			v, ok := at(c.phase.Curve, q-1e-9)
			if !ok {
				continue
			}
			row := height - 1 - int(math.Round(a.y(v)*float64(height-1)))
			cells[row][x] = c.mark
		}
	}
	labels := make([]string, height)
	for _, v := range a.grid() {
		labels[height-1-int(math.Round(a.y(v)*float64(height-1)))] = fmt.Sprintf("%g ms", v)
	}
	var b strings.Builder
	for i, row := range cells {
		fmt.Fprintf(&b, "%9s |%s\n", labels[i], strings.TrimRight(string(row), " "))
	}
	b.WriteString(a.footer(width))
	for _, c := range columns {
		fmt.Fprintf(&b, "%13c %s\n", c.mark, c.title)
	}
	return b.String()
}

// footer is the plot's horizontal axis with its labels.
func (a axes) footer(width int) string {
	line := []rune(strings.Repeat("-", width))
	label := []rune(strings.Repeat(" ", width+8))
	for _, t := range ticks {
		if nines(t.quantile) > a.nines+1e-9 {
			break
		}
		x := int(math.Round(a.x(t.quantile) * float64(width-1)))
		line[x] = '+'
		copy(label[x:], []rune(t.label))
	}
	return fmt.Sprintf("%10s+%s\n%11s%s\n", "", string(line), "", strings.TrimRight(string(label), " "))
}
