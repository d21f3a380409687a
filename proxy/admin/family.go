package admin

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// family is what /metrics has under one name.
type family struct {
	name   string // without the prefix
	kind   string // counter, gauge or histogram
	help   string
	labels []string
	bounds []bound // of a histogram, but the last, which is infinite

	index  int    // in families
	head   string // its lines on a page before those of its series
	sorted []int  // the places of labels, by their names
}

// bound is the upper bound of a bucket that is exported.
type bound struct {
	last int    // of the buckets that were counted, the last one in it
	le   string // as it stands on a page
}

// prefix is that of the name of each family.
const prefix = "remora_"

// families are all of them, in order of declaration.
var families []*family

func declare(kind, name, help string, labels []string) *family {
	f := &family{
		name: name, kind: kind, help: help, labels: labels, index: len(families),
		head: "# HELP " + prefix + name + " " + help + "\n# TYPE " + prefix + name + " " + kind + "\n",
	}
	for i := range labels {
		f.sorted = append(f.sorted, i)
	}
	slices.SortFunc(f.sorted, func(i, j int) int { return strings.Compare(labels[i], labels[j]) })
	families = append(families, f)
	return f
}

func counter(name, help string, labels ...string) *family {
	return declare("counter", name, help, labels)
}

func gauge(name, help string, labels ...string) *family {
	return declare("gauge", name, help, labels)
}

// timeHistogram exports a stats.Histogram. Each of the bounds is one of its.
func timeHistogram(name, help string, bounds []time.Duration, labels ...string) *family {
	f := declare("histogram", name, help, labels)
	for i := range stats.HistogramBuckets - 1 {
		if at := stats.HistogramBound(i); slices.Contains(bounds, at) {
			f.bounds = append(f.bounds, bound{i, strconv.FormatFloat(at.Seconds(), 'g', -1, 64)})
		}
	}
	return f
}

// sizeHistogram exports a stats.SizeHistogram.
func sizeHistogram(name, help string, labels ...string) *family {
	f := declare("histogram", name, help, labels)
	for i := range stats.SizeBuckets - 1 {
		f.bounds = append(f.bounds, bound{i, strconv.Itoa(1 << i)})
	}
	return f
}

// The buckets below are bounds of stats.Histogram, so that the counts are exact.
var (
	// requestBounds are close where services worth hedging have their tail, from
	// 1 to 100 ms, and where what a sidecar adds can be seen, below.
	requestBounds = []time.Duration{
		50 * time.Microsecond, 100 * time.Microsecond, 200 * time.Microsecond, 300 * time.Microsecond,
		500 * time.Microsecond, 700 * time.Microsecond,
		1 * time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond, 7 * time.Millisecond,
		10 * time.Millisecond, 20 * time.Millisecond, 30 * time.Millisecond, 50 * time.Millisecond, 70 * time.Millisecond,
		100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
		1 * time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 60 * time.Second,
	}

	// attemptBounds are fewer: there are many endpoints.
	attemptBounds = []time.Duration{
		200 * time.Microsecond, 500 * time.Microsecond,
		1 * time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond,
		50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
		1 * time.Second, 5 * time.Second,
	}

	// turnBounds reach from a turn of one event to a loop that was kept away.
	turnBounds = []time.Duration{
		10 * time.Microsecond, 20 * time.Microsecond, 50 * time.Microsecond,
		100 * time.Microsecond, 200 * time.Microsecond, 500 * time.Microsecond,
		1 * time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond,
		50 * time.Millisecond, 100 * time.Millisecond,
	}
)
