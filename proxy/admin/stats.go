package admin

import (
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Stats is the answer of /stats: what the dashboard and "remora top" draw. Counts
// are since the start, so that a rate is the difference of two answers over that
// of their Uptime; those of a service begin anew where a reload makes it a new one.
type Stats struct {
	Version     string            `json:"version"`
	Node        string            `json:"node"`
	Phase       string            `json:"phase"`
	Uptime      float64           `json:"uptime_seconds"`
	Connections int               `json:"connections"` // downstream
	Buffered    int64             `json:"buffered_bytes"`
	BufferedMax int64             `json:"buffered_limit_bytes"`
	Errors      map[string]uint64 `json:"errors"` // answers of the sidecar's own, by x-remora-error
	Loops       []LoopStats       `json:"loops"`

	// Bounds are the upper bounds of all Counts below but the last, which has none.
	Bounds   []float64               `json:"bounds_seconds"`
	Services map[string]ServiceStats `json:"services"`
}

// LoopStats are those of one loop.
type LoopStats struct {
	Connections int      `json:"connections"`
	Events      uint64   `json:"events"`
	Turns       []uint64 `json:"turn_counts"` // by how long they took
}

// ServiceStats are those of one service. Of very many endpoints it has the first
// by address.
type ServiceStats struct {
	ServiceState
	Known        int               `json:"endpoints_known"`
	PendingLimit int               `json:"pending_limit"`
	Outcomes     map[string]uint64 `json:"outcomes"`
	Counts       []uint64          `json:"latency_counts"`
	Latency      float64           `json:"latency_sum_seconds"`
	BytesIn      uint64            `json:"bytes_in"`
	BytesOut     uint64            `json:"bytes_out"`
	Retries      uint64            `json:"retries"`
	Hedges       HedgeStats        `json:"hedges"`
}

// HedgeStats are what became of decisions to hedge.
type HedgeStats struct {
	Sent     uint64            `json:"sent"`
	Won      uint64            `json:"won"`
	Missed   uint64            `json:"missed"` // reached no application
	InFlight int               `json:"in_flight"`
	Gates    map[string]uint64 `json:"gates"` // decisions against it, by the gate that was closed
}

func (s *Server) stats(w http.ResponseWriter, r *http.Request) {
	reports, err := s.report(r.Context())
	if err != nil {
		unavailable(w, []string{err.Error()})
		return
	}
	p, cfg := s.opt.Process, s.config()
	out := Stats{
		Version: s.opt.Version, Node: cfg.Node.ID, Phase: s.Phase().String(), Uptime: time.Since(s.began).Seconds(),
		Buffered: p.Buffered(), BufferedMax: cfg.Limits.Buffered,
		Errors: map[string]uint64{}, Services: map[string]ServiceStats{},
	}
	for i := range stats.HistogramBuckets - 1 {
		out.Bounds = append(out.Bounds, stats.HistogramBound(i).Seconds())
	}
	for i := range reports {
		loop := &reports[i].Loop
		out.Connections += reports[i].Stats.Connections
		out.Loops = append(out.Loops, LoopStats{
			Connections: loop.Connections, Events: loop.Events, Turns: loop.Turns.Counts[:],
		})
		for code, n := range reports[i].Stats.Errors {
			out.Errors[code] += n
		}
	}
	for _, svc := range merge(reports) {
		out.Services[svc.Name] = s.serviceStats(&svc)
	}
	writeCompact(w, &out)
}

func (s *Server) serviceStats(svc *stats.ServiceReport) ServiceStats {
	st := &svc.Stats
	out := ServiceStats{
		ServiceState: s.serviceState(svc), PendingLimit: s.service(svc.Name).MaxPending,
		Outcomes: map[string]uint64{}, Counts: st.Latency.Counts[:], Latency: st.Latency.Sum.Seconds(),
		BytesIn: st.BytesIn, BytesOut: st.BytesOut, Retries: st.Retries,
		Hedges: HedgeStats{
			Sent: st.Hedges, Won: st.HedgesWon, Missed: st.HedgesMissed, InFlight: svc.HedgesInFlight, Gates: gateCounts(&st.Counts),
		},
	}
	for o, n := range st.Outcomes {
		out.Outcomes[stats.Outcome(o).String()] = n
	}
	out.Known = len(out.Endpoints)
	if out.Known > maxEndpointSeries {
		out.Endpoints = out.Endpoints[:maxEndpointSeries]
	}
	return out
}

func gateCounts(c *hedge.Counts) map[string]uint64 {
	gates := map[string]uint64{}
	for g := hedge.Open + 1; int(g) < hedge.Gates; g++ {
		gates[g.String()] = c.Gates[g]
	}
	return gates
}

// Delta is what was counted from before to s: all of s where a count has fallen, for
// then the service is another of its name, which a reload has made.
func (s *ServiceStats) Delta(before *ServiceStats) ServiceStats {
	d, anew := *s, s.Latency < before.Latency
	since := func(now, was uint64) uint64 {
		anew = anew || now < was
		return now - was
	}
	d.Outcomes, d.Hedges.Gates, d.Counts = maps.Clone(s.Outcomes), maps.Clone(s.Hedges.Gates), slices.Clone(s.Counts)
	for o, n := range s.Outcomes {
		d.Outcomes[o] = since(n, before.Outcomes[o])
	}
	for g, n := range s.Hedges.Gates {
		d.Hedges.Gates[g] = since(n, before.Hedges.Gates[g])
	}
	for i := range min(len(s.Counts), len(before.Counts)) {
		d.Counts[i] = since(s.Counts[i], before.Counts[i])
	}
	d.Latency -= before.Latency
	d.BytesIn = since(s.BytesIn, before.BytesIn)
	d.BytesOut = since(s.BytesOut, before.BytesOut)
	d.Retries = since(s.Retries, before.Retries)
	d.Hedges.Sent = since(s.Hedges.Sent, before.Hedges.Sent)
	d.Hedges.Won = since(s.Hedges.Won, before.Hedges.Won)
	d.Hedges.Missed = since(s.Hedges.Missed, before.Hedges.Missed)
	if anew {
		return s.Delta(&ServiceStats{})
	}
	return d
}
