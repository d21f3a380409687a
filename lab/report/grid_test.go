package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestGrid(t *testing.T) {
	g := Grid{Head: []string{"", "CPU µs"}, Rows: [][]string{{"remora-2", "20.3 [19..21]"}, {"a|b", ""}}}
	if want := "          CPU µs\nremora-2  20.3 [19..21]\na|b\n"; g.Text() != want {
		t.Errorf("got\n%s", g.Text())
	}
	if want := "|  | CPU µs |\n|---|---|\n| remora-2 | 20.3 [19..21] |\n| a\\|b |  |\n"; g.Markdown() != want {
		t.Errorf("got\n%s", g.Markdown())
	}
}

// Bars are to one scale: the longest fills the width.
func TestBars(t *testing.T) {
	b := Bars{Bars: []Bar{{Parts: []float64{2, 6}}, {Parts: []float64{4}, Low: 3, High: 16}}}
	drawn := b.Drawn()
	if len(drawn) != 2 || drawn[1].To != barsLeft+barsWidth || drawn[0].End != barsLeft+barsWidth/2 ||
		drawn[0].Segments[1] != (Segment{barsLeft + barsWidth/8., barsWidth * 3 / 8.}) || drawn[1].Y <= drawn[0].Y {
		t.Errorf("%+v", drawn)
	}
	if drawn := (Bars{Bars: []Bar{{Parts: []float64{0}}}}).Drawn(); len(drawn) != 0 {
		t.Errorf("nothing to draw: %+v", drawn)
	}
}

// The charts of a page are well-formed, and names can't break out of it.
func TestPageHTML(t *testing.T) {
	p := Page{Title: "a < b", Sections: []Section{{Title: "s", Bars: []Bars{
		{Title: "<b>", Bars: []Bar{{Name: "<x>", Label: "&", Parts: []float64{1, 2}, Low: 1, High: 3}}}}}}}
	var b bytes.Buffer
	if err := p.HTML(&b); err != nil {
		t.Fatal(err)
	}
	_, svg, _ := strings.Cut(b.String(), "<svg")
	svg, _, ok := strings.Cut(svg, "</svg>")
	if !ok || strings.Contains(b.String(), "<x>") {
		t.Fatalf("got\n%s", b.String())
	}
	rects := 0
	for dec := xml.NewDecoder(strings.NewReader("<svg" + svg + "</svg>")); ; {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := tok.(xml.StartElement); ok && e.Name.Local == "rect" {
			rects++
		}
	}
	if rects != 2 {
		t.Errorf("%d parts, want 2", rects)
	}
}
