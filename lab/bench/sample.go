package bench

import (
	"slices"
)

// A Figure names what is measured; it is the key in JSON.
type Figure string

// Figures of a load. CPU is that of all proxies of a row together.
const (
	CPU         Figure = "cpu_us"        // µs per request
	User        Figure = "user_us"       // of these, outside the kernel: sampled in ticks
	System      Figure = "system_us"     // and within
	Rate        Figure = "rate"          // requests per second
	P50         Figure = "p50_us"        // latency
	P99         Figure = "p99_us"        //
	P999        Figure = "p999_us"       //
	Max         Figure = "max_us"        //
	RSS         Figure = "rss_mib"       // resident memory after the load, MiB
	Collections Figure = "gc_cycles"     // of sidecars, during the load
	AddedP50    Figure = "added_p50_us"  // P50 beyond that of direct in the same round
	Stopped     Figure = "stopped_pct"   // share of the load's time in which a processor stood still, %
	Disturbed   Figure = "disturbed_pct" // share of the requests that were due in or near such a moment, %
	RestCPU     Figure = "rest_cpu_ms"   // per second without a request, ms
	RestRSS     Figure = "rest_rss_mib"  // resident memory before any load, MiB
	OwnRSS      Figure = "own_rss_mib"   // of this, beyond that of the program that has done nothing
	Connection  Figure = "idle_conn_kib" // memory of an idle connection, KiB
	ConsumerCPU Figure = "consumer_us"   // of CPU, the first of two sidecars'
	ConsumerRSS Figure = "consumer_mib"  // of RSS, the first of two sidecars'
)

// latencies are the figures of a Latency.
var latencies = []Figure{P50, P99, P999, Max}

// ofLatency tells whether it is made of latencies.
func (f Figure) ofLatency() bool { return f == AddedP50 || slices.Contains(latencies, f) }

// Figures are what was measured; what does not apply to a row is not there.
type Figures map[Figure]float64

func (f Figures) latency(l Latency) { f[P50], f[P99], f[P999], f[Max] = l.P50, l.P99, l.P999, l.Max }

// A Sample is one measurement of a row.
type Sample struct {
	Round    int     `json:"round"`
	Row      string  `json:"row"`
	Load     string  `json:"load"`
	Requests int64   `json:"requests"`
	Errors   int64   `json:"errors"` // also of the measurements that this one is the best of
	Figures  Figures `json:"figures"`

	Repeats int      `json:"repeats,omitempty"` // measurements beside this one, which were more disturbed
	All     *Latency `json:"all,omitempty"`     // where Figures has that of undisturbed requests: of all
}

// Samples are the measurements of a run.
type Samples []Sample

// Values are a figure of a row under a load, of all rounds that have it.
func (s Samples) Values(row, load string, f Figure) (values []float64) {
	for _, sample := range s {
		if v, ok := sample.Figures[f]; ok && sample.Row == row && sample.Load == load {
			values = append(values, v)
		}
	}
	return values
}

// Ratios are a figure of one row over that of another, round by round: the machine's
// mood is then about the same for both. A base that is not above 0, as noise can make
// an added latency, has none.
func (s Samples) Ratios(row, base, load string, f Figure) (ratios []float64) {
	for _, sample := range s {
		v, ok := sample.Figures[f]
		if !ok || sample.Row != row || sample.Load != load {
			continue
		}
		if b, ok := s.at(sample.Round, base, load, f); ok && b > 0 {
			ratios = append(ratios, v/b)
		}
	}
	return ratios
}

// at is a figure of one round.
func (s Samples) at(round int, row, load string, f Figure) (v float64, ok bool) {
	i := slices.IndexFunc(s, func(o Sample) bool { return o.Round == round && o.Row == row && o.Load == load })
	if i < 0 {
		return 0, false
	}
	v, ok = s[i].Figures[f]
	return v, ok
}

// addLatency gives each sample of a round its P50 beyond that of the direct way.
func (s Samples) addLatency() {
	for _, sample := range s {
		p50, ok := sample.Figures[P50]
		direct, found := s.at(sample.Round, "direct", sample.Load, P50)
		if ok && found && sample.Row != "direct" {
			sample.Figures[AddedP50] = p50 - direct
		}
	}
}

// median is that of values, of which there is at least one.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
