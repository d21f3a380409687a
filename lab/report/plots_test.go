package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/lab/load"
)

func TestPlots(t *testing.T) {
	dir := t.TempDir()
	tail, shadow := filepath.Join(dir, "tail.json"), filepath.Join(dir, "shadow.json")
	write := func(path, text string) {
		t.Helper()
		must.WriteFile(t, path, text)
	}
	write(tail, `{"samples": [
		{"row": "remora", "curve": [{"quantile": 0, "ms": 9}, {"quantile": 0.5, "ms": 1}, {"quantile": 0.99, "ms": 10}, {"quantile": 1, "ms": 90}]},
		{"row": "remora", "curve": [{"quantile": 0.5, "ms": 3}, {"quantile": 0.99, "ms": 10}]},
		{"row": "other", "curve": [{"quantile": 0.5, "ms": 3}]}]}`)
	write(shadow, `{"off": {"forecasts": [{"delay_ms": 20, "p99_ms": 5, "extra_load": 0.01}, {"delay_ms": 2, "p99_ms": 2},
		{"delay_ms": 7, "current": true, "p99_ms": 3}]}}`)
	if err := Plots(dir, tail, shadow); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"tail.svg": 1, "forecast.svg": 3} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || strings.Count(string(b), "<polyline") != want || strings.Contains(string(b), "NaN") {
			t.Errorf("%s: %v\n%s", name, err, b)
		}
	}
	for _, bad := range []string{"", "{}", `{"off": {"forecasts": []}}`} {
		write(shadow, bad)
		if err := Plots(dir, tail, shadow); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

// TestTailCurves checks that a point is the median of the rounds.
func TestTailCurves(t *testing.T) {
	lines := tailCurves([]tailSample{
		{"haproxy", []load.Point{{Quantile: 0.5, MS: 1}, {Quantile: 0.9, MS: 7}}},
		{"haproxy", []load.Point{{Quantile: 0.5, MS: 3}}},
		{"haproxy", []load.Point{{Quantile: 0.5, MS: 100}}},
	})
	if len(lines) != 1 || len(lines[0].Points) != 2 || lines[0].Points[0] != (XY{0.5, 3}) || lines[0].Points[1] != (XY{0.9, 7}) {
		t.Errorf("%+v", lines)
	}
}
