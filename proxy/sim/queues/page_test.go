package queues

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
)

// outcome is what the page says of a case. Latencies are in milliseconds.
type outcome struct {
	Cell
	p99, p999 [Ways]float64
	extra     float64 // requests per request that hedging added
}

func (r *row) outcome() outcome {
	o := outcome{Cell: r.Cell, extra: r.ways[On].Extra()}
	for way := range Ways {
		o.p99[way], o.p999[way] = milliseconds(r.ways[way].Quantile(.99)), milliseconds(r.ways[way].Quantile(.999))
	}
	return o
}

func (o *outcome) gain99() float64    { return o.p99[On] / o.p99[Off] }
func (o *outcome) gain999() float64   { return o.p999[On] / o.p999[Off] }
func (o *outcome) worst() float64     { return max(o.gain99(), o.gain999()) }
func (o *outcome) fromBest() float64  { return o.p99[On] / o.p99[Oracle] }
func (o *outcome) toHAProxy() float64 { return o.p99[On] / o.p99[HAProxy] }

const csvHead = "busy,workers,service,freezes,replicas,callers,off p99,off p99.9,on p99,on p99.9,oracle p99,oracle p99.9,haproxy p99,haproxy p99.9,extra"

// writeCells writes the table of all cases. GitHub shows it with a search.
func writeCells(all []outcome) string {
	var b strings.Builder
	b.WriteString(csvHead + "\n")
	for i := range all {
		o := &all[i]
		fmt.Fprintf(&b, "%g,%d,%v,%v,%d,%d", o.Busy, o.Workers, o.Service, o.Freezes, o.Replicas, o.Callers)
		for way := range Ways {
			fmt.Fprintf(&b, ",%.3f,%.3f", o.p99[way], o.p999[way])
		}
		fmt.Fprintf(&b, ",%.5f\n", o.extra)
	}
	return b.String()
}

// readCells reads what writeCells wrote.
func readCells(text string) (all []outcome, err error) {
	records, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(records) < 2 || strings.Join(records[0], ",") != csvHead {
		return nil, fmt.Errorf("no table of cases: %v", err)
	}
	for _, fields := range records[1:] {
		var o outcome
		number := func(field int) float64 {
			n, bad := strconv.ParseFloat(fields[field], 64)
			if bad != nil {
				err = bad
			}
			return n
		}
		o.Busy, o.Workers, o.Replicas, o.Callers = number(0), int(number(1)), int(number(4)), int(number(5))
		for o.Service.String() != fields[2] && int(o.Service) < Services-1 {
			o.Service++
		}
		for o.Freezes.String() != fields[3] && int(o.Freezes) < FreezeKinds-1 {
			o.Freezes++
		}
		for way := range Ways {
			o.p99[way], o.p999[way] = number(6+2*way), number(7+2*way)
		}
		o.extra = number(14)
		all = append(all, o)
	}
	return all, err
}

// writePage writes the page, and beside it the folder with its plots and cells.
func writePage(file, how string, all []outcome) error {
	dir := strings.TrimSuffix(file, ".md")
	files := map[string]string{file: pageText(filepath.Base(dir), how, all), filepath.Join(dir, "cells.csv"): writeCells(all)}
	files[filepath.Join(dir, "p99.9.svg")] = overview(all, "P99.9 with hedging ÷ without", (*outcome).gain999)
	files[filepath.Join(dir, "p99.svg")] = overview(all, "P99 with hedging ÷ without", (*outcome).gain99)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// redrawPage writes the page anew from its cells and its second paragraph.
func redrawPage(file string) error {
	text, err := os.ReadFile(file)
	cells, bad := os.ReadFile(filepath.Join(strings.TrimSuffix(file, ".md"), "cells.csv"))
	if err = errors.Join(err, bad); err != nil {
		return err
	}
	paragraphs := strings.SplitN(string(text), "\n\n", 3)
	all, err := readCells(string(cells))
	if err == nil && len(paragraphs) < 3 {
		err = errors.New("not a page about the matrix: " + file)
	}
	if err != nil {
		return err
	}
	return writePage(file, paragraphs[1], all)
}

const regenerate = "go test ./proxy/sim/queues -run '^TestMatrix$' -v -timeout 0 -page ../../../lab/bench/results/matrix.md"

// pageText is the page. how says what was run.
func pageText(dir, how string, all []outcome) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Hedging in %d simulated cases\n\n%s\n\n", len(all), how)
	b.WriteString("Busy is the mean share of the workers that work, without hedges and freezes. A replica serves so many requests at once and\n" +
		"queues the others. The median service time is 1 ms. A frozen replica stands still: 50 ms every 2 s (each by itself, or all\n" +
		"together), or 5 ms every 200 ms (many short). Each caller is a sidecar with its own view. The oracle knows all service times,\n" +
		"queues and freezes in advance, and sends no hedges. HAProxy's picks: the replica with the fewest own requests.\n\n")
	summary(&b, all)
	b.WriteString("\n## Where hedging gains\n\nBlue is a gain, grey no change, orange and red harm.\n\n")
	fmt.Fprintf(&b, "![P99.9 with hedging over that without, in each case](%s/p99.9.svg)\n\n![P99, the same](%s/p99.svg)\n\n", dir, dir)
	whyFar(&b, all)
	fmt.Fprintf(&b, "\n## The cases\n\nAll are in [cells.csv](%s/cells.csv). P99 / P99.9 in ms. Workers 0: no limit.\n", dir)
	extremes(&b, "The worst beside no hedging", all, (*outcome).worst)
	extremes(&b, "The furthest from the oracle", all, (*outcome).fromBest)
	return b.String()
}

