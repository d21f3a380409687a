package queues

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// drawing is an SVG picture.
type drawing struct{ strings.Builder }

func draw(width, height float64) *drawing {
	d := &drawing{}
	d.addf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="11">`, width, height)
	d.addf(`<rect width="%.0f" height="%.0f" fill="white"/>`, width, height)
	return d
}

func (d *drawing) addf(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

func (d *drawing) text(x, y float64, anchor, text string) {
	d.addf(`<text x="%.1f" y="%.1f" text-anchor="%s" fill="#333">%s</text>`, x, y, anchor, text)
}

func (d *drawing) line(x1, y1, x2, y2 float64, style string) {
	d.addf(`<path d="M%.1f %.1fL%.1f %.1f" fill="none" %s/>`, x1, y1, x2, y2, style)
}

func (d *drawing) end() string { return d.String() + "</svg>\n" }

// bands are what a ratio of latencies with hedging to those without means, from gain to harm.
var bands = []struct {
	most         float64
	colour, text string
}{
	{0.3, "#08519c", "at most 0.3"},
	{0.6, "#3182bd", "at most 0.6"},
	{0.85, "#6baed6", "at most 0.85"},
	{0.95, "#c6dbef", "at most 0.95"},
	{harm, "#eeeeee", "at most 1.05: the same"},
	{1.2, "#fdae6b", "at most 1.2: harm"},
	{math.Inf(1), "#d62728", "more: harm"},
}

func bandOf(ratio float64) int {
	for i, b := range bands {
		if ratio <= b.most {
			return i
		}
	}
	return len(bands) - 1
}

// overview draws each case as a square: a block for each number of replicas and callers, in it a
// row for each service and kind of freezes, and a column for each load and number of workers.
func overview(all []outcome, what string, ratio func(*outcome) float64) string {
	const size, gap, left, top = 11.0, 5.0, 92.0, 52.0
	perGroup := float64(len(allBusy))*size + gap
	width, height := float64(len(allWorkers))*perGroup+22, float64(FreezeKinds)*(float64(Services)*size+gap)+38
	d := draw(left+3*width, top+3*height+14)
	paths, counts := make([]strings.Builder, len(bands)), make([]int, len(bands))
	for i := range all {
		o := &all[i]
		at := func(list []int, n int) float64 { return float64(slices.Index(list, n)) }
		x := left + at(allCallers, o.Callers)*width + at(allWorkers, o.Workers)*perGroup + float64(slices.Index(allBusy, o.Busy))*size
		y := top + at(allReplicas, o.Replicas)*height + float64(o.Freezes)*(float64(Services)*size+gap) + float64(o.Service)*size
		band := bandOf(ratio(o))
		fmt.Fprintf(&paths[band], "M%g %gh10v10h-10z", x, y)
		counts[band]++
	}
	d.text(4, 14, "start", fmt.Sprintf("%s: each square is one of %d cases. Columns: workers, in each busy 30, 50, 70, 80, 90, 95%%. "+
		"Rows: freezes, in each exponential, lognormal 0.5, 1.0, bimodal", what, len(all)))
	for i, b := range bands {
		x := []float64{4, 130, 256, 388, 520, 700, 850}[i]
		d.addf(`<rect x="%.1f" y="22" width="10" height="10" fill="%s"/>`, x, b.colour)
		d.text(x+14, 31, "start", fmt.Sprintf("%s (%d)", b.text, counts[i]))
		if counts[i] > 0 {
			d.addf(`<path d="%s" fill="%s"/>`, paths[i].String(), b.colour)
		}
	}
	for i, replicas := range allReplicas {
		y := top + float64(i)*height
		for f := range FreezeKinds {
			d.text(left-6, y+(float64(f)+.5)*(float64(Services)*size+gap)+2, "end", "freezes "+Freezes(f).String())
		}
		for k, callers := range allCallers {
			x := left + float64(k)*width
			d.text(x, y-4, "start", fmt.Sprintf("%d replicas, %s", replicas, plural(callers, "caller")))
			for w, workers := range allWorkers {
				d.text(x+float64(w)*perGroup+perGroup/2, y+height-28, "middle", workersName(workers))
			}
		}
	}
	return d.end()
}

// workerColours are those of the lines of allWorkers.
var workerColours = []string{"#d62728", "#ff7f0e", "#2ca02c", "#1769aa"}

// grid draws small plots of a ratio over the load: a column for each service, a row for each kind
// of freezes, and a line for each number of workers.
func grid(some []outcome, ratio func(*outcome) float64) string {
	const width, height, left, top = 190.0, 92.0, 116.0, 42.0
	const low, high = 0.1, 2.0
	d := draw(left+float64(Services)*(width+14), top+float64(FreezeKinds)*(height+22)+16)
	d.text(4, 14, "start", "P99.9 with hedging ÷ without, over busy %.  Workers per replica:")
	for w, workers := range allWorkers {
		x := 370 + float64(w)*90
		d.line(x, 10, x+18, 10, `stroke-width="2" stroke="`+workerColours[w]+`"`)
		d.text(x+22, 14, "start", workersName(workers))
	}
	d.text(740, 14, "start", "– – –  1.05: the limit")
	for s := range Services {
		d.text(left+float64(s)*(width+14)+width/2, 33, "middle", Service(s).String())
		for f := range FreezeKinds {
			x0, y0 := left+float64(s)*(width+14), top+float64(f)*(height+22)
			x := func(busy float64) float64 {
				return x0 + width*(float64(slices.Index(allBusy, busy))+.5)/float64(len(allBusy))
			}
			y := func(r float64) float64 {
				return y0 + height*math.Log(high/min(max(r, low), high))/math.Log(high/low)
			}
			d.addf(`<rect x="%.1f" y="%.1f" width="%.0f" height="%.0f" fill="none" stroke="#bbb"/>`, x0, y0, width, height)
			for _, r := range []float64{.2, .5, 1} {
				d.line(x0, y(r), x0+width, y(r), `stroke="#e4e4e4"`)
			}
			d.line(x0, y(harm), x0+width, y(harm), `stroke="#d62728" stroke-dasharray="4 3"`)
			for _, busy := range allBusy {
				d.text(x(busy), y0+height+12, "middle", fmt.Sprintf("%.0f", 100*busy))
			}
			if s == 0 {
				d.text(4, y0+height/2, "start", Freezes(f).String())
				for _, r := range []float64{low, .2, .5, 1, high} {
					d.text(x0-4, y(r)+4, "end", fmt.Sprint(r))
				}
			}
			for w, workers := range allWorkers {
				d.curve(some, ratio, Cell{Service: Service(s), Freezes: Freezes(f), Workers: workers}, workerColours[w], x, y)
			}
		}
	}
	return d.end()
}

// curve draws the cases of one line of a small plot.
func (d *drawing) curve(some []outcome, ratio func(*outcome) float64, of Cell, colour string, x, y func(float64) float64) {
	var path, dots strings.Builder
	for i := range some {
		o := &some[i]
		if o.Service != of.Service || o.Freezes != of.Freezes || o.Workers != of.Workers {
			continue
		}
		px, py := x(o.Busy), y(ratio(o))
		fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(1, path.Len())], px, py)
		fmt.Fprintf(&dots, "M%.1f %.1fh0", px, py)
	}
	if path.Len() > 0 {
		d.addf(`<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`, path.String(), colour)
		d.addf(`<path d="%s" fill="none" stroke="%s" stroke-width="4" stroke-linecap="round"/>`, dots.String(), colour)
	}
}

func workersName(n int) string {
	if n == 0 {
		return "no limit"
	}
	return fmt.Sprint(n)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
