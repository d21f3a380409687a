package bench

import (
	"slices"
	"time"

	"github.com/remora-proxy/remora/lab/load"
)

// Figure names what is measured; it is the key in JSON.
type Figure string

// Figures of a load. CPU is that of all proxies of a row together.
const (
	CPU         Figure = "cpu_us"        // µs per request
	User        Figure = "user_us"       // the part of CPU outside the kernel: sampled in ticks
	System      Figure = "system_us"     // the part within
	First       Figure = "first_us"      // the part of CPU of the proxy that the load calls, if there are more
	Rate        Figure = "rate"          // requests per second
	P50         Figure = "p50_us"        // latency
	P95         Figure = "p95_us"        //
	P99         Figure = "p99_us"        //
	P999        Figure = "p999_us"       //
	P9999       Figure = "p9999_us"      //
	Max         Figure = "max_us"        //
	RSS         Figure = "rss_mib"       // resident memory after the load, MiB
	Collections Figure = "gc_cycles"     // of sidecars, during the load
	AddedP50    Figure = "added_p50_us"  // P50 beyond that of direct in the same round
	Stopped     Figure = "stopped_pct"   // share of the load's time in which a processor stood still, %
	Disturbed   Figure = "disturbed_pct" // share of the requests that were due in or near such a moment, %
	Extra       Figure = "extra_pct"     // requests that the replicas served beyond those sent, %
	Hedges      Figure = "hedges"        // sent
	HedgesWon   Figure = "hedges_won"    //
	Lag         Figure = "send_lag_us"   // the longest time by which the load itself was late
	RestCPU     Figure = "rest_cpu_ms"   // per second without a request, ms
	RestRSS     Figure = "rest_rss_mib"  // resident memory before any load, MiB
	OwnRSS      Figure = "own_rss_mib"   // the part beyond that of a program that has done nothing
	Connection  Figure = "idle_conn_kib" // memory of an idle connection, KiB
)

// latencies are the figures of a Latency.
var latencies = []Figure{P50, P95, P99, P999, P9999, Max}

// ofLatency reports whether the figure is made of latencies.
func (f Figure) ofLatency() bool { return f == AddedP50 || slices.Contains(latencies, f) }

// Figures are what was measured. A figure that does not apply to a row is missing.
type Figures map[Figure]float64

func (f Figures) latency(l Latency) {
	f[P50], f[P99], f[P999], f[Max] = l.P50, l.P99, l.P999, l.Max
	if l.P95 > 0 {
		f[P95], f[P9999] = l.P95, l.P9999
	}
}

// cost adds what was used for the requests.
func (f Figures) cost(u Usage, requests int64) {
	f[CPU] = float64(u.CPU) / float64(time.Microsecond) / float64(requests)
	if share, ok := u.UserShare(); ok {
		f[User], f[System] = share*f[CPU], (1-share)*f[CPU]
	}
}

func mebibytes(b int64) float64 { return float64(b) / (1 << 20) }

// Sample is one measurement of a row.
type Sample struct {
	Round    int      `json:"round"`
	Row      string   `json:"row"`
	Load     string   `json:"load"`
	Requests int64    `json:"requests"`
	Errors   int64    `json:"errors"`
	Figures  Figures  `json:"figures"`
	All      *Latency `json:"all,omitempty"` // of all requests, if Figures has only the undisturbed ones

	Curve []load.Point `json:"curve,omitempty"` // of an open loop
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

// Ratios are a figure of one row over that of another, round by round: the state of the
// machine is then about the same for both. A base of 0 or less gives no ratio. Noise can
// make such a base of an added latency.
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

// addLatency adds AddedP50 to each sample whose round has one of the row direct.
func (s Samples) addLatency() {
	for _, sample := range s {
		p50, ok := sample.Figures[P50]
		direct, found := s.at(sample.Round, "direct", sample.Load, P50)
		if ok && found && sample.Row != "direct" {
			sample.Figures[AddedP50] = p50 - direct
		}
	}
}

// restless reports whether a figure of some row can't be trusted: processors stood still for
// too much of its median round. Latencies of undisturbed requests are always trusted.
func (s Samples) restless(load string, f Figure, rows ...string) bool {
	for _, row := range rows {
		if len(s.Values(row, load, Disturbed)) > 0 && f.ofLatency() {
			continue
		}
		if m, known := median(s.Values(row, load, Stopped)); known && m > tooRestless {
			return true
		}
	}
	return false
}

// median is known if there is any value.
func median(values []float64) (m float64, known bool) {
	n := len(values)
	if n == 0 {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2, true
}
