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
