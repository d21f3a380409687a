package admin

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// family is a metric of /metrics with all its series.
type family struct {
	name   string // without the prefix
	kind   string // counter, gauge or histogram
	help   string
	labels []string
	bounds []bound // of a histogram, without the last one, which is infinite

	index  int    // in families
	head   string // the HELP and TYPE lines
	sorted []int  // the indexes of labels in the order of their names
}

// bound is the upper bound of a bucket that is exported.
type bound struct {
	last int    // index of the last counted bucket that is part of it
	le   string // value of the label le
}

// prefix begins the name of each family.
const prefix = "remora_"

// families has all families in order of declaration.
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

// timeHistogram declares a family for a stats.Histogram. Each of the bounds must be one
// of the Histogram's.
func timeHistogram(name, help string, bounds []time.Duration, labels ...string) *family {
	f := declare("histogram", name, help, labels)
	for i := range stats.HistogramBuckets - 1 {
		if at := stats.HistogramBound(i); slices.Contains(bounds, at) {
			f.bounds = append(f.bounds, bound{i, strconv.FormatFloat(at.Seconds(), 'g', -1, 64)})
		}
	}
	return f
}

// sizeHistogram declares a family for a stats.SizeHistogram.
func sizeHistogram(name, help string, labels ...string) *family {
	f := declare("histogram", name, help, labels)
	for i := range stats.SizeBuckets - 1 {
		f.bounds = append(f.bounds, bound{i, strconv.Itoa(1 << i)})
	}
	return f
}

// The buckets below are bounds of stats.Histogram, so that the counts are exact.
var (
	// requestBounds are dense from 1 to 100 ms, where services that gain by hedging have
	// their tail, and below that, where the time of the sidecar itself shows.
	requestBounds = []time.Duration{
		50 * time.Microsecond, 100 * time.Microsecond, 200 * time.Microsecond, 300 * time.Microsecond,
		500 * time.Microsecond, 700 * time.Microsecond,
		1 * time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond, 7 * time.Millisecond,
		10 * time.Millisecond, 20 * time.Millisecond, 30 * time.Millisecond, 50 * time.Millisecond, 70 * time.Millisecond,
		100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
		1 * time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 60 * time.Second,
	}

	// attemptBounds are fewer, since there are many endpoints.
	attemptBounds = []time.Duration{
		200 * time.Microsecond, 500 * time.Microsecond,
		1 * time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond,
		50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
		1 * time.Second, 5 * time.Second,
	}

	// turnBounds reach from a turn of one event to a loop that was not scheduled.
	turnBounds = []time.Duration{
		10 * time.Microsecond, 20 * time.Microsecond, 50 * time.Microsecond,
		100 * time.Microsecond, 200 * time.Microsecond, 500 * time.Microsecond,
		1 * time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond,
		50 * time.Millisecond, 100 * time.Millisecond,
	}
)
