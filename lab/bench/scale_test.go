package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Two sidecars on this machine, for a moment.
func TestRunScale(t *testing.T) {
	remora := filepath.Join(t.TempDir(), "remora")
	if out, err := exec.Command("go", "build", "-o", remora, "../../cmd/remora").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	rows, err := Choose([]string{"remora-2"})
	if err != nil {
		t.Fatal(err)
	}
	endpoints, err := ChooseDimensions([]string{"endpoints"})
	if err != nil {
		t.Fatal(err)
	}
	endpoints[0].Steps = []int{3, 30}
	var told []string
	r, err := RunScale(context.Background(), ScaleOptions{
		Tools: Tools{Lab: self(t), Remora: remora}, Rows: rows, Rounds: 1, Dimensions: endpoints,
		Lead: 100 * time.Millisecond, Duration: 200 * time.Millisecond,
		Progress: func(line string) { told = append(told, line) },
	})
	if err != nil {
		t.Fatal(err)
	}
	noChildren(t)
	if want := []string{"round 1 of 1: endpoints 3, remora-2", "round 1 of 1: endpoints 30, remora-2"}; !slices.Equal(told, want) {
		t.Errorf("told %q", told)
	}
	for _, step := range []int{3, 30} {
		for _, f := range []Figure{CPU, ConsumerCPU, Rate, P50, P99, RSS, ConsumerRSS} {
			if v := r.Samples.Values("remora-2", endpoints[0].load(step), f); len(v) != 1 || v[0] <= 0 {
				t.Errorf("%d endpoints: %s %v", step, f, v)
			}
		}
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
}

// A load that fails says why, and nothing is left.
func TestAmidALoadThatFails(t *testing.T) {
	rows, err := Choose([]string{"direct"})
	if err != nil {
		t.Fatal(err)
	}
	row := rows[0]
	row.size = base.size
	broken := errors.New("broken")
	fails := Load{"fails", func(context.Context, Tools, string) (*Result, error) { return nil, broken }, 0}
	err = with(t.Context(), Tools{Lab: self(t)}, row, func(s *Stack) error {
		s.Meter = Meter{os.Getpid()} // the row has no proxy
		_, err := s.amid(t.Context(), fails, time.Millisecond, time.Millisecond)
		return err
	})
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "no request was answered") {
		t.Error(err)
	}
	noChildren(t)
}

func TestScaleOptionsAreValidated(t *testing.T) {
	rows, err := Choose([]string{"remora-1"})
	if err != nil {
		t.Fatal(err)
	}
	good := ScaleOptions{Rounds: 1, Rows: rows, Dimensions: Dimensions(), Duration: time.Second}
	if err := good.validate(); err != nil {
		t.Error(err)
	}
	for what, spoil := range map[string]func(*ScaleOptions){
		"no round": func(o *ScaleOptions) { o.Rounds = 0 }, "no row": func(o *ScaleOptions) { o.Rows = nil },
		"no dimension": func(o *ScaleOptions) { o.Dimensions = nil }, "no time": func(o *ScaleOptions) { o.Duration = 0 },
		"a dimension twice": func(o *ScaleOptions) { o.Dimensions = append(Dimensions(), Dimensions()[0]) },
		"a step twice":      func(o *ScaleOptions) { o.Dimensions = []Dimension{{Name: "routes", Steps: []int{1, 10, 1}}} },
		"no sidecar":        func(o *ScaleOptions) { o.Rows = []Row{{Name: "direct"}} },
	} {
		bad := good
		if spoil(&bad); bad.validate() == nil {
			t.Errorf("%s was accepted", what)
		}
	}
}

func TestDimensions(t *testing.T) {
	for _, d := range Dimensions() {
		if d.at(d.Steps[len(d.Steps)-1]) == base {
			t.Errorf("%s does not grow", d.Name)
		}
	}
	some, err := ChooseDimensions([]string{"body", "connections"})
	if err != nil || len(some) != 2 || some[0].Name != "connections" || some[0].at(7).connections != 7 {
		t.Errorf("%+v, %v", some, err)
	}
	if _, err := ChooseDimensions([]string{"weight"}); err == nil {
		t.Error("an unknown dimension was accepted")
	}
}

func TestDescriptors(t *testing.T) {
	o := ScaleOptions{Dimensions: Dimensions()}
	if n := o.mostDescriptors(); n < 10_000+concurrency || n > 12_000 {
		t.Errorf("%d descriptors", n)
	}
}

// testScale has two rounds of one dimension, and a step that was left out.
func testScale() *ScaleReport {
	rows, _ := Choose([]string{"remora-1", "remora-2"})
	connections := Dimensions()[:1]
	connections[0].Steps = []int{1, 10_000}
	r := &ScaleReport{
		Rounds: 2, Machine: Machine{CPU: "Fish", Cores: 2, Kernel: "6.1", Go: "go1.26"},
		Rows: []string{rows[0].Name, rows[1].Name}, Dimensions: connections,
	}
	for round := 1; round <= 2; round++ {
		f := func(cpu, rss float64) Figures {
			return Figures{CPU: cpu * float64(round), User: cpu / 4, System: cpu / 2, Rate: 1e6 / cpu, P50: 100, P99: 300, RSS: rss}
		}
		mesh := f(50, 40)
		mesh[ConsumerCPU], mesh[ConsumerRSS] = 20, 18
		r.Samples = append(r.Samples,
			Sample{Round: round, Row: "remora-1", Load: connections[0].load(1), Requests: 100, Figures: f(30, 20)},
			Sample{Round: round, Row: "remora-2", Load: connections[0].load(1), Requests: 100, Figures: mesh},
			Sample{Round: round, Row: "remora-2", Load: connections[0].load(10_000), Requests: 100, Figures: f(15, 200)})
		r.leaveOut(connections[0], 100_000, 19_000)
	}
	return r
}

func TestScaleText(t *testing.T) { golden(t, "scale.txt", testScale().Page().Text) }

func TestScaleMarkdown(t *testing.T) { golden(t, "scale.md", testScale().Page().Markdown) }

func TestScaleHTML(t *testing.T) {
	page := golden(t, "scale.html", testScale().Page().HTML)
	for _, s := range []string{"http://", "https://", "<script", "@import", "ZgotmplZ", "NaN"} {
		if strings.Contains(page, s) {
			t.Errorf("the page contains %q", s)
		}
	}
}

func TestScaleJSON(t *testing.T) {
	var b bytes.Buffer
	if err := testScale().JSON(&b); err != nil {
		t.Fatal(err)
	}
	var back ScaleReport
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if v := back.Samples.Values("remora-2", "connections 10000", CPU); !slices.Equal(v, []float64{15, 30}) || len(back.LeftOut) != 1 {
		t.Errorf("%v, left out %q", v, back.LeftOut)
	}
}

func TestScaleCheck(t *testing.T) {
	r := testScale()
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	r.Samples[1].Errors = 3
	if err := r.Check(); err == nil || !strings.Contains(err.Error(), "connections 1: 3 requests failed") {
		t.Error(err)
	}
}
