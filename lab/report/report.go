// Package report shows what a run of the demo measured: as a table, a chart in the terminal, JSON,
// and a self-contained HTML page. It also draws the charts of the documentation.
package report

import (
	"slices"

	"github.com/remora-proxy/remora/lab/load"
)

// Phase is what was measured of one way to reach the replicas. Latencies are in
// milliseconds, from the intended send time of a request.
type Phase struct {
	Requests int64   `json:"requests"`
	Errors   int64   `json:"errors"`
	P50      float64 `json:"p50_ms"`
	P90      float64 `json:"p90_ms"`
	P99      float64 `json:"p99_ms"`
	P999     float64 `json:"p999_ms"`
	Max      float64 `json:"max_ms"`

	Hedges     int64            `json:"hedges"`
	HedgesWon  int64            `json:"hedges_won"`
	ExtraLoad  float64          `json:"extra_load"`      // (served - Requests) / Requests
	Gates      map[string]int64 `json:"gates,omitempty"` // hedges not sent, by the closed gate
	Stalls     int64            `json:"stalls"`          // freezes of all replicas in the phase
	MaxSendLag float64          `json:"max_send_lag_ms"` // by which the load generator was late
	Curve      []load.Point     `json:"curve,omitempty"`
	Seen       *Seen            `json:"seen,omitempty"`      // nil without sidecars
	Forecasts  []Forecast       `json:"forecasts,omitempty"` // of shadow mode
}

// Seen is the latency that the consumer's sidecar measured, from the complete request to the
// complete response, to within a few per cent. Nil means that a quantile is unknown.
type Seen struct {
	P99  *float64 `json:"p99_ms"`
	P999 *float64 `json:"p999_ms"`
}

// Forecast is what shadow mode expects of hedging with one delay. Nil quantiles are unknown.
type Forecast struct {
	DelayMS   float64  `json:"delay_ms"`
	Current   bool     `json:"current"` // the delay that is in force
	P99       *float64 `json:"p99_ms"`
	P999      *float64 `json:"p999_ms"`
	ExtraLoad float64  `json:"extra_load"`
}

// Report is the outcome of a whole demo. A phase that was not run is nil.
type Report struct {
	Mode    string  `json:"mode"`
	Rate    float64 `json:"rate"`    // requests per second
	Seconds float64 `json:"seconds"` // of each phase, without its warm-up
	Seed    uint64  `json:"seed"`

	Direct *Phase `json:"direct"`
	Off    *Phase `json:"off"`
	On     *Phase `json:"on"`
}

type column struct {
	title  string
	mark   rune   // in the terminal
	colour string // in HTML
	phase  *Phase
}

// columns returns the phases that were run, in their order.
func (r *Report) columns() []column {
	return slices.DeleteFunc([]column{
		{"direct", '·', "#8a8f98", r.Direct},
		{"hedging off", 'o', "#c2571a", r.Off},
		{"hedging on", '#', "#1769aa", r.On},
	}, func(c column) bool { return c.phase == nil })
}

// chart draws the latency of each phase over the quantiles. It is nil without a latency.
func (r *Report) chart() *Chart {
	var lines []Line
	for _, c := range r.columns() {
		line := Line{Title: c.title, Colour: c.colour, Mark: c.mark}
		for _, p := range c.phase.Curve {
			line.Points = append(line.Points, XY{p.Quantile, p.MS})
		}
		lines = append(lines, line)
	}
	return latencyChart(lines)
}

// Plot draws the latency of each phase over the quantiles, for a terminal.
func (r *Report) Plot(width, height int) string {
	if c := r.chart(); c != nil {
		return c.Text(width, height)
	}
	return ""
}
