package admin

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

const (
	// historyInterval is how much time a point of the history covers.
	historyInterval = 5 * time.Second

	// historyPoints is how many points are kept: ten minutes.
	historyPoints = 120

	// historyServices bounds the services that have a history of their own, the first ones by
	// name. With all of them the history takes 64 × (120 × 28 B + 1.5 KiB), about 300 KiB.
	historyServices = 64

	// allServices is the name of the history of all services together.
	allServices = ""
)

// noPoint is the value of a point at which nothing is known.
const noPoint = -1

// History is the response of /history: the last ten minutes of a service, or of all services
// with the requests that had none. Each list has one number for each point. -1 means that
// nothing is known: the service did not exist, or there was no response to measure.
type History struct {
	At []float64 `json:"at"` // uptime_seconds at the end of each point
	Series
}

// Series are the points of one service.
type Series struct {
	Requests []float32 `json:"requests"` // each second
	Failed   []float32 `json:"failed"`   // of these
	P50      []float32 `json:"p50"`      // in seconds
	P99      []float32 `json:"p99"`
	P999     []float32 `json:"p999"`
	Sent     []float32 `json:"hedges_sent"` // each second, without those that missed
	Won      []float32 `json:"hedges_won"`
}

// lists returns the lists in a fixed order.
func (s *Series) lists() [7]*[]float32 {
	return [...]*[]float32{&s.Requests, &s.Failed, &s.P50, &s.P99, &s.P999, &s.Sent, &s.Won}
}

// history keeps the last points. Its methods may be called from any goroutine.
type history struct {
	mu       sync.Mutex
	at       []float64
	series   map[string]*Series
	last     map[string]stats.ServiceStats // at the last point, of the services that had counted anything
	unrouted uint64                        // at the last point
	turns    uint64                        // of all loops before the last reports; 0 if unknown; record's own
}

// record adds a point of s every historyInterval, until ctx ends.
func (h *history) record(ctx context.Context, s *Server) {
	ticks := time.NewTicker(historyInterval)
	defer ticks.Stop()
	for {
		s.opt.Panics.Do(func() { h.addPoint(ctx, s) })
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
	}
}

// addPoint adds what s did since the last point. If a loop does not respond, there is none,
// and the next one covers more time. If no loop had a turn, it did nothing, and nobody asks the loops.
func (h *history) addPoint(ctx context.Context, s *Server) {
	turns, known := turnsOf(s.opt.Process.Workers())
	if known && turns == h.turns && h.addQuiet(time.Since(s.began).Seconds()) {
		return
	}
	reports, err := glance(ctx, s, func(w *proxy.Worker) stats.WorkerReport { return w.Report(stats.Totals) })
	if err != nil || slices.ContainsFunc(reports, func(r stats.WorkerReport) bool { return r.Generation != reports[0].Generation }) {
		return
	}
	unrouted := uint64(0)
	for i := range reports {
		for _, n := range reports[i].Stats.Unrouted {
			unrouted += n
		}
	}
	h.add(time.Since(s.began).Seconds(), merge(reports), unrouted)
	h.turns = turns
}

// turnsOf returns the number of turns of all loops. It is not known if one does not wait: then a turn may
// not be counted yet.
func turnsOf(workers []*proxy.Worker) (sum uint64, known bool) {
	for _, w := range workers {
		n, ok := w.Turns()
		if !ok {
			return 0, false
		}
		sum += n
	}
	return sum, true
}

// addQuiet adds a point at which nothing has happened. It returns false before the first point with
// series.
func (h *history) addQuiet(now float64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.series) == 0 {
		return false
	}
	h.at = append(h.at, now)
	for _, s := range h.series {
		s.append((&point{}).values(1))
	}
	h.trim()
	return true
}

// add adds a point at a time. services are sorted by name, and have the counts since the start.
func (h *history) add(now float64, services []stats.ServiceReport, unrouted uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	previous := h.last
	h.last = make(map[string]stats.ServiceStats)
	for i := range services {
		if of := &services[i].Stats; *of != (stats.ServiceStats{}) {
			h.last[services[i].Name] = *of
		}
	}
	more := unrouted - h.unrouted
	h.unrouted = unrouted
	if previous == nil {
		h.at, h.series = append(h.at, now), map[string]*Series{}
		return
	}
	seconds := now - h.at[len(h.at)-1]
	h.at = append(h.at, now)
	var all point
	known := map[string]bool{allServices: true}
	for i := range services {
		svc := &services[i]
		var p point
		p.since(&svc.Stats, previous[svc.Name])
		all.add(&p)
		if i < historyServices {
			known[svc.Name] = true
			h.seriesOf(svc.Name).append(p.values(seconds))
		}
	}
	all.requests += more
	all.failed += more
	h.seriesOf(allServices).append(all.values(seconds))
	for name := range h.series {
		if !known[name] { // a reload has removed it
			delete(h.series, name)
		}
	}
	h.trim()
}

