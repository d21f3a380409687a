package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// Lines begin at 0, and reach as high as the next round number.
func TestLines(t *testing.T) {
	l := Lines{Steps: []string{"1", "1000"}, Lines: []Line{
		{Name: "a", Points: []LinePoint{{0, 10}, {1, 18}}}, {Name: "b", Points: []LinePoint{{1, 0}}},
	}}
	d := l.Drawn()
	if d == nil || len(d.X) != 2 || len(d.Lines) != 2 {
		t.Fatalf("%+v", d)
	}
	if y := d.Y; y[0] != (gridLine{linesBottom, "0"}) || y[len(y)-1] != (gridLine{linesTop, "20"}) {
		t.Errorf("%+v", y)
	}
	a, b := d.Lines[0], d.Lines[1]
	if a.Dots[0].Y != (linesTop+linesBottom)/2 || a.Dots[0].X != d.X[0].At || a.Dots[1].Label != "a, 1000: 18" ||
		strings.Count(a.Points, " ") != 1 || a.Colour == b.Colour {
		t.Errorf("%+v", a)
	}
	if b.Dots[0].X != d.X[1].At || b.Dots[0].Y != linesBottom {
		t.Errorf("a step without a value: %+v", b)
	}
	if d := (Lines{Steps: []string{"1"}, Lines: []Line{{Name: "a"}}}).Drawn(); d != nil {
		t.Errorf("nothing to draw: %+v", d)
	}
}

// A page's lines are well-formed, names can't break out of them, and a chart with
// nothing to draw is left out.
func TestPageWithLines(t *testing.T) {
	p := Page{Sections: []Section{{Lines: []Lines{
		{Title: "<b>", Steps: []string{"1", "2"}, Lines: []Line{{Name: "<x>", Points: []LinePoint{{0, 1}, {1, 3}}}}},
		{Title: "empty"},
	}}}}
	var b bytes.Buffer
	if err := p.HTML(&b); err != nil {
		t.Fatal(err)
	}
	_, figure, _ := strings.Cut(b.String(), "<figure>")
	figure, rest, ok := strings.Cut(figure, "</figure>")
	if !ok || strings.Contains(b.String(), "<x>") || strings.Contains(rest, "<figure>") {
		t.Fatalf("got\n%s", b.String())
	}
	counts := map[string]int{}
	dec := xml.NewDecoder(strings.NewReader("<figure>" + figure + "</figure>"))
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := tok.(xml.StartElement); ok {
			counts[e.Name.Local]++
		}
	}
	if counts["circle"] != 2 || counts["polyline"] != 1 || counts["line"] != linesTicks+1 {
		t.Errorf("%v", counts)
	}
}
