// Package report shows what a run of the demo measured: as a table, as a plot in
// the terminal, as JSON, and as one self-contained HTML page.
package report

import (
	"encoding/json"
	"io"
)

// A Point of a latency curve: Quantile of the requests took MS milliseconds or
// less.
type Point struct {
	Quantile float64 `json:"quantile"` // in [0, 1]
	MS       float64 `json:"ms"`
}

// A Phase is what was measured of one way to reach the replicas. Latencies are
// in milliseconds, counted from the moment a request was meant to be sent.
type Phase struct {
	Requests int64   `json:"requests"`
	Errors   int64   `json:"errors"`
	P50      float64 `json:"p50_ms"`
	P90      float64 `json:"p90_ms"`
	P99      float64 `json:"p99_ms"`
	P999     float64 `json:"p999_ms"`
	Max      float64 `json:"max_ms"`

	Hedges    int64 `json:"hedges"`
	HedgesWon int64 `json:"hedges_won"`
	// ExtraLoad is (calls the replicas served - requests) / requests.
	ExtraLoad float64 `json:"extra_load"`

	// Gates counts the hedges that were not sent, by the gate that stopped them.
	Gates  map[string]int64 `json:"gates,omitempty"`
	Stalls int64            `json:"stalls"` // freezes of all replicas in the phase
	// MaxSendLag is by how much the generator itself was late at worst.
	MaxSendLag float64 `json:"max_send_lag_ms"`
	Curve      []Point `json:"curve,omitempty"`

	// Seen is nil without sidecars.
	Seen *Seen `json:"seen,omitempty"`
	// Forecasts are what shadow mode said during the phase.
	Forecasts []Forecast `json:"forecasts,omitempty"`
}

// Seen is the latency as the consumer's sidecar measured it, from the complete request
// to the complete answer, to within a few per cent. Nil is a quantile that it can't
// tell.
type Seen struct {
	P99  *float64 `json:"p99_ms"`
	P999 *float64 `json:"p999_ms"`
}

// A Forecast is what hedging would do with one delay, as shadow mode has it. Nil is
// a quantile that it can't tell.
type Forecast struct {
	DelayMS   float64  `json:"delay_ms"`
	Current   bool     `json:"current"` // the delay that is in force
	P99       *float64 `json:"p99_ms"`
	P999      *float64 `json:"p999_ms"`
	ExtraLoad float64  `json:"extra_load"`
}

// A Report is the outcome of a whole demo. A phase that was not run is nil.
type Report struct {
	Mode    string  `json:"mode"`
	Rate    float64 `json:"rate"`    // requests per second
	Seconds float64 `json:"seconds"` // of each phase, without its warm-up
	Seed    uint64  `json:"seed"`

	Direct *Phase `json:"direct"`
	Off    *Phase `json:"off"`
	On     *Phase `json:"on"`
}

// A column is a phase with what the reader calls it.
type column struct {
	key, title string
	mark       rune   // in terminal plots
	colour     string // in HTML
	phase      *Phase
}

// columns are the phases that were run, in the order they were.
func (r *Report) columns() []column {
	all := []column{
		{"direct", "direct", '·', "#8a8f98", r.Direct},
		{"off", "hedging off", 'o', "#c2571a", r.Off},
		{"on", "hedging on", '#', "#1769aa", r.On},
	}
	var run []column
	for _, c := range all {
		if c.phase != nil {
			run = append(run, c)
		}
	}
	return run
}

// JSON writes r to w, indented.
func (r *Report) JSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}
