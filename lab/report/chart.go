package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"slices"
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

func nines(q float64) float64 { return -math.Log10(1 - q) }

// quantileAxis maps quantiles by their nines, up to most: the slowest requests matter.
func quantileAxis(most float64) Axis {
	a := Axis{
		Title: "share of requests that took no longer",
		scale: func(q float64) float64 { return min(1, nines(q)/most) },
	}
	labelled := []Tick{{0, "0"}, {0.9, "90%"}, {0.99, "99%"}, {0.999, "99.9%"}, {0.9999, "99.99%"}}
	for _, t := range labelled {
		if nines(t.Value) <= most+1e-9 {
			a.Ticks = append(a.Ticks, t)
		}
	}
	return a
}

// roundNumbers are 1, 2 and 5 of each decade, from 1e-6 to 5e9.
var roundNumbers = func() (all []float64) {
	for decade := -6; decade < 10; decade++ {
		for _, n := range []float64{1, 2, 5} {
			all = append(all, n*math.Pow10(decade))
		}
	}
	return all
}()

// around are the fewest round numbers, at least two, whose range contains low to high.
func around(low, high float64) []float64 {
	from := slices.IndexFunc(roundNumbers, func(n float64) bool { return n > low*1.0001 })
	to := slices.IndexFunc(roundNumbers, func(n float64) bool { return n >= high*0.9999 })
	return roundNumbers[max(from-1, 0) : max(to, from)+1]
}

// logAxis maps values by their logarithm. It goes from the first to the last tick.
func logAxis(title, unit string, ticks []float64) Axis {
	low, high := ticks[0], ticks[len(ticks)-1]
	a := Axis{Title: title, scale: func(v float64) float64 {
		return math.Log(min(max(v, low), high)/low) / math.Log(high/low)
	}}
	for _, v := range ticks {
		a.Ticks = append(a.Ticks, Tick{v, fmt.Sprintf("%g%s", v, unit)})
	}
	return a
}

// linearAxis goes from 0 to most or the next tick, with up to eight of them beside 0.
func linearAxis(most float64) Axis {
	step := roundNumbers[slices.IndexFunc(roundNumbers, func(n float64) bool { return n >= most/8 })]
	ticks := int(math.Ceil(most/step - 1e-9))
	a := Axis{scale: func(v float64) float64 { return v / (step * float64(ticks)) }}
	for i := range ticks + 1 {
		v := step * float64(i)
		a.Ticks = append(a.Ticks, Tick{v, fmt.Sprintf("%.4g", v)})
	}
	return a
}

// latencyChart draws lines of milliseconds over quantiles. It is nil without a latency.
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
	return &Chart{X: quantileAxis(most), Y: logAxis("latency", " ms", around(low, high)), Lines: lines}
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

//go:embed chart.tmpl
var chartText string

var chartTemplate = template.Must(template.New("").Parse(chartText))

// SVG draws the chart as one element of 720 pixels in width. The plane has 620 by 320 pixels.
// Above it is a legend, of 18 pixels for each line.
func (c *Chart) SVG() (template.HTML, error) {
	var b strings.Builder
	top := 30 + 18*len(c.Lines)
	pixels := func(v float64) string { return fmt.Sprintf("%.1f", v) }
	x := func(v float64) string { return pixels(60 + 620*c.X.scale(v)) }
	y := func(v, below float64) string { return pixels(float64(top) + 320*(1-c.Y.scale(v)) + below) }
	err := chartTemplate.Execute(&b, map[string]any{
		"Chart": c, "Height": top + 370, "X": x, "Y": y,
		"Top":  func(below int) string { return pixels(float64(top + below)) },
		"Line": func(i, below int) string { return pixels(float64(18*(i+1) + below)) },
	})
	return template.HTML(b.String()), err
}
