package mesh

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fullForm is a flag that scripts/sim.sh sets.
var fullForm = flag.Bool("full", false, "TestScenarios: run the scripts in full and print a Markdown table of the results")

// TestScenarios runs every script of ../testdata, in its short form unless -full is given.
func TestScenarios(t *testing.T) {
	paths, err := filepath.Glob("../testdata/*.scenario")
	if err != nil || len(paths) < 13 {
		t.Fatalf("found the scripts %v, %v", paths, err)
	}
	rows := make([]string, len(paths))
	if *fullForm {
		t.Cleanup(func() { // after the subtests, which run in parallel
			fmt.Println("| scenario | requests | P50 | P99 | P99.9 | extra load | as expected |")
			fmt.Println("|---|---|---|---|---|---|---|")
			fmt.Print(strings.Join(rows, ""))
		})
	}
	for i, path := range paths {
		sc, err := Load(path)
		if err != nil {
			t.Error(err)
			continue
		}
		t.Run(sc.Name, func(t *testing.T) {
			if !*fullForm {
				playScenario(t, sc, sc.Small)
				return
			}
			t.Parallel()
			rows[i] = playScenario(t, sc, sc.Full)
		})
	}
}

// playScenario runs one form of a script and returns its line of the table.
func playScenario(t *testing.T, sc *Scenario, form Runs) string {
	r, outcomes := sc.Play(form)
	for _, wrong := range r.Violations {
		t.Error(wrong)
	}
	var held []string
	for _, o := range outcomes {
		if !o.Holds {
			t.Errorf("line %d: expected %s", o.Expect.Line, o.Summary)
		}
		held = append(held, o.Summary)
	}
	ms := func(q float64) string {
		return fmt.Sprintf("%.1f ms", float64(r.Quantile(q))/float64(time.Millisecond))
	}
	row := fmt.Sprintf("| `%s`: %s | %d | %s | %s | %s | %.1f%% | %s |\n", sc.Name, sc.Title, len(r.Requests),
		ms(.5), ms(.99), ms(.999), 100*r.ExtraLoad(), strings.Join(held, "; "))
	t.Logf("%sgates: %v", row, r.Gates)
	return row
}
