package report

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/lab/bench"
)

// costSamples are three rounds of all groups. The machine is slower in each, and the proxies'
// ratios to HAProxy differ: medians of Remora's are 0.5 for two hops, 0.8 for one.
func costSamples() (s bench.Samples) {
	for _, w := range costWorks() {
		for round, slow := range []float64{1, 10, 4} {
			add := func(proxy string, ratio float64) {
				s = append(s, bench.Sample{
					Round: round + 1, Row: fmt.Sprintf("%s-%d", proxy, w.hops), Load: w.load.Name,
					Figures: bench.Figures{w.figure: 40 * slow * ratio},
				})
			}
			add("haproxy", 1)
			add("remora", []float64{0.9, 0.1, 0.5}[round]+0.3*float64(2-w.hops))
			add("nginx", 1.25)
			if w.figure == bench.CPU {
				add("relay", 2)
			}
		}
	}
	return s
}

// TestCostGroups checks that a bar is the median of the ratios of rounds, of the right hops.
func TestCostGroups(t *testing.T) {
	groups := costGroups(costSamples())
	if len(groups) != 13 {
		t.Fatalf("%d groups: %+v", len(groups), groups)
	}
	for i, g := range groups {
		want := []float64{0.5, 1, 1.25, 2}
		if strings.HasSuffix(g.Title, ", 1 hop") {
			want[0] = 0.8
		}
		if costWorks()[i].figure == bench.PerGiB {
			want = want[:3]
		}
		var got []float64
		for _, b := range g.Bars {
			got = append(got, b.Ratio)
		}
		if fmt.Sprintf("%.6g", got) != fmt.Sprintf("%.6g", want) {
			t.Errorf("%s: %v, want %v", g.Title, got, want)
		}
	}
}

// TestCostLoads checks that each group is of a load of the bench of work, which no other group of
// so many hops has.
func TestCostLoads(t *testing.T) {
	loads, err := bench.WorkLoads(bench.Jobs, 0)
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]int{}
	for _, l := range loads {
		left[l.Name] = 3 // one hop, and two
	}
	for _, w := range costWorks() {
		if left[w.load.Name] -= w.hops; left[w.load.Name] < 0 {
			t.Errorf("%s: %q", w.title, w.load.Name)
		}
	}
}

func TestCosts(t *testing.T) {
	dir := t.TempDir()
	work, svg := filepath.Join(dir, "work.json"), filepath.Join(dir, "cost.svg")
	costs := func(s bench.Samples) error {
		t.Helper()
		b, err := json.Marshal(bench.Report{Kind: bench.Work, Samples: s, Machine: bench.Machine{
			Versions: map[bench.Program]string{bench.HAProxy: "3.2.26", bench.Remora: "devel"},
		}})
		if err == nil {
			err = os.WriteFile(work, b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return Costs(dir, work)
	}
	if err := costs(costSamples()); err != nil {
		t.Fatal(err)
	}
	text := string(must.ReadFile(t, svg))
	// The axis goes from 0 to 2, so that a bar of 2 has all 480 pixels.
	for want, count := range map[string]int{
		"<title>": 1, ">HAProxy 3.2<": 1, ">nginx<": 1, ">Remora<": 1, "<script": 0, "NaN": 0,
		`width="120.0" height="11" fill="#1769aa"`: 11, `width="192.0" height="11" fill="#1769aa"`: 2,
		`width="240.0" height="11" fill="#8a8f98"`: 13, `width="300.0" height="11" fill="#2a8a4a"`: 13,
		`width="480.0" height="11" fill="#c2571a"`: 7, `x="304.0" y="76">0.50<`: 1,
		`<path d="M420.0 60V`: 2, // the tick and the line at 1
	} {
		if got := strings.Count(text, want); got != count {
			t.Errorf("%d times %q, want %d", got, want, count)
		}
	}
	if len(text) > 20<<10 {
		t.Errorf("%d bytes", len(text))
	}
	var err error
	for d := xml.NewDecoder(strings.NewReader(text)); err == nil; {
		_, err = d.Token()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("%v:\n%s", err, text)
	}
	if err := costs(bench.Samples{{Round: 1, Row: "remora-2", Load: bench.Closed(1, 0).Name, Figures: bench.Figures{bench.CPU: 7}}}); err == nil {
		t.Error("no error without HAProxy")
	}
}

func TestLinearAxis(t *testing.T) {
	for most, want := range map[float64]string{1: "[0 0.2 0.4 0.6 0.8 1]", 1.62: "[0 0.5 1 1.5 2]", 2: "[0 0.5 1 1.5 2]", 7.9: "[0 1 2 3 4 5 6 7 8]"} {
		var labels []string
		a := linearAxis(most)
		for _, tick := range a.Ticks {
			labels = append(labels, tick.Label)
		}
		if last := a.Ticks[len(a.Ticks)-1].Value; fmt.Sprint(labels) != want || a.scale(last) != 1 || a.scale(0) != 0 {
			t.Errorf("%v: %v, want %s", most, labels, want)
		}
	}
}
