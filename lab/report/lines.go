package report

import (
	"fmt"
	"strings"
)

// Lines is a chart of how something grows: one line for each name over steps that are
// the same distance apart, from 0 upwards, so that what is flat looks flat.
type Lines struct {
	Title string
	Steps []string
	Lines []Line
}

// A Line goes through points, whose steps may have gaps.
type Line struct {
	Name   string
	Points []LinePoint
}

// A LinePoint is the value at a step, counted from 0.
type LinePoint struct {
	Step  int
	Value float64
}

// Size of a chart of lines, in SVG units, and where its plane is.
const (
	linesWidth, linesHeight = 520, 240
	linesLeft, linesRight   = 60, 490
	linesTop, linesBottom   = 12, 210
	linesTicks              = 5 // above 0: divides 1, 2 and 5 into round numbers
)

// linesColours is how many lines a page tells apart.
const linesColours = 4

// DrawnLines is a chart of lines as the template draws it.
type DrawnLines struct {
	Width, Height            int
	Left, Right, Top, Bottom int // of the plane
	X, Y                     []gridLine
	Lines                    []DrawnLine
}

// DrawnLine is a line as the template draws it.
type DrawnLine struct {
	Name   string
	Colour int // in the order of the lines, from 0 on
	Points string
	Dots   []Dot
}

// A Dot is a point of a line, and what it says.
type Dot struct {
	X, Y  float64
	Label string
}

// Drawn is the chart; nil when there is nothing to draw.
func (l Lines) Drawn() *DrawnLines {
	most := 0.0
	for _, line := range l.Lines {
		for _, p := range line.Points {
			most = max(most, p.Value)
		}
	}
	if most <= 0 {
		return nil
	}
	most = niceAbove(most)
	x := func(step int) float64 {
		return linesLeft + (float64(step)+.5)*(linesRight-linesLeft)/float64(len(l.Steps))
	}
	y := func(v float64) float64 { return linesBottom - (linesBottom-linesTop)*v/most }
	d := &DrawnLines{Width: linesWidth, Height: linesHeight, Left: linesLeft, Right: linesRight, Top: linesTop, Bottom: linesBottom}
	for i, step := range l.Steps {
		d.X = append(d.X, gridLine{x(i), step})
	}
	for i := range linesTicks + 1 {
		v := most * float64(i) / linesTicks
		d.Y = append(d.Y, gridLine{y(v), fmt.Sprintf("%.6g", v)})
	}
	for i, line := range l.Lines {
		drawn := DrawnLine{Name: line.Name, Colour: i % linesColours}
		var points []string
		for _, p := range line.Points {
			dot := Dot{x(p.Step), y(p.Value), fmt.Sprintf("%s, %s: %.4g", line.Name, l.Steps[p.Step], p.Value)}
			drawn.Dots = append(drawn.Dots, dot)
			points = append(points, fmt.Sprintf("%.1f,%.1f", dot.X, dot.Y))
		}
		drawn.Points = strings.Join(points, " ")
		d.Lines = append(d.Lines, drawn)
	}
	return d
}
