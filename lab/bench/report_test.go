package bench

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// testReport is of two rounds, of which the second found a machine half as fast that
// stood still now and then, most while haproxy-2 was measured.
func testReport() *Report {
	r := &Report{
		Rounds:  2,
		Machine: Machine{CPU: "Fish", Cores: 2, Kernel: "6.1", Go: "go1.26", Versions: map[Program]string{HAProxy: "2.6.12"}},
		Tools:   Tools{Backend: "/peers/bin/backend"},
		Missing: map[Program]string{Wrk: hints[Wrk]}, Rest: Rest{Duration: 5 * time.Second, Connections: 10_000},
		Rows:     []string{"direct", "relay-2", "haproxy-2", "remora-1", "remora-2"},
		Loads:    []string{at64, atSlow},
		Repeats:  2,
		Failures: []Failure{{1, "relay-2", "bench: row relay-2: no relay:\n\tout of fish"}, {2, "relay-2", "again"}},
	}
	for round := 1; round <= 2; round++ {
		slow := float64(round)
		add := func(row, load string, errors int64, f Figures) {
			s := Sample{Round: round, Row: row, Load: load, Requests: 100, Errors: errors, Figures: f}
			f[Stopped] = 3 * (slow - 1)
			if load == atSlow {
				f[Disturbed] = 10 * (slow - 1)
				if row == "haproxy-2" {
					f[Disturbed] = 60 * (slow - 1)
				}
				s.All = &Latency{f[P50], f[P99], f[P999], 9 * f[Max]}
			}
			if s.disturbed() {
				s.Repeats = 2
				for _, l := range latencies {
					delete(f, l)
				}
			}
			r.Samples = append(r.Samples, s)
		}
		for _, load := range r.Loads {
			add("direct", load, 0, Figures{Rate: 90000 / slow, P50: 100 * slow, P99: 200, P999: 300, Max: 4000})
			add("haproxy-2", load, 3, Figures{CPU: 40 * slow, User: 10 * slow, System: 30 * slow, Rate: 20000 / slow, P50: 300 * slow, P99: 600, P999: 900 * slow, Max: 8000, RSS: 16})
			add("remora-2", load, 0, Figures{CPU: 26 * slow, User: 6 * slow, System: 20 * slow, Rate: 30000 / slow, P50: 200 * slow, P99: 500, P999: 800, Max: 7000, RSS: 24, Collections: 1})
		}
		r.Samples = append(r.Samples, Sample{Round: round, Row: "remora-1", Load: AtRest, Requests: 10_000,
			Figures: Figures{RestCPU: 0.5, RestRSS: 20, OwnRSS: 3, Connection: 5}})
	}
	r.Samples.addLatency()
	return r
}

func golden(t *testing.T, name string, write func(io.Writer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("%s differs (go test -update rewrites it); got:\n%s", file, b.String())
	}
	return b.String()
}

func TestText(t *testing.T) { golden(t, "report.txt", testReport().Page().Text) }

func TestMarkdown(t *testing.T) { golden(t, "report.md", testReport().Page().Markdown) }

func TestHTML(t *testing.T) {
	page := golden(t, "report.html", testReport().Page().HTML)
	for _, s := range []string{"http://", "https://", "<script", "@import", "ZgotmplZ", "NaN"} {
		if strings.Contains(page, s) {
			t.Errorf("the page contains %q", s)
		}
	}
}

func TestJSON(t *testing.T) {
	var b bytes.Buffer
	if err := testReport().JSON(&b); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if v := back.Samples.Values("remora-2", at64, CPU); !slices.Equal(v, []float64{26, 52}) {
		t.Errorf("%v", v)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{[]float64{7}, 7}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 2, 100}, 3}} {
		if got := median(c.values); got != c.want {
			t.Errorf("%v: %v, want %v", c.values, got, c.want)
		}
	}
}

func TestRatiosAreOfTheSameRound(t *testing.T) {
	s := testReport().Samples
	if got := s.Ratios("remora-2", "haproxy-2", at64, CPU); !slices.Equal(got, []float64{0.65, 0.65}) {
		t.Errorf("%v", got)
	}
	s = slices.DeleteFunc(s, func(s Sample) bool { return s.Row == "haproxy-2" && s.Round == 1 })
	if got := s.Ratios("remora-2", "haproxy-2", at64, CPU); len(got) != 1 {
		t.Errorf("a round without the other: %v", got)
	}
	if got := s.Ratios("remora-2", "direct", at64, CPU); len(got) != 0 {
		t.Errorf("without a base: %v", got)
	}
	s = Samples{{Row: "a", Figures: Figures{AddedP50: 5}}, {Row: "b", Figures: Figures{AddedP50: -1}}}
	if got := s.Ratios("a", "b", "", AddedP50); len(got) != 0 {
		t.Errorf("of a base below 0: %v", got)
	}
}
