package bench

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// testReport has two rounds. In the second one the machine was half as fast, and stood still
// now and then, most of all for haproxy-2.
func testReport() *Report {
	r := &Report{
		Rounds:  2,
		Machine: Machine{CPU: "Fish", Cores: 2, Kernel: "6.1", Go: "go1.26", Versions: map[Program]string{HAProxy: "2.6.12"}},
		Missing: map[Program]string{Wrk: programs[Wrk].hint}, Rest: Rest{Duration: 5 * time.Second, Connections: 10_000},
		Rows:     []string{"direct", "relay-2", "haproxy-2", "remora-1", "remora-2"},
		Loads:    []string{at64, atSlow},
		Failures: []Failure{{1, "relay-2", "no relay:\n\tout of fish"}, {2, "relay-2", "again"}},
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
				s.All = Figures{P50: f[P50], P99: f[P99], P999: f[P999], Max: 9 * f[Max]}
			}
			if f[Disturbed] > tooDisturbed {
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

func golden(t *testing.T, name string, write func(io.Writer) error) {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", name)
	if *update {
		must.WriteFile(t, file, b.Bytes())
	}
	want := must.ReadFile(t, file)
	if b.String() != string(want) {
		t.Errorf("%s differs (go test -update rewrites it); got:\n%s", file, b.String())
	}
}

func TestText(t *testing.T) { golden(t, "report.md", testReport().Text) }

// TestFewerConnections checks that the report says when the machine allows fewer idle connections.
func TestFewerConnections(t *testing.T) {
	r := testReport()
	r.Rest.Asked = 100_000
	var b bytes.Buffer
	if err := r.Text(&b); err != nil || !strings.Contains(b.String(), "then 10000 idle connections (not 100000: the limit of descriptors)\n") {
		t.Errorf("%v:\n%s", err, &b)
	}
}

func TestJSON(t *testing.T) {
	b, err := json.Marshal(testReport())
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(b, &back); err != nil {
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
	if got := median(nil); !math.IsNaN(got) {
		t.Errorf("of no values: %v", got)
	}
}

func TestRatios(t *testing.T) {
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

// TestCheck checks which failures are errors: those of a sidecar and of the direct way.
func TestCheck(t *testing.T) {
	r := testReport()
	if err := r.Check(); err != nil {
		t.Errorf("a relay that failed, and a haproxy that refused requests: %v", err)
	}
	good := r.Samples
	for what, bad := range map[string]Sample{
		"a failure": {Row: "remora-2", Requests: 10, Errors: 1}, "a load without a response": {Row: "remora-1"},
		"the replica's failure": {Row: "direct", Requests: 10, Errors: 1},
	} {
		r.Samples = append(good[:len(good):len(good)], bad)
		if err := r.Check(); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	for _, row := range []string{"remora-1", "direct"} {
		r := testReport()
		r.Failures = append(r.Failures, Failure{2, row, "it ended"})
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), "it ended") {
			t.Errorf("%s failed: %v", row, err)
		}
	}
	r.Samples = nil
	if err := r.Check(); err == nil || !strings.Contains(err.Error(), "out of fish") {
		t.Errorf("nothing was measured: %v", err)
	}
}

func TestPreface(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*Report)
		says   string
	}{
		"not watched":         {func(r *Report) { r.Unwatched = "operation\nnot permitted" }, "(operation not permitted)"},
		"a failure":           {func(*Report) {}, "relay-2 failed in round 1: no relay: out of fish"},
		"a failure at length": {func(r *Report) { r.Failures[0].Why = strings.Repeat("€", 1000) }, "round 1: " + strings.Repeat("€", 300) + "…"},
	} {
		r := testReport()
		c.change(r)
		if said, err := r.preface(); err != nil || !strings.Contains(said, c.says) {
			t.Errorf("%s: %s", what, said)
		}
	}
}
