package admin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/remora-proxy/remora/proxy"
)

// family is what /metrics has under one name.
type family struct {
	name   string // without the prefix
	kind   string // counter, gauge or histogram
	help   string
	labels []string
	desc   *prometheus.Desc
	value  prometheus.ValueType // not of a histogram
}

// families are all of them, in order of declaration.
var families []*family

func declare(kind, name, help string, labels []string) *family {
	f := &family{name: name, kind: kind, help: help, labels: labels}
	f.desc = prometheus.NewDesc("remora_"+name, help, labels, nil)
	families = append(families, f)
	return f
}

func counter(name, help string, labels ...string) *family {
	f := declare("counter", name, help, labels)
	f.value = prometheus.CounterValue
	return f
}

func gauge(name, help string, labels ...string) *family {
	f := declare("gauge", name, help, labels)
	f.value = prometheus.GaugeValue
	return f
}

func histogram(name, help string, labels ...string) *family {
	return declare("histogram", name, help, labels)
}

// sink is where the metrics of one scrape go.
type sink chan<- prometheus.Metric

func (to sink) put(f *family, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(f.desc, f.value, value, labels...)
}

// times puts h as a classic histogram. Each of the bounds is one of h's.
func (to sink) times(f *family, bounds []time.Duration, h *proxy.Histogram, labels ...string) {
	cumulative := make(map[float64]uint64, len(bounds))
	var seen uint64
	next := 0
	for i, n := range h.Counts {
		seen += n
		if next < len(bounds) && proxy.HistogramBound(i) == bounds[next] {
			cumulative[bounds[next].Seconds()] = seen
			next++
		}
	}
	to <- prometheus.MustNewConstHistogram(f.desc, seen, h.Sum.Seconds(), cumulative, labels...)
}

// sizes puts h as a classic histogram.
func (to sink) sizes(f *family, h *proxy.SizeHistogram, labels ...string) {
	cumulative := make(map[float64]uint64, proxy.SizeBuckets-1)
	var seen uint64
	for i, n := range h.Counts {
		seen += n
		if i < proxy.SizeBuckets-1 {
			cumulative[float64(int(1)<<i)] = seen
		}
	}
	to <- prometheus.MustNewConstHistogram(f.desc, seen, float64(h.Sum), cumulative, labels...)
}

// The buckets below are bounds of proxy.Histogram, so that the counts are exact.
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
