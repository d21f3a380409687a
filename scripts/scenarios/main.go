// Command scenarios runs the scripts of proxy/sim/testdata, or those it is given,
// in full on the simulator, and prints a table of what came of them in Markdown.
// It exits 1 if something was not as expected.
//
//	go run ./scripts/scenarios
//	go run ./scripts/scenarios -small proxy/sim/testdata/load-spike.scenario
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/remora-proxy/remora/proxy/sim/mesh"
)

func main() {
	small := flag.Bool("small", false, "run the short forms, as go test does")
	flag.Parse()
	paths := flag.Args()
	if len(paths) == 0 {
		paths, _ = filepath.Glob("proxy/sim/testdata/*.scenario") // the pattern is well-formed
	}
	rows := make([]chan row, len(paths))
	running := make(chan struct{}, runtime.NumCPU())
	for i, path := range paths {
		rows[i] = make(chan row, 1)
		go func() {
			running <- struct{}{}
			rows[i] <- run(path, *small)
			<-running
		}()
	}
	fmt.Println("| scenario | requests | P50 | P99 | P99.9 | extra load | as expected |")
	fmt.Println("|---|---|---|---|---|---|---|")
	failed := len(paths) == 0
	for _, r := range rows {
		row := <-r
		fmt.Println(row.text)
		for _, wrong := range row.wrong {
			failed = true
			fmt.Fprintln(os.Stderr, wrong)
		}
	}
	if failed {
		os.Exit(1)
	}
}

// row is what came of one script.
type row struct {
	text  string
	wrong []string
}

func run(path string, small bool) row {
	sc, err := mesh.Load(path)
	if err != nil {
		return row{wrong: []string{err.Error()}}
	}
	runs := sc.Full
	if small {
		runs = sc.Small
	}
	r, outcomes := sc.Play(runs)
	out := row{wrong: r.Violations}
	var held []string
	for _, o := range outcomes {
		if !o.Holds {
			out.wrong = append(out.wrong, fmt.Sprintf("%s:%d: expected %s", path, o.Expect.Line, o.Summary))
		}
		held = append(held, o.Summary)
	}
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond)) }
	out.text = fmt.Sprintf("| `%s`: %s | %d | %s | %s | %s | %.1f%% | %s |", sc.Name, sc.Title, len(r.Requests),
		ms(r.Quantile(.5)), ms(r.Quantile(.99)), ms(r.Quantile(.999)), 100*r.ExtraLoad(), strings.Join(held, "; "))
	return out
}
