package admin

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Stats is the response of /stats, which the dashboard and "remora top" show. Counts are
// since the start: a rate is the difference of two responses divided by the difference of
// their Uptime. The counts of a service start again at 0 if a reload replaces it.
type Stats struct {
	Version     string                     `json:"version"`
	Engine      string                     `json:"engine"`
	Node        string                     `json:"node"`
	Phase       string                     `json:"phase"`
	Uptime      float64                    `json:"uptime_seconds"`
	Connections int                        `json:"connections"` // downstream
	Buffered    int64                      `json:"buffered_bytes"`
	BufferedMax int64                      `json:"buffered_limit_bytes"`
	Errors      map[string]uint64          `json:"errors"`    // responses made by the sidecar itself, by x-remora-error
	Listeners   map[string]*ListenerErrors `json:"listeners"` // the same by listener; one without any is missing
	Registry    *RegistryStats             `json:"registry,omitempty"`
	Sources     []SourceStats              `json:"sources"`
	Config      ConfigState                `json:"config"`
	Try         string                     `json:"try,omitempty"` // a first request, while there was none
	Loops       []LoopStats                `json:"loops"`

	// Bounds are the upper bounds of all Counts below. The last count has no bound.
	Bounds   []float64               `json:"bounds_seconds"`
	Services map[string]ServiceStats `json:"services"`
}

// LoopStats has the counts of one loop.
type LoopStats struct {
	Connections int      `json:"connections"`
	Events      uint64   `json:"events"`
	Turns       []uint64 `json:"turn_counts"` // by duration
}

// ServiceStats has the state and the counts of one service. If it has more than 200
// endpoints, only 200 are listed: those with the worst states, then the first by address.
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

// HedgeStats has the results of decisions to hedge.
type HedgeStats struct {
	Sent     uint64            `json:"sent"`
	Won      uint64            `json:"won"`
	Missed   uint64            `json:"missed"` // hedges that reached no application
	InFlight int               `json:"in_flight"`
	Gates    map[string]uint64 `json:"gates"`              // decisions not to hedge, by the closed gate
	Verdict  string            `json:"verdict,omitempty"`  // what hedging brings, or would bring
	Choice   string            `json:"choice,omitempty"`   // which delay was chosen, and why
	Periodic string            `json:"periodic,omitempty"` // a period in which the replicas stall together
}

func (s *Server) stats(reports []stats.WorkerReport) any {
	cfg := s.config()
	out := Stats{
		Version: s.opt.Version, Engine: s.opt.Engine, Node: cfg.Node.ID, Phase: s.Phase().String(), Uptime: time.Since(s.began).Seconds(),
		Buffered: s.buffered(reports), BufferedMax: cfg.Limits.Buffered,
		Errors: map[string]uint64{}, Services: map[string]ServiceStats{}, Config: s.configState(),
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
	}
	out.Sources = append([]SourceStats{}, s.opt.Sources()...) // never null
	out.Registry = registryOf(out.Sources)
	out.Listeners = listenerErrors(reports)
	for _, l := range out.Listeners {
		for code, n := range l.Errors {
			out.Errors[code] += n
		}
	}
	requests := out.Unrouted()
	for _, svc := range merge(reports) {
		st := s.serviceStats(&svc)
		out.Services[svc.Name] = st
		requests += st.Requests() + svc.Stats.Streams + svc.Stats.StreamsFailed
	}
	if requests == 0 {
		out.Try = firstRequest(cfg)
	}
	return &out
}

// buffered returns the bytes that the process holds, exactly unless they change between two reports.
func (s *Server) buffered(reports []stats.WorkerReport) int64 {
	n := s.opt.Process.Buffered()
	for i := range reports {
		n += reports[i].Uncounted
	}
	return max(0, n)
}

// Unrouted returns the number of requests that were refused before they had a service.
func (s *Stats) Unrouted() (n uint64) {
	for _, l := range s.Listeners {
		n += l.Unrouted
	}
	return n
}

