package report

// Bars is a chart of one horizontal bar for each name.
type Bars struct {
	Title string
	Bars  []Bar
}

// A Bar is drawn in parts, from 0 on, and with the range of what was measured.
type Bar struct {
	Name  string
	Label string // the figure, as text
	Parts []float64
	Low   float64 // ends of the range; both 0: none
	High  float64
	Own   bool // it stands out
}

// Size of a chart of bars, in SVG units.
const (
	barsWidth  = 420
	barsLeft   = 150 // of this width, names
	barsRight  = 110 // and labels
	barHeight  = 14
	barSpacing = 22
)

// DrawnBar is a bar as the template draws it.
type DrawnBar struct {
	Bar
	Y, Middle, Text float64 // of its top, its middle and the line of its texts
	Segments        []Segment
	End             float64 // right of all that is drawn
	From, To        float64 // of the range
}

// A Segment is a part of a bar.
type Segment struct{ X, Width float64 }

// Width is that of the chart, in SVG units.
func (b Bars) Width() int { return barsLeft + barsWidth + barsRight }

// Height is that of the chart, in SVG units.
func (b Bars) Height() int { return len(b.Bars) * barSpacing }

// Left is where the bars begin.
func (b Bars) Left() int { return barsLeft }

// BarHeight is that of each bar.
func (b Bars) BarHeight() int { return barHeight }

// Drawn are the bars, to the scale of the longest.
func (b Bars) Drawn() (drawn []DrawnBar) {
	longest := 0.0
	for _, bar := range b.Bars {
		longest = max(longest, bar.length(), bar.High)
	}
	if longest == 0 {
		return nil
	}
	scale := barsWidth / longest
	for i, bar := range b.Bars {
		d := DrawnBar{Bar: bar, Y: float64(i*barSpacing) + 3, From: barsLeft + bar.Low*scale, To: barsLeft + bar.High*scale}
		d.Middle, d.Text = d.Y+barHeight/2, d.Y+barHeight-3
		x := float64(barsLeft)
		for _, part := range bar.Parts {
			d.Segments = append(d.Segments, Segment{x, part * scale})
			x += part * scale
		}
		d.End = max(x, d.To)
		drawn = append(drawn, d)
	}
	return drawn
}

func (b Bar) length() (sum float64) {
	for _, part := range b.Parts {
		sum += part
	}
	return sum
}
