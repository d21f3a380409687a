package report

import (
	"fmt"
	"strings"
)

// Feature is the outcome of the demo of a feature service.
type Feature struct {
	Mode    string          `json:"mode"`    // what disturbs the replicas; "" means unknown
	Rate    float64         `json:"rate"`    // calls per second
	FanOut  int             `json:"fan_out"` // calls of one user
	Seconds float64         `json:"seconds"` // of each phase, without its warm-up
	Minute  float64         `json:"minute_seconds"`
	Seed    uint64          `json:"seed"`
	Phases  []*FeaturePhase `json:"-"`
}

// FeaturePhase is what was measured of one way to reach the compute tier. Latencies are in
// milliseconds, from the intended send time of a call; an error counts as the deadline, at least.
// P50 to Slowest are of calls that were due outside the first sixth of a minute.
type FeaturePhase struct {
	Name     string `json:"-"`
	Requests int64  `json:"requests"` // calls
	Users    int64  `json:"users"`

	P50       float64  `json:"p50_ms"`
	P99       float64  `json:"p99_ms"`
	P999      float64  `json:"p999_ms"`
	Slowest   float64  `json:"slowest_p99_ms"`             // P99 of the slowest call of a user
	Slowest10 *float64 `json:"slowest10_p99_ms,omitempty"` // the same, of users with ten calls
	Errors    float64  `json:"errors_permille"`            // calls answered after the deadline or not at all
	Second0   Second0  `json:"second0"`

	ExtraLoad    float64          `json:"extra_load"`          // (requests served by replicas - Requests) / Requests
	StoreSecond0 float64          `json:"store_second0_per_s"` // requests to the store in the first sixth of a minute
	StoreLater   float64          `json:"store_per_s"`         // and outside it
	HitRate      float64          `json:"hit_rate"`            // of the replicas' local caches: batches found whole
	Hedges       int64            `json:"hedges"`
	HedgesWon    int64            `json:"hedges_won"`
	Gates        map[string]int64 `json:"gates,omitempty"` // hedges not sent, by the closed gate
	Stalls       int64            `json:"stalls"`

	CPU        float64 `json:"cpu_us_per_answer"`         // of replicas, store and sidecars, per good call
	SidecarCPU float64 `json:"sidecar_cpu_us_per_answer"` // of the sidecars alone
	Busy       float64 `json:"busy"`                      // share of the machine's CPU time that the demo used
	MaxSendLag float64 `json:"max_send_lag_ms"`           // by which the load generator was late
}

// Second0 is a phase in the first sixth of each minute, when the caches have expired.
type Second0 struct {
	Requests int64   `json:"requests"`
	P99      float64 `json:"p99_ms"`
	Errors   float64 `json:"errors_permille"`
}

// Line is p in a line.
func (p *FeaturePhase) Line() string {
	return fmt.Sprintf("%d calls, p99 %.2f ms, of users %.2f ms, errors %.2f ‰; at second 0: p99 %.2f ms, errors %.2f ‰, store %.0f/s",
		p.Requests, p.P99, p.Slowest, p.Errors, p.Second0.P99, p.Second0.Errors, p.StoreSecond0)
}

// JSON returns r as it is written to a file: phases by their names.
func (r *Feature) JSON() any {
	phases := map[string]*FeaturePhase{}
	for _, p := range r.Phases {
		phases[p.Name] = p
	}
	return struct {
		*Feature
		Phases map[string]*FeaturePhase `json:"phases"`
	}{r, phases}
}

var featureColumns = []struct {
	name string
	cell func(*FeaturePhase) string
}{
	{"p50", func(p *FeaturePhase) string { return milliseconds(&p.P50) }},
	{"p99", func(p *FeaturePhase) string { return milliseconds(&p.P99) }},
	{"p99.9", func(p *FeaturePhase) string { return milliseconds(&p.P999) }},
	{"user p99", func(p *FeaturePhase) string { return milliseconds(&p.Slowest) }},
	{"errors ‰", func(p *FeaturePhase) string { return fmt.Sprintf("%.2f", p.Errors) }},
	{"0: p99", func(p *FeaturePhase) string { return milliseconds(&p.Second0.P99) }},
	{"0: errors ‰", func(p *FeaturePhase) string { return fmt.Sprintf("%.2f", p.Second0.Errors) }},
	{"0: store/s", func(p *FeaturePhase) string { return fmt.Sprintf("%.0f", p.StoreSecond0) }},
	{"store/s", func(p *FeaturePhase) string { return fmt.Sprintf("%.0f", p.StoreLater) }},
	{"hit rate", func(p *FeaturePhase) string { return fmt.Sprintf("%.0f%%", 100*p.HitRate) }},
	{"extra load", func(p *FeaturePhase) string { return percent(p.ExtraLoad) }},
	{"CPU µs", func(p *FeaturePhase) string { return measured(p, "%.0f", p.CPU) }},
	{"busy", func(p *FeaturePhase) string { return measured(p, "%.0f%%", 100*p.Busy) }},
}

// measured is a dash unless CPU time was measured.
func measured(p *FeaturePhase, format string, v float64) string {
	if p.CPU == 0 {
		return "–"
	}
	return fmt.Sprintf(format, v)
}

// Table shows the phases below each other.
func (r *Feature) Table() string {
	table := [][]string{{""}}
	for _, c := range featureColumns {
		table[0] = append(table[0], c.name)
	}
	for _, p := range r.Phases {
		cells := []string{p.Name}
		for _, c := range featureColumns {
			cells = append(cells, c.cell(p))
		}
		table = append(table, cells)
	}
	var b strings.Builder
	mode := ""
	if r.Mode != "" {
		mode = ", mode " + r.Mode
	}
	fmt.Fprintf(&b, "%.0f calls/s, %d for each user at once, %g s a phase%s; a minute has %g s; latency in ms.\n"+
		"\"0:\" is the first sixth of each minute, after the caches have expired; p50 to user p99 (the slowest\n"+
		"call of a user) are without it. Errors came after 100 ms or not at all.\n\n%s",
		r.Rate, r.FanOut, r.Seconds, mode, r.Minute, aligned(table))
	return b.String()
}