func (s *Server) serviceStats(svc *stats.ServiceReport) ServiceStats {
	st := &svc.Stats
	out := ServiceStats{
		ServiceState: s.serviceState(svc), PendingLimit: s.service(svc.Name).MaxPending,
		Outcomes: map[string]uint64{}, Counts: st.Latency.Counts[:], Latency: st.Latency.Sum.Seconds(),
		BytesIn: st.BytesIn, BytesOut: st.BytesOut, Retries: st.Retries,
		Hedges: HedgeStats{
			Sent: st.Hedges, Won: st.HedgesWon, Missed: st.HedgesMissed, InFlight: svc.HedgesInFlight, Gates: gateCounts(&st.Counts),
			Verdict: verdict(svc), Choice: choice(svc), Periodic: stalls(svc),
		},
	}
	for o, n := range st.Outcomes {
		out.Outcomes[stats.Outcome(o).String()] = n
	}
	out.Known = len(out.Endpoints)
	if out.Known > maxEndpointSeries {
		slices.SortStableFunc(out.Endpoints, func(a, b EndpointState) int { return cmp.Compare(b.Severity(), a.Severity()) })
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

// Requests returns the number of requests that have ended.
func (s *ServiceStats) Requests() (n uint64) {
	for _, of := range s.Outcomes {
		n += of
	}
	return n
}

// Delta returns the counts from before to s. If a count has fallen, a reload has replaced
// the service, and Delta returns all of s.
func (s *ServiceStats) Delta(before *ServiceStats) ServiceStats {
	d, replaced := *s, s.Latency < before.Latency
	since := func(now, was uint64) uint64 {
		replaced = replaced || now < was
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
	if replaced {
		return s.Delta(&ServiceStats{})
	}
	return d
}

// Milliseconds is the response of /milliseconds: the counts of all loops for each
// millisecond since From. A later request with since=End returns the following ones,
// without a gap unless it is later than the loops remember.
type Milliseconds struct {
	From     int64    `json:"from"`     // the first millisecond, counted from the start of the sidecar
	End      int64    `json:"end"`      // the millisecond after the last, which is not complete yet
	Arrivals []uint32 `json:"arrivals"` // requests received completely
	Answers  []uint32 `json:"answers"`
	Bytes    []uint64 `json:"bytes"`    // of both
	Worst    []int64  `json:"worst_us"` // the longest latency of the responses, in microseconds
}

func (s *Server) milliseconds(w http.ResponseWriter, r *http.Request) {
	since := int64(0)
	if text := r.URL.Query().Get("since"); text != "" {
		var err error
		if since, err = strconv.ParseInt(text, 10, 64); err != nil || since < 0 {
			plain(w, http.StatusBadRequest, "since: expected a number of milliseconds, such as end of the previous response")
			return
		}
	}
	service, watched := r.URL.Query().Get("service"), atomic.Bool{}
	watched.Store(true)
	loops, err := gather(r.Context(), s, func(w *proxy.Worker) stats.Milliseconds {
		m, ok := w.Milliseconds(service, since)
		if !ok {
			watched.Store(false)
		}
		return m
	})
	if err == nil && !watched.Load() {
		err = errors.New("the milliseconds of 4 other services are being watched")
	}
	if err != nil {
		unavailable(w, err.Error())
		return
	}
	writeJSON(w, mergeMilliseconds(loops), forPrograms)
}

// mergeMilliseconds adds up the milliseconds that every loop has.
func mergeMilliseconds(loops []stats.Milliseconds) *Milliseconds {
	from, end := loops[0].From, loops[0].End()
	for i := range loops {
		from, end = max(from, loops[i].From), min(end, loops[i].End())
	}
	n := max(end-from, 0)
	out := &Milliseconds{
		From: from, End: from + n,
		Arrivals: make([]uint32, n), Answers: make([]uint32, n), Bytes: make([]uint64, n), Worst: make([]int64, n),
	}
	for i := range n {
		var sum stats.Millisecond
		for j := range loops {
			sum.Add(&loops[j].List[from+i-loops[j].From])
		}
		out.Arrivals[i], out.Answers[i] = sum.Arrivals, sum.Answers
		out.Bytes[i] = uint64(sum.BytesIn) + uint64(sum.BytesOut)
		out.Worst[i] = int64(sum.Worst / time.Microsecond)
	}
	return out
}
