package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ScaleRows are the direct way, one sidecar and two, with 1, 2, 4 and so on up to most processors for each sidecar, for the
// replica and for the load.
func ScaleRows(most int) (rows []Row) {
	loops := func(c, p *sidecar) { c.AllLoops, p.AllLoops = true, true }
	one := []hop{sidecar{In: "http", Out: "http", AllLoops: true}.hop()}
	for _, kind := range scaleKinds {
		for _, n := range coreCounts(most) {
			row := Row{Name: scaleRow(kind, n), cores: n, script: "post.lua"}
			switch kind {
			case "remora-1":
				row.chain = one
			case "remora-2":
				row.chain = mesh(loops)
			}
			rows = append(rows, row)
		}
	}
	return rows
}

var scaleKinds = []string{"direct", "remora-1", "remora-2"}

func scaleRow(kind string, cores int) string { return fmt.Sprintf("%s-on-%d", kind, cores) }

// coreCounts returns 1, 2, 4 and so on, and most.
func coreCounts(most int) (counts []int) {
	for n := 1; n < most; n *= 2 {
		counts = append(counts, n)
	}
	return append(counts, most)
}

// ScaleLoad is a closed loop of connections for each processor of a sidecar.
func ScaleLoad(connections int, d time.Duration) Load {
	name := fmt.Sprintf("closed loop, %d connections for each core", connections)
	return Load{Name: name, period: closedPeriod, send: func(ctx context.Context, s *Stack) (*Result, error) {
		return calls{}.wrk(ctx, s, connections*s.row.cores, d)
	}}
}

// cores are the processors of the parts of a row.
type cores struct {
	sidecars      [][]int // in the order of the chain
	replica, load []int
	shared        string // who shares processors; "" means nobody
}

// divide gives n of all processors to each part of a row. Sidecars get processors of their own before the rest does.
func divide(all []int, sidecars, n int) (c cores) {
	for i := range sidecars {
		var own []int
		for j := range min(n, len(all)) {
			own = append(own, all[(i*n+j)%len(all)])
		}
		c.sidecars = append(c.sidecars, own)
	}
	rest := all[min(sidecars*n, len(all)):]
	switch {
	case len(rest) == 0:
		c.load, c.replica, c.shared = all, all, "ALL SHARE"
	case len(rest) < 2*n:
		c.load, c.replica, c.shared = rest, rest, "load and replica share"
	default:
		c.load, c.replica = rest[:n], rest[n:2*n]
	}
	return c
}

// String says who has which processors.
func (c cores) String() string {
	var parts []string
	for i, s := range c.sidecars {
		parts = append(parts, fmt.Sprintf("sidecar %d on %s", i+1, list(s)))
	}
	text := strings.Join(append(parts, "replica on "+list(c.replica), "load on "+list(c.load)), ", ")
	if c.shared != "" {
		text += ": " + c.shared
	}
	return text
}

// list formats processors as taskset(1) reads them.
func list(cpus []int) string {
	var text []string
	for _, c := range cpus {
		text = append(text, strconv.Itoa(c))
	}
	return strings.Join(text, ",")
}

var allowed = regexp.MustCompile(`(?m)^Cpus_allowed_list:\s*(\S+)$`)

// processors returns those that this process may use.
func processors() ([]int, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil, fmt.Errorf("processors of this process: %w", err)
	}
	m := allowed.FindSubmatch(status)
	if m == nil {
		return nil, errors.New("the kernel does not say which processors this process may use")
	}
	return parseList(string(m[1]))
}

// parseList reads a list of processors, such as 0-3,8.
func parseList(text string) (all []int, err error) {
	for item := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(item, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, errTo := strconv.Atoi(last)
		if err = errors.Join(err, errTo); err != nil {
			return nil, fmt.Errorf("list of processors %q: %w", text, err)
		}
		for i := from; i <= to; i++ {
			all = append(all, i)
		}
	}
	return all, nil
}

// pin returns the command that runs a program on some processors; on all without a list.
func (t Tools) pin(cpus []int, path string, args []string) (string, []string) {
	if len(cpus) == 0 {
		return path, args
	}
	return t[Taskset], slices.Concat([]string{"-c", list(cpus), path}, args)
}

// divided returns the processors of the parts of the row; none if the row says nothing about them.
func (r Row) divided() (c cores, err error) {
	if r.cores == 0 {
		return cores{sidecars: make([][]int, len(r.chain))}, nil
	}
	all, err := processors()
	if err != nil {
		return c, err
	}
	return divide(all, len(r.chain), r.cores), nil
}

// scaleTable has the growth of each kind of row with the number of processors.
func (r *Report) scaleTable(load string) [][]string {
	table := [][]string{{"", "requests/s, times those of 1 core", "for each core", "CPU per request, times that of 1 core", "processors"}}
	ratio := column{format: "%.2f", scale: 1, ranged: true}
	for _, name := range r.Rows {
		kind, count, _ := strings.Cut(name, "-on-")
		n, err := strconv.Atoi(count)
		if err != nil {
			continue
		}
		one := scaleRow(kind, 1)
		rates := r.Samples.Ratios(name, one, load, Rate)
		table = append(table, []string{
			name, ratio.cell(rates), ratio.cell(parts(rates, float64(n))), ratio.cell(r.Samples.Ratios(name, one, load, CPU)), r.Cores[name],
		})
	}
	return table
}
