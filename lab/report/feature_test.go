package report

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestFeature(t *testing.T) {
	slowest := 7.6
	r := &Feature{Mode: "stall", Rate: 1000, FanOut: 10, Seconds: 20, Minute: 10, Phases: []*FeaturePhase{
		{Name: "direct", Requests: 20000, P50: 1.75, P99: 30.56, P999: 51.38, Slowest: 46.89, Errors: 1.9, HitRate: .53, CPU: 194, Busy: .23,
			StoreSecond0: 565, StoreLater: 466, Second0: Second0{Requests: 3334, P99: 100.01, Errors: 11.45}},
		{Name: "on", Slowest: slowest, Slowest10: &slowest, ExtraLoad: .0185},
	}}
	table := r.Table()
	var rows []string
	for _, line := range strings.Split(table, "\n") {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	for _, want := range []string{
		"p50 p99 p99.9 user p99 errors ‰ 0: p99 0: errors ‰ 0: store/s store/s hit rate extra load CPU µs busy",
		"direct 1.75 30.56 51.38 46.89 1.90 100.01 11.45 565 466 53% 0.00% 194 23%",
		"on 0.00 0.00 0.00 7.60 0.00 0.00 0.00 0 0 0% 1.85% – –",
	} {
		if !strings.Contains(strings.Join(rows, "\n"), want) {
			t.Errorf("no line %q in\n%s", want, table)
		}
	}
	if !strings.Contains(table, "are without it") {
		t.Errorf("the table does not say what the latencies are without:\n%s", table)
	}

	b, err := json.Marshal(r.JSON())
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Mode   string         `json:"mode"`
		FanOut int            `json:"fan_out"`
		Phases map[string]any `json:"phases"`
	}
	if err := json.Unmarshal(b, &got); err != nil || got.Mode != "stall" || got.FanOut != 10 || len(got.Phases) != 2 {
		t.Fatalf("%v: %s", err, b)
	}
	on := got.Phases["on"].(map[string]any)
	for _, key := range []string{"p50_ms", "p99_ms", "p999_ms", "slowest10_p99_ms", "errors_permille", "extra_load", "store_second0_per_s", "hit_rate", "requests"} {
		if _, ok := on[key]; !ok {
			t.Errorf("no %s in %s", key, b)
		}
	}
	if on["slowest10_p99_ms"] != 7.6 {
		t.Errorf("%s", b)
	}
}
