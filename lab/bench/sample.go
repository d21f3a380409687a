package bench

import (
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

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
	PerCore     Figure = "per_core"      // handshakes per second of CPU
	Cores       Figure = "vcpu"          // seconds of CPU per second, of two proxies
	FirstCores  Figure = "first_vcpu"    // the part of the proxy that the load calls
	SecondCores Figure = "second_vcpu"   // the part of the other one
	FirstRSS    Figure = "first_rss_mib" // resident memory of the proxy that the load calls, after the load, MiB
	SecondRSS   Figure = "second_rss_mib"
	PerGiB      Figure = "cpu_s_gib"     // seconds of CPU per GiB of bodies
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
	OwnRSS      Figure = "own_rss_mib"   // the part without pages of files
	Connection  Figure = "idle_conn_kib" // memory of an idle connection without pages of files, KiB
	StartTime   Figure = "start_ms"      // from the start of a proxy, ms
	ProgramSize Figure = "program_mib"   // of a sidecar
)

// latencies are the figures that a histogram has.
var latencies = []Figure{P50, P95, P99, P999, P9999, Max}

// ofLatency reports whether the figure is made of latencies.
func (f Figure) ofLatency() bool { return f == AddedP50 || slices.Contains(latencies, f) }

// Figures are what was measured. A figure that does not apply to a row is missing.
type Figures map[Figure]float64

// latencyOf converts a histogram of nanoseconds.
func latencyOf(h *hdrhistogram.Histogram) Figures {
	f := Figures{Max: microseconds(time.Duration(h.Max()))}
	for figure, percent := range map[Figure]float64{P50: 50, P95: 95, P99: 99, P999: 99.9, P9999: 99.99} {
		f[figure] = microseconds(time.Duration(h.ValueAtQuantile(percent)))
	}
	return f
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func mebibytes(b int64) float64 { return float64(b) / (1 << 20) }

// Sample is one measurement of a row.
type Sample struct {
	Round    int     `json:"round"`
	Row      string  `json:"row"`
	Load     string  `json:"load"`
	Requests int64   `json:"requests"`
	Errors   int64   `json:"errors"`
	Figures  Figures `json:"figures"`

	// All has the latencies of all requests, if Figures has those of the undisturbed ones.
	All   Figures      `json:"all,omitempty"`
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

// Ratios are a figure of one row over that of another, round by round, so that the machine's
// state is about the same for both. A base of 0 or less, an added latency in noise, gives none.
func (s Samples) Ratios(row, base, load string, f Figure) (ratios []float64) {
	for _, sample := range s {
		v, ok := sample.Figures[f]
		if !ok || sample.Row != row || sample.Load != load {
			continue
		}
		if b := s.at(sample.Round, base, load)[f]; b > 0 {
			ratios = append(ratios, v/b)
		}
	}
	return ratios
}

func (s Samples) at(round int, row, load string) Figures {
	for _, sample := range s {
		if sample.Round == round && sample.Row == row && sample.Load == load {
			return sample.Figures
		}
	}
	return nil
}

// addLatency adds AddedP50 to each sample whose round has one of the row direct.
func (s Samples) addLatency() {
	for _, sample := range s {
		p50, ok := sample.Figures[P50]
		direct, found := s.at(sample.Round, "direct", sample.Load)[P50]
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
		if median(s.Values(row, load, Stopped)) > tooRestless { // not if it is NaN
			return true
		}
	}
	return false
}

// median is NaN if there is no value.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
