package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/lab/load"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// sample is a report as the demo makes it.
func sample() *Report {
	curve := func(ms ...float64) []load.Point {
		var c []load.Point
		for i, q := range []float64{0, .5, .9, .99, .999, 1} {
			c = append(c, load.Point{Quantile: q, MS: ms[i]})
		}
		return c
	}
	return &Report{
		Mode: "stall", Rate: 1000, Seconds: 15, Seed: 1,
		Direct: &Phase{Requests: 15000, P50: 1.2, P90: 2.6, P99: 42.1, P999: 51.3, Max: 53.9, Stalls: 22,
			Curve: curve(.3, 1.2, 2.6, 42.1, 51.3, 53.9)},
		Off: &Phase{Requests: 15000, Errors: 1, P50: 1.4, P90: 2.4, P99: 3.8, P999: 50.2, Max: 52.7, Stalls: 22,
			Curve: curve(.4, 1.4, 2.4, 3.8, 50.2, 52.7)},
		On: &Phase{Requests: 15000, P50: 1.4, P90: 2.4, P99: 3.6, P999: 5.9, Max: 31.5, Stalls: 22,
			Hedges: 412, HedgesWon: 250, ExtraLoad: .0271, Gates: map[string]int64{"budget": 3},
			Curve: curve(.4, 1.4, 2.4, 3.6, 5.9, 31.5)},
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		must.WriteFile(t, file, got)
	}
	want := must.ReadFile(t, file)
	if got != string(want) {
		t.Errorf("%s differs (go test -update rewrites it); got:\n%s", file, got)
	}
}

func TestTable(t *testing.T) { golden(t, "table.txt", sample().Table()) }

func TestPlot(t *testing.T) { golden(t, "plot.txt", sample().Plot(60, 14)) }

func TestHTML(t *testing.T) {
	var b bytes.Buffer
	if err := sample().HTML(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "page.html", b.String())
	for _, s := range []string{"src=", "href=", "https://", "//cdn", "<script", "@import", "ZgotmplZ"} {
		if strings.Contains(b.String(), s) {
			t.Errorf("the page contains %q", s)
		}
	}
}

func TestChartIsWellFormed(t *testing.T) {
	var b bytes.Buffer
	if err := sample().HTML(&b); err != nil {
		t.Fatal(err)
	}
	_, svg, _ := strings.Cut(b.String(), "<svg")
	svg, _, ok := strings.Cut(svg, "</svg>")
	if !ok {
		t.Fatal("no chart")
	}
	lines := 0
	for dec := xml.NewDecoder(strings.NewReader("<svg" + svg + "</svg>")); ; {
		tok, err := dec.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := tok.(xml.StartElement); ok && e.Name.Local == "polyline" {
			lines++
		}
	}
	if lines != 3 {
		t.Errorf("%d curves, want 3", lines)
	}
}

// TestJSONSchema checks the fields that scripts read.
func TestJSONSchema(t *testing.T) {
	b, err := json.Marshal(sample())
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]json.RawMessage
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for _, phase := range []string{"direct", "off", "on"} {
		var fields map[string]any
		if err := json.Unmarshal(got[phase], &fields); err != nil {
			t.Fatalf("%s: %v", phase, err)
		}
		for _, f := range []string{"requests", "errors", "p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms", "hedges", "hedges_won", "extra_load"} {
			if _, ok := fields[f].(float64); !ok {
				t.Errorf("%s.%s = %v, want a number", phase, f, fields[f])
			}
		}
	}
	var back Report
	if err := json.Unmarshal(b, &back); err != nil || back.On.ExtraLoad != .0271 || back.On.HedgesWon != 250 {
		t.Errorf("%v, %+v", err, back.On)
	}
}

func TestReportWithoutFigures(t *testing.T) {
	for _, r := range []*Report{{}, {Direct: &Phase{}}, {On: &Phase{Curve: []load.Point{{Quantile: 1, MS: 0}}}},
		{Off: &Phase{Curve: []load.Point{{Quantile: 1, MS: 7}}}}, {Off: &Phase{Curve: []load.Point{{Quantile: 1, MS: 5}}}}} {
		r.Table()
		r.Plot(40, 10)
		if err := r.HTML(io.Discard); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

func TestAround(t *testing.T) {
	for _, tt := range []struct{ low, high, from, to float64 }{
		{1, 1, 1, 2}, {1.2, 1.2, 1, 2}, {2, 2, 2, 5}, {4.9, 4.9, 2, 5}, {5, 53, 5, 100}, {.3, .3, .2, .5}, {53, 100, 50, 100}, {100, 2000, 100, 2000},
	} {
		got := around(tt.low, tt.high)
		from, to := got[0], got[len(got)-1]
		if from < tt.from*.999 || from > tt.from*1.001 || to < tt.to*.999 || to > tt.to*1.001 {
			t.Errorf("%v to %v: %v, want %v to %v", tt.low, tt.high, got, tt.from, tt.to)
		}
	}
}