// trim drops the points that are too many.
func (h *history) trim() {
	if drop := len(h.at) - 1 - historyPoints; drop > 0 {
		h.at = slices.Delete(h.at, 0, drop)
		for _, s := range h.series {
			for _, list := range s.lists() {
				*list = slices.Delete(*list, 0, drop)
			}
		}
	}
}

// seriesOf returns the series of a service, whose points before the one that is added are unknown
// if it is new.
func (h *history) seriesOf(name string) *Series {
	s := h.series[name]
	if s == nil {
		s = &Series{}
		for _, list := range s.lists() {
			*list = slices.Repeat([]float32{noPoint}, len(h.at)-2)
		}
		h.series[name] = s
	}
	return s
}

func (s *Series) append(values [7]float32) {
	for i, list := range s.lists() {
		*list = append(*list, values[i])
	}
}

// of returns a copy of the points of a service, or false if it has none.
func (h *history) of(name string) (History, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.series[name]
	if s == nil {
		return History{}, name == allServices // there is no point yet
	}
	out := History{At: slices.Clone(h.at[1:])} // the first is only a beginning
	for i, list := range s.lists() {
		*out.lists()[i] = slices.Clone(*list)
	}
	return out, true
}

// point is what happened between two readings.
type point struct {
	requests, failed, sent, won uint64
	latency                     stats.Histogram
}

// since sets p to the counts from was to now. Of a service that a reload has replaced all of now counts.
func (p *point) since(now *stats.ServiceStats, was stats.ServiceStats) {
	if !now.Continues(&was) {
		was = stats.ServiceStats{}
	}
	for o, n := range now.Outcomes {
		more := n - was.Outcomes[o]
		p.requests += more
		if stats.Outcome(o).Failed() {
			p.failed += more
		}
	}
	for i, n := range now.Latency.Counts {
		p.latency.Counts[i] = n - was.Latency.Counts[i]
	}
	sent, missed := now.Hedges-was.Hedges, now.HedgesMissed-was.HedgesMissed
	p.sent, p.won = sent-min(missed, sent), now.HedgesWon-was.HedgesWon
}

func (p *point) add(o *point) {
	p.requests += o.requests
	p.failed += o.failed
	p.sent += o.sent
	p.won += o.won
	p.latency.Add(&o.latency)
}

// values returns the point in the order of Series.lists.
func (p *point) values(seconds float64) [7]float32 {
	rate := func(n uint64) float32 { return float32(float64(n) / seconds) }
	return [...]float32{
		rate(p.requests), rate(p.failed), interpolated(&p.latency, 0.5), interpolated(&p.latency, 0.99), interpolated(&p.latency, 0.999),
		rate(p.sent), rate(p.won),
	}
}

// interpolated returns a quantile in seconds, interpolated within its bucket, as the dashboard does
// with the counts of /stats.
func interpolated(h *stats.Histogram, q float64) float32 {
	rank, seen := q*float64(h.Count()), 0.0
	for i, n := range h.Counts {
		if n > 0 && seen+float64(n) >= rank {
			low := time.Duration(0)
			if i > 0 {
				low = stats.HistogramBound(i - 1)
			}
			high := low // the last bucket has no bound
			if i < stats.HistogramBuckets-1 {
				high = stats.HistogramBound(i)
			}
			return float32(low.Seconds() + (high-low).Seconds()*(rank-seen)/float64(n))
		}
		seen += float64(n)
	}
	return noPoint
}

// ServeHTTP responds with the points of the service that the query names, or of all.
func (h *history) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	points, ok := h.of(r.URL.Query().Get("service"))
	if !ok {
		plain(w, http.StatusNotFound, "no history: expected no service, or one of the configuration; "+
			"of many, only the first ones by name have a history")
		return
	}
	writeJSON(w, &points, forPrograms)
}