// share counts the cases for which is is true.
func share(all []outcome, is func(*outcome) bool) string {
	n := 0
	for i := range all {
		if is(&all[i]) {
			n++
		}
	}
	return fmt.Sprintf("%d (%.1f%%)", n, 100*float64(n)/float64(max(1, len(all))))
}

func middle(all []outcome, of func(*outcome) float64) float64 {
	var values []float64
	for i := range all {
		values = append(values, of(&all[i]))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func summary(b *strings.Builder, all []outcome) {
	b.WriteString("| of the cases | P99 | P99.9 |\n|---|---|---|\n")
	line := func(what string, is func(ratio float64) bool) {
		fmt.Fprintf(b, "| %s | %s | %s |\n", what,
			share(all, func(o *outcome) bool { return is(o.gain99()) }), share(all, func(o *outcome) bool { return is(o.gain999()) }))
	}
	line("on ÷ off above 1.05: harm", func(r float64) bool { return r > harm })
	line("0.95 to 1.05: the same", func(r float64) bool { return r >= .95 && r <= harm })
	line("below 0.95: a gain", func(r float64) bool { return r < .95 })
	line("below 0.6", func(r float64) bool { return r < .6 })
	line("below 0.3", func(r float64) bool { return r < .3 })
	most, worst := 0.0, 0.0
	for i := range all {
		most, worst = max(most, all[i].extra), max(worst, all[i].worst())
	}
	fmt.Fprintf(b, "\nThe worst case is %.2f of that without hedging. Extra load: median %.2f%%, at most %.2f%%.\n\n", worst,
		100*middle(all, func(o *outcome) float64 { return o.extra }), 100*most)
	fmt.Fprintf(b, "| P99 with hedging ÷ that of | median | above 1.05 | above 1.3 |\n|---|---|---|---|\n")
	for _, with := range []struct {
		name string
		of   func(*outcome) float64
	}{{"the oracle", (*outcome).fromBest}, {"HAProxy's picks", (*outcome).toHAProxy}} {
		fmt.Fprintf(b, "| %s | %.2f | %s | %s |\n", with.name, middle(all, with.of),
			share(all, func(o *outcome) bool { return with.of(o) > harm }), share(all, func(o *outcome) bool { return with.of(o) > far }))
	}
	fmt.Fprintf(b, "| without hedging ÷ the oracle | %.2f | %s | %s |\n", middle(all, offFromBest),
		share(all, func(o *outcome) bool { return offFromBest(o) > harm }), share(all, func(o *outcome) bool { return offFromBest(o) > far }))
}

// far is how much longer than the oracle's a P99 is that the page explains.
const far = 1.3

func offFromBest(o *outcome) float64 { return o.p99[Off] / o.p99[Oracle] }

// whyFar says which cases are far from the oracle, and why.
func whyFar(b *strings.Builder, all []outcome) {
	b.WriteString("## How far from the oracle\n\n" +
		"Cases whose P99 with hedging is above 1.3 times that of the oracle, by what they have:\n\n")
	isFar := func(o *outcome) bool { return o.fromBest() > far }
	for _, by := range []struct {
		name string
		of   func(*outcome) string
	}{
		{"workers", func(o *outcome) string { return workersName(o.Workers) }},
		{"busy", func(o *outcome) string { return fmt.Sprintf("%.0f%%", 100*o.Busy) }},
		{"callers", func(o *outcome) string { return fmt.Sprint(o.Callers) }},
		{"replicas", func(o *outcome) string { return fmt.Sprint(o.Replicas) }},
		{"freezes", func(o *outcome) string { return o.Freezes.String() }},
	} {
		var names []string
		for i := range all {
			if name := by.of(&all[i]); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		fmt.Fprintf(b, "* %s:", by.name)
		for i, name := range names {
			if i > 0 {
				b.WriteString(",")
			}
			some := slices.DeleteFunc(slices.Clone(all), func(o outcome) bool { return by.of(&o) != name })
			fmt.Fprintf(b, " %s: %s", name, share(some, isFar))
		}
		b.WriteString("\n")
	}
	b.WriteString(`
Three things that no proxy can know make the difference:

* **How long a queue takes.** A proxy counts requests; the oracle adds up their service times. With few workers, one long request
  delays all behind it, so the shorter of two queues is often the slower one.
* **What the other callers send at this moment.** Reports of load are a round trip old. The more callers, the more of them choose
  the same replica at once; the oracle decides for all callers with one view.
* **That a replica is about to freeze.** The oracle avoids it beforehand. A proxy learns of a freeze by silence, after some
  requests were sent there, and all of them wait. A hedge saves them only where another replica has room.

Where requests don't queue, hedging is often better than the oracle: a request that is slow by chance gets a second one.
`)
}

// extremes lists the cases with the largest ratios.
func extremes(b *strings.Builder, title string, all []outcome, ratio func(*outcome) float64) {
	some := slices.Clone(all)
	slices.SortStableFunc(some, func(x, y outcome) int {
		switch a, b := ratio(&x), ratio(&y); {
		case a > b:
			return -1
		case a < b:
			return 1
		}
		return 0
	})
	fmt.Fprintf(b, "\n### %s\n\n", title)
	b.WriteString("| busy | workers | service | freezes | replicas | callers | off | on | oracle | HAProxy's picks | on ÷ off | on ÷ oracle | extra |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for i := range some[:min(20, len(some))] {
		o := &some[i]
		fmt.Fprintf(b, "| %.0f%% | %d | %v | %v | %d | %d |", 100*o.Busy, o.Workers, o.Service, o.Freezes, o.Replicas, o.Callers)
		for _, way := range []Way{Off, On, Oracle, HAProxy} {
			fmt.Fprintf(b, " %.1f / %.1f |", o.p99[way], o.p999[way])
		}
		fmt.Fprintf(b, " %.2f / %.2f | %.2f / %.2f | %.2f%% |\n", o.gain99(), o.gain999(), o.fromBest(), o.p999[On]/o.p999[Oracle], 100*o.extra)
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func TestPage(t *testing.T) {
	var all []outcome
	for i, c := range matrix() {
		o := outcome{Cell: c, extra: .01}
		for way := range Ways {
			o.p99[way], o.p999[way] = 10, 20
		}
		if i == 1000 {
			o.p999[On] = 30 // harm
		}
		if i >= 2000 {
			o.p99[On] = 5
			o.p99[Oracle] = 2
		}
		all = append(all, o)
	}
	file := filepath.Join(t.TempDir(), "m.md")
	if err := writePage(file, "how", all); err != nil {
		t.Fatal(err)
	}
	text := must.ReadFile(t, file)
	for _, want := range []string{
		"# Hedging in 3456 simulated cases\n\nhow\n", "| on ÷ off above 1.05: harm | 0 (0.0%) | 1 (0.0%) |\n",
		"| below 0.6 | 1456 (42.1%) | 0 (0.0%) |\n", "| the oracle | 1.00 | 1456 (42.1%) | 1456 (42.1%) |\n",
		"The worst case is 1.50 of that without hedging.", "](m/p99.9.svg)", "(m/cells.csv)",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for name, want := range map[string]string{"p99.9.svg": "more: harm (1)", "p99.svg": "at most 0.6 (1456)"} {
		if svg, err := os.ReadFile(filepath.Join(strings.TrimSuffix(file, ".md"), name)); err != nil || !strings.Contains(string(svg), want) {
			t.Errorf("%s lacks %q: %v", name, want, err)
		}
	}
	if again, err := readCells(writeCells(all)); err != nil || !slices.Equal(again, all) {
		t.Errorf("read other cells than were written: %v", err)
	}
	if err := redrawPage(file); err != nil {
		t.Error(err)
	} else if again, err := os.ReadFile(file); err != nil || string(again) != string(text) {
		t.Errorf("drawn again the page is another one: %v", err)
	}
	for _, bad := range []string{"", csvHead + "\n", csvHead + "\n.3,1,exponential,none,3,1,x,1,1,1,1,1,1,1,1\n"} {
		if _, err := readCells(bad); err == nil {
			t.Errorf("%q was taken for cells", bad)
		}
	}
}
