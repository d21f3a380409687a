package mesh

import (
	"path/filepath"
	"testing"
	"time"
)

// TestScenarios runs every script in its short form; scripts/scenarios runs them
// in full.
func TestScenarios(t *testing.T) {
	paths, err := filepath.Glob("../testdata/*.scenario")
	if err != nil || len(paths) < 13 {
		t.Fatalf("found the scripts %v, %v", paths, err)
	}
	for _, path := range paths {
		sc, err := Load(path)
		if err != nil {
			t.Error(err)
			continue
		}
		t.Run(sc.Name, func(t *testing.T) { play(t, sc) })
	}
}

func play(t *testing.T, sc *Scenario) {
	r, outcomes := sc.Play(sc.Small)
	for _, wrong := range r.Violations {
		t.Error(wrong)
	}
	for _, o := range outcomes {
		if !o.Holds {
			t.Errorf("line %d: expected %s", o.Expect.Line, o.Summary)
		}
	}
	t.Logf("%s: %d requests, p50 %v, p99 %v, p99.9 %v, extra load %.1f%%, gates %v", sc.Title, len(r.Requests),
		r.Quantile(.5).Round(10*time.Microsecond), r.Quantile(.99).Round(10*time.Microsecond),
		r.Quantile(.999).Round(10*time.Microsecond), 100*r.ExtraLoad(), r.Gates)
}
