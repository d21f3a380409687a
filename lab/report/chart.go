package report

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Chart is lines in a plane. It is drawn in plain characters or as SVG.
type Chart struct {
	X, Y  Axis
	Lines []Line
}

// Axis maps values to [0, 1].
type Axis struct {
	Title string
	Ticks []Tick
	scale func(v float64) float64
}

// Tick is a value with a label.
type Tick struct {
	Value float64
	Label string
}

// Line goes through points in the order of their X.
type Line struct {
	Title, Colour string
	Mark          rune // in plain characters
	Points        []XY
}

// XY is a point of a line.
type XY struct{ X, Y float64 }

// quantileTicks are the labelled quantiles.
var quantileTicks = []Tick{{0, "0"}, {0.9, "90%"}, {0.99, "99%"}, {0.999, "99.9%"}, {0.9999, "99.99%"}}

func nines(q float64) float64 { return -math.Log10(1 - q) }

// quantileAxis maps quantiles by their nines, up to most: the slowest requests matter.
func quantileAxis(most float64) Axis {
	a := Axis{Title: "share of requests that took no longer", scale: func(q float64) float64 {
		if q >= 1 {
			return 1
		}
		return min(1, nines(q)/most)
	}}
	for _, t := range quantileTicks {
		if nines(t.Value) <= most+1e-9 {
			a.Ticks = append(a.Ticks, t)
		}
	}
	return a
}

// logAxis maps values by their logarithm, with ticks at 1, 2 and 5 of each decade.
func logAxis(title, unit string, low, high float64) Axis {
	a := Axis{Title: title, scale: func(v float64) float64 {
		return math.Log(min(max(v, low), high)/low) / math.Log(high/low)
	}}
	for v := niceAbove(low); v <= high*1.001; v = niceAbove(v * 1.01) {
		a.Ticks = append(a.Ticks, Tick{v, fmt.Sprintf("%g%s", v, unit)})
	}
	return a
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

// latencyChart draws lines of milliseconds over quantiles. It is nil if there is nothing to
// draw.
func latencyChart(lines []Line) *Chart {
	most, low, high := 1.0, math.Inf(1), 0.0
	for _, l := range lines {
		for _, p := range l.Points {
			if p.Y <= 0 {
				continue
			}
			if p.X < 1 {
				most = max(most, nines(p.X))
			}
			low, high = min(low, p.Y), max(high, p.Y)
		}
	}
	if high == 0 {
		return nil
	}
	if low, high = niceBelow(low), niceAbove(high); high <= low {
		high = niceAbove(low * 1.01)
	}
	return &Chart{X: quantileAxis(most), Y: logAxis("latency", " ms", low, high), Lines: lines}
}

// Text draws the chart in plain characters, width columns and height rows without labels.
func (c *Chart) Text(width, height int) string {
	column := func(x float64) int { return int(math.Round(c.X.scale(x) * float64(width-1))) }
	row := func(y float64) int { return height - 1 - int(math.Round(c.Y.scale(y)*float64(height-1))) }
	cells := make([][]rune, height)
	for i := range cells {
		cells[i] = []rune(strings.Repeat(" ", width))
	}
	for _, l := range c.Lines {
		for x, next := 0, 0; x < width && next < len(l.Points); x++ {
			// The value of a column is that of the first point at it or beyond.
			for next < len(l.Points) && c.X.scale(l.Points[next].X) < float64(x)/float64(width-1)-1e-9 {
				next++
			}
			if next < len(l.Points) {
				cells[row(l.Points[next].Y)][x] = l.Mark
			}
		}
	}
	labels := make([]string, height)
	for _, t := range c.Y.Ticks {
		labels[row(t.Value)] = t.Label
	}
	var b strings.Builder
	for i, line := range cells {
		fmt.Fprintf(&b, "%9s |%s\n", labels[i], strings.TrimRight(string(line), " "))
	}
	axis, below := []rune(strings.Repeat("-", width)), []rune(strings.Repeat(" ", width+8))
	for _, t := range c.X.Ticks {
		x := column(t.Value)
		axis[x] = '+'
		copy(below[x:], []rune(t.Label))
	}
	fmt.Fprintf(&b, "%10s+%s\n%11s%s\n", "", string(axis), "", strings.TrimRight(string(below), " "))
	for _, l := range c.Lines {
		fmt.Fprintf(&b, "%13c %s\n", l.Mark, l.Title)
	}
	return b.String()
}

// Sizes of an SVG, and the margins of its plane.
const (
	svgWidth, planeHeight           = 720, 320
	planeLeft, marginRight, marginX = 60, 40, 50
	legendHeight                    = 18 // of one line
)

// SVG draws the chart as one element, with a legend above the plane.
func (c *Chart) SVG() string {
	top := len(c.Lines)*legendHeight + 30
	bottom, right := top+planeHeight, svgWidth-marginRight
	x := func(v float64) float64 { return planeLeft + float64(right-planeLeft)*c.X.scale(v) }
	y := func(v float64) float64 { return float64(bottom) - planeHeight*c.Y.scale(v) }
	var b strings.Builder
	line := func(x1, y1, x2, y2 float64, colour string, width int) {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%d"/>`+"\n", x1, y1, x2, y2, colour, width)
	}
	text := func(x, y float64, text, anchor string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="#333">%s</text>`+"\n", x, y, anchor, html.EscapeString(text))
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+"\n", svgWidth, bottom+marginX)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", svgWidth, bottom+marginX)
	for _, t := range c.X.Ticks {
		line(x(t.Value), float64(top), x(t.Value), float64(bottom), "#ddd", 1)
		text(x(t.Value), float64(bottom)+18, t.Label, "middle")
	}
	for _, t := range c.Y.Ticks {
		line(planeLeft, y(t.Value), float64(right), y(t.Value), "#ddd", 1)
		text(planeLeft-8, y(t.Value)+4, t.Label, "end")
	}
	text(float64(planeLeft+right)/2, float64(bottom)+40, c.X.Title, "middle")
	text(6, float64(top)-12, c.Y.Title, "start")
	for i, l := range c.Lines {
		var points []string
		for _, p := range l.Points {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(p.X), y(p.Y)))
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(points, " "), l.Colour)
		at := float64((i + 1) * legendHeight)
		line(planeLeft+10, at, planeLeft+36, at, l.Colour, 2)
		text(planeLeft+44, at+4, l.Title, "start")
	}
	b.WriteString("</svg>\n")
	return b.String()
}
