package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
)

// TestFrontiers: a shape has a file, with a line for each figure that was measured, from the least
// extra load to the most.
func TestFrontiers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "frontier.json")
	write := func(text string) {
		t.Helper()
		must.WriteFile(t, path, text)
	}
	sample := func(row, figures string) string {
		return `{"row": "` + row + `", "load": "5% stragglers", "figures": {` + figures + `}}`
	}
	write(`{"loads": ["5% stragglers"], "rows": ["budget-5%", "off", "haproxy"], "samples": [` + strings.Join([]string{
		sample("budget-5%", `"extra_pct": 5, "p99_us": 10000`), sample("budget-5%", `"extra_pct": 5, "p99_us": 10000`),
		sample("off", `"extra_pct": -0.01, "p99_us": 50000`), sample("haproxy", `"extra_pct": 0, "p99_us": 50000`),
	}, ",") + `]}`)
	if err := Frontiers(dir, path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "frontier-5-stragglers.svg"))
	svg := string(b)
	if err != nil || strings.Count(svg, "<polyline") != 2 || strings.Contains(svg, "NaN") ||
		!strings.Contains(svg, `points="60.0,66.0 680.0,386.0"`) || !strings.Contains(svg, `points="60.0,66.0 680.0,66.0"`) {
		t.Errorf("%v\n%s", err, svg)
	}
	for _, bad := range []string{"", `{"loads": ["x"]}`} {
		write(bad)
		if err := Frontiers(dir, path); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
