package flame

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strconv"
)

// The picture, in its own units. A browser scales it to the window.
const (
	width     = 1200.0
	rowHeight = 17
	textBase  = 12  // of a row
	margin    = 3.0 // left and right of a text
	character = 6.7 // of the widest usual monospace font
)

// narrow is the share of all samples below which a block is merged with others of its caller.
const narrow = 0.002

const style = `text{font:11px monospace;fill:#222}rect{stroke:#fff;stroke-width:.6}g:hover rect{stroke:#222}`

// drawing is an SVG in progress.
type drawing struct {
	graph *Graph
	body  bytes.Buffer
	rows  int
}

// SVG returns the picture. title is the text of its root.
func (g *Graph) SVG(title string) []byte {
	d := drawing{graph: g}
	d.block(nobody, 0, 0, width, title, title)
	d.calls(&g.root, 1, 0)
	d.legend()

	height := d.rows*rowHeight + 4
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d"><title>%s</title><style>%s`, width, height, escaped(title), style)
	for i := range owners {
		fmt.Fprintf(&out, ".%s rect{fill:%s}", owner(i).class(), owners[i].colour)
	}
	fmt.Fprintf(&out, "</style>\n"+`<rect width="%.0f" height="%d" style="fill:#fff"/>`+"\n", width, height)
	out.Write(d.body.Bytes())
	out.WriteString("</svg>\n")
	return out.Bytes()
}

// class returns the name of the class of an owner's blocks.
func (o owner) class() string { return string(rune('a' + o)) }

// calls draws what f called into the row, from x on.
func (d *drawing) calls(f *frame, row int, x float64) {
	total := d.graph.Total()
	least := int64(float64(total) * narrow)
	large, others, value := f.split(least)
	for _, c := range large {
		w := width * float64(c.value) / float64(total)
		name := short(c.name)
		d.block(ownerOf(c.name), row, x, w, name, d.tip(name, c.value, c.own()))
		d.calls(c, row+1, x)
		x += w
	}
	if others > 0 && value >= least {
		name := fmt.Sprintf("%d others", others)
		d.block(nobody, row, x, width*float64(value)/float64(total), name, d.tip(name, value, value))
	}
}

// tip returns the tooltip of a block.
func (d *drawing) tip(name string, value, own int64) string {
	text := fmt.Sprintf("%s: %s, %.1f%%", name, d.graph.Amount(value), percent(value, d.graph.Total()))
	if own > 0 && own < value {
		text += ", itself " + d.graph.Amount(own)
	}
	return text
}

func percent(value, total int64) float64 { return 100 * float64(value) / float64(total) }

// block draws a block of an owner, with as much of the name as fits.
func (d *drawing) block(o owner, row int, x, w float64, name, tip string) {
	d.rows = max(d.rows, row+1)
	top := row * rowHeight
	fmt.Fprintf(&d.body, `<g class="%s"><title>%s</title><rect x="%s" y="%d" width="%s" height="%d"/>`,
		o.class(), escaped(tip), number(x), top, number(w), rowHeight-1)
	if text := fit(name, int((w-2*margin)/character)); text != "" {
		fmt.Fprintf(&d.body, `<text x="%s" y="%d">%s</text>`, number(x+margin), top+textBase, escaped(text))
	}
	d.body.WriteString("</g>\n")
}

// legend draws in a row of its own what the functions of each owner took without their calls.
func (d *drawing) legend() {
	var sums [nobody]int64
	d.graph.root.owners(&sums)
	row, x := d.rows+1, 0.0
	for i, sum := range sums {
		if sum == 0 {
			continue
		}
		text := fmt.Sprintf("%s %.1f%%", owners[i].text, percent(sum, d.graph.Total()))
		w := float64(len(text)+1)*character + 2*margin
		d.block(owner(i), row, x, w, text, text+": "+d.graph.Amount(sum)+" in these functions themselves")
		x += w
	}
}

// number returns x with at most one digit after the point.
func number(x float64) string {
	return strconv.FormatFloat(float64(int(x*10+0.5))/10, 'f', -1, 64)
}

// escaped returns text as XML has it.
func escaped(text string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(text)) // a Buffer takes all
	return b.String()
}
