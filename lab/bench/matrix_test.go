package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lab/replica"
)

// testMatrix measures one case through a sidecar with hedging and without, for a moment.
func testMatrix(t *testing.T, remora string) {
	cells := []Cell{{.10, 1, replica.Exponential, 0, time.Millisecond, "together"}}
	r, err := Matrix(t.Context(), Options{
		Tools: Tools{Lab: self(t), Remora: remora}, Rounds: 1, Progress: func(string) {},
	}, cells, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	noChildren(t)
	if len(r.Samples) != 3 || len(r.Failures) > 0 || r.Samples[0].Requests != 60 || r.Missing[HAProxy] == "" {
		t.Fatalf("%+v, %+v", r.Samples, r.Failures)
	}
	var b strings.Builder
	if err := r.Text(&b); err != nil || !strings.Contains(b.String(), "of 1 measured") || !strings.Contains(b.String(), "| 10% busy, workers 1, exponential of 1ms, freezes together") {
		t.Errorf("%v:\n%s", err, b.String())
	}
}

// TestCells: rates fit one machine, and replicas that freeze together have one seed.
func TestCells(t *testing.T) {
	for _, c := range Cells() {
		if rate := c.rate(); rate < 100 || rate > 2001 {
			t.Errorf("%v: %.0f requests/s", &c, rate)
		}
		if got := c.replicas(); got.alike != (c.Freezes == "together") || got.count != 3 {
			t.Errorf("%v: %+v", &c, got)
		}
	}
	if c := Cells()[0]; int(c.rate()+.5) < 1995 || c.Workers != 1 {
		t.Errorf("the case of one worker: %v, %.0f requests/s", &c, c.rate())
	}
}

func TestMatrixTable(t *testing.T) {
	r := Report{Kind: RealMatrix, Rounds: 2, Loads: []string{"c"}}
	for round, p99 := range []float64{2000, 4000} {
		for row, times := range map[string]float64{"off": 2, "on": 1, "on-2": 3, "haproxy": 4} {
			r.Samples = append(r.Samples, Sample{Round: round + 1, Row: row, Load: "c", Requests: 1, Figures: Figures{P99: times * p99, Rate: 7}})
		}
	}
	want := "c|7|6.0 [4.0..8.0]||3.0 [2.0..4.0]||9.0 [6.0..12.0]||12.0 [8.0..16.0]||0.50 [0.50..0.50]||0.25 [0.25..0.25]||0.75 [0.75..0.75]||"
	if got := strings.Join(r.matrixTable()[1], "|"); got != want {
		t.Errorf("got %s", got)
	}
	r.Samples[0].Errors = 1
	r.Samples[0].Row = "on"
	if err := r.Check(); err == nil {
		t.Error("a failed request was passed over")
	}
}
