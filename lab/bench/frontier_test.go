package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
)

// testFrontier measures a shape without hedging for a moment.
func testFrontier(t *testing.T, remora string) {
	rows := choose(t, FrontierRows(), "off")
	r, err := Frontier(t.Context(), Options{
		Tools: Tools{Lab: self(t), Remora: remora}, Rows: rows, Rounds: 1, Progress: func(string) {},
	}, []Shape{{"fast", 200, replicas{count: 3}}}, 300*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	noChildren(t)
	if len(r.Samples) != 1 || len(r.Failures) > 0 || r.Samples[0].Requests != 60 {
		t.Fatalf("%+v, %+v", r.Samples, r.Failures)
	}
}

// TestFrontierTable: a budget is compared with the best Envoy at no more extra load than the budget took.
func TestFrontierTable(t *testing.T) {
	r := Report{Kind: Frontiers, Rounds: 1, Loads: []string{"s"}, Rows: []string{"off", "budget-5%", "envoy", "envoy-5ms", "envoy-10ms", "haproxy"}}
	for row, figures := range map[string][3]float64{
		"off": {0, 50, 60}, "budget-5%": {4, 20, 30}, "envoy": {0, 50, 70}, "envoy-5ms": {9, 10, 10}, "envoy-10ms": {4.05, 40, 75}, "haproxy": {0, 1, 1},
	} {
		r.Samples = append(r.Samples, Sample{Round: 1, Row: row, Load: "s", Requests: 1, Figures: Figures{Extra: figures[0], P99: figures[1], P999: figures[2]}})
	}
	table := r.frontierTable()
	if got := strings.Join(table[1], "|"); len(table) != 2 || got != "s|budget-5%|0.50|envoy-10ms|0.43|envoy" {
		t.Errorf("%d lines, %s", len(table), got)
	}
	var b strings.Builder
	if err := r.Text(&b); err != nil || !strings.Contains(b.String(), "Beside Envoy's hedging") || strings.Contains(b.String(), "Promises") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// TestReplicaArguments: replicas have seeds of their own unless they are alike, and the first may differ.
func TestReplicaArguments(t *testing.T) {
	r := replicas{count: 2, args: []string{"--workers", "1"}, first: []string{"--median", "10ms"}}
	for i, want := range []string{"--seed 8 --workers 1 --median 10ms", "--seed 9 --workers 1"} {
		if got := strings.Join(r.arguments(i, 7), " "); got != want {
			t.Errorf("replica %d: %s, want %s", i, got, want)
		}
	}
	r.alike = true
	if got := strings.Join(r.arguments(1, 7), " "); got != "--seed 8 --workers 1" {
		t.Errorf("replicas that are alike: %s", got)
	}
}

// TestFrontierRows: each Envoy has its own delay, and each shape its own name.
func TestFrontierRows(t *testing.T) {
	for _, row := range FrontierRows() {
		p := testPlace(t, row.chain[0])
		p.Upstreams = []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}
		file := configFile(t, p)
		b := must.ReadFile(t, file)
		want := map[string]string{"envoy-3ms": "per_try_timeout: 0.003s", "envoy-25ms": "per_try_timeout: 0.025s", "budget-20%": "budget: 0.2}"}[row.Name]
		if !strings.Contains(string(b), want) {
			t.Errorf("%s: %s", row.Name, b)
		}
	}
	names := map[string]bool{}
	for _, s := range Shapes() {
		names[s.Name] = true
	}
	if len(names) != len(Shapes()) || len(Shapes()) < 5 {
		t.Errorf("%d shapes with %d names", len(Shapes()), len(names))
	}
}
