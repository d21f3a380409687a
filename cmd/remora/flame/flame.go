// Package flame draws profiles as flame graphs: one SVG that any browser opens, without a script.
//
// Each block is a function, and below it are the functions that it called. Its width is its
// share of the samples.
package flame

import (
	"cmp"
	"slices"

	"github.com/google/pprof/profile"
)

// Graph has the samples of a profile by their stacks.
type Graph struct {
	root frame
	unit string
}

// frame is a function within the calls that led to it.
type frame struct {
	name  string
	value int64 // its own and that of its calls
	calls map[string]*frame
}

// New returns the graph of one of the values of p's samples.
func New(p *profile.Profile, value int) *Graph {
	g := &Graph{unit: p.SampleType[value].Unit}
	for _, s := range p.Sample {
		v := s.Value[value]
		if v <= 0 {
			continue
		}
		g.root.value += v
		at := &g.root
		for _, l := range slices.Backward(s.Location) { // the innermost is the first
			for _, line := range slices.Backward(l.Line) { // of several all but the last are inlined
				at = at.call(line.Function)
				at.value += v
			}
		}
	}
	return g
}

// call returns the frame of a call of f.
func (at *frame) call(f *profile.Function) *frame {
	name := "unknown"
	if f != nil {
		name = f.Name
	}
	next := at.calls[name]
	if next == nil {
		if at.calls == nil {
			at.calls = make(map[string]*frame)
		}
		next = &frame{name: name}
		at.calls[name] = next
	}
	return next
}

// own returns the value of the function without its calls.
func (at *frame) own() int64 {
	v := at.value
	for _, c := range at.calls {
		v -= c.value
	}
	return v
}

// split returns the calls with at least the value least, the largest first, and how many others
// there are with which value.
func (at *frame) split(least int64) (large []*frame, others int, value int64) {
	for _, c := range at.calls {
		if c.value >= least {
			large = append(large, c)
			continue
		}
		others++
		value += c.value
	}
	slices.SortFunc(large, func(a, b *frame) int { return cmp.Or(cmp.Compare(b.value, a.value), cmp.Compare(a.name, b.name)) })
	return large, others, value
}

// owners adds to sums what each owner's functions took without their calls.
func (at *frame) owners(sums *[nobody]int64) {
	if at.name != "" { // not the root
		sums[ownerOf(at.name)] += at.own()
	}
	for _, c := range at.calls {
		c.owners(sums)
	}
}

// Total returns the sum of all samples. 0 means that there was none.
func (g *Graph) Total() int64 { return g.root.value }

// Amount returns a value of the graph with its unit.
func (g *Graph) Amount(value int64) string {
	switch g.unit {
	case "nanoseconds":
		return scaled(value, 1000, "ns", "µs", "ms", "s")
	case "bytes":
		return scaled(value, 1024, "B", "KiB", "MiB", "GiB")
	}
	return scaled(value, 1000, g.unit)
}
