package mesh

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Result is the result of a run, in plain types. Latencies and counts of requests are those
// of requests sent after the warm-up that their callers did not abandon. The counts of
// sidecars are those of the whole run.
type Result struct {
	Spec       Spec
	Violations []string // of the invariants; each names the seed
	Hash       uint64   // differs between any two runs that differ
	Virtual    time.Duration

	Requests []Request // by time of sending, without batch requests
	Batch    []Request // batch requests, likewise
	Series   []Point   // of 100 ms each, warm-up included

	Primaries, Hedges, HedgesWon, HedgesMissed uint64 // of all consumers
	Retries, RetriesPaid                       uint64
	Ejections                                  uint64
	Probes, ProbeWaits, ProbesLate             uint64            // sent; requests that waited for answers; of these, those that got too few
	Gates                                      map[string]uint64 // hedges stopped, by gate; a gate that stopped none has no entry
	Extra                                      int               // attempts that reached applications beyond the first of each request
	Reached                                    int               // requests that reached an application

	Busiest float64       // most requests that a replica served in any second, in means of all replicas
	Crowded time.Duration // longest time that a replica had more than twice the mean pending
	Served  []int         // by each replica
	Worked  time.Duration // of all applications, for requests that were not cancelled and parts of those that were
	Links   int           // connections between consumers' and providers' sidecars, in the end
}

// Request is one request as its caller saw it.
type Request struct {
	Sent, Took time.Duration
	Status     int // 0 means that the connection was closed
}

// Point is 100 ms of a run.
type Point struct {
	From     time.Duration
	Requests int // sent in it
	Failed   int // of these
	P50, P99 time.Duration
	Replicas []ReplicaPoint
}

// ReplicaPoint is one replica in 100 ms.
type ReplicaPoint struct {
	Served  int // responses sent
	Pending int // maximum
}

// Bar is one bar of a histogram.
type Bar struct {
	UpTo  time.Duration
	Count int
}

func (m *mesh) result() *Result {
	r := &Result{
		Spec: m.spec, Violations: m.journal.violations, Hash: m.w.Hash(), Virtual: m.w.Now(),
		Series: m.samples.points, Gates: map[string]uint64{}, Extra: m.journal.extra,
		Busiest: m.samples.busiest(), Crowded: m.samples.longest,
	}
	for _, p := range m.providers {
		r.Served = append(r.Served, p.app.served)
		r.Worked += p.app.worked
	}
	for _, c := range m.consumers {
		r.count(c)
	}
	perPoint := make([][]time.Duration, len(r.Series))
	for i := range m.journal.calls {
		c := &m.journal.calls[i]
		if len(c.visits) > 0 {
			r.Reached++
		}
		if c.fate == abandoned || c.fate == undecided {
			continue
		}
		req := Request{Sent: c.sent, Took: c.over - c.sent, Status: c.status}
		if c.batch {
			if c.sent >= m.spec.WarmUp {
				r.Batch = append(r.Batch, req)
			}
			continue
		}
		if at := int(c.sent / pointSpan); at < len(r.Series) {
			perPoint[at] = append(perPoint[at], req.Took)
			if req.Status != 200 {
				r.Series[at].Failed++
			}
		}
		if c.sent >= m.spec.WarmUp {
			r.Requests = append(r.Requests, req)
		}
	}
	for i, took := range perPoint {
		slices.Sort(took)
		r.Series[i].Requests, r.Series[i].P50, r.Series[i].P99 = len(took), quantile(took, .5), quantile(took, .99)
	}
	return r
}

// count adds the counts of a consumer's sidecar.
func (r *Result) count(c *consumer) {
	s := c.stats()
	r.Primaries += s.Primaries
	r.Hedges += s.Hedges
	r.HedgesWon += s.HedgesWon
	r.HedgesMissed += s.HedgesMissed
	r.Retries += s.Retries
	r.RetriesPaid += s.RetriesPaid
	r.Probes += s.Probes.Sent
	r.ProbeWaits += s.Probes.Waits
	r.ProbesLate += s.Probes.InVain
	for _, n := range s.Ejections {
		r.Ejections += n
	}
	for g, n := range s.Gates {
		if gate := hedge.Gate(g); gate != hedge.Open && n > 0 {
			r.Gates[gate.String()] += n
		}
	}
	for i, w := range c.proc.Workers() {
		c.loops[i].Do(func() {
			for _, e := range w.Report(stats.Forecasts).Services[0].Endpoints {
				r.Links += e.Connections
			}
		})
	}
}

// gateNames are the names of the gates that can stop a hedge.
func gateNames() (names []string) {
	for g := range hedge.Gates {
		if gate := hedge.Gate(g); gate != hedge.Open {
			names = append(names, gate.String())
		}
	}
	return names
}

// Between returns the requests sent at or after from and before to.
func (r *Result) Between(from, to time.Duration) []Request {
	after := func(at time.Duration) int {
		i, _ := slices.BinarySearchFunc(r.Requests, at, func(q Request, at time.Duration) int { return int(q.Sent - at) })
		return i
	}
	return r.Requests[after(from):after(to)]
}

// Latencies returns the sorted latencies of the responses with status 200.
func Latencies(requests []Request) []time.Duration {
	var took []time.Duration
	for i := range requests {
		if requests[i].Status == 200 {
			took = append(took, requests[i].Took)
		}
	}
	slices.Sort(took)
	return took
}

// quantile returns the q-quantile of sorted values, and 0 if there are none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(1, int(math.Ceil(q*float64(len(sorted)))))-1]
}

// Quantile returns the q-quantile of the latencies of responses with status 200.
func (r *Result) Quantile(q float64) time.Duration { return quantile(Latencies(r.Requests), q) }

// Histogram counts the responses with status 200 in bars. The bound of each bar is a tenth
// above the one before.
func (r *Result) Histogram() []Bar {
	counts := map[int]int{}
	for _, took := range Latencies(r.Requests) {
		counts[int(math.Ceil(math.Log(float64(max(took, 1)))/math.Log(1.1)))]++
	}
	var bars []Bar
	for _, i := range slices.Sorted(maps.Keys(counts)) {
		bars = append(bars, Bar{UpTo: time.Duration(math.Pow(1.1, float64(i))), Count: counts[i]})
	}
	return bars
}

// ExtraLoad returns the attempts that reached applications beyond the first of each
// request, divided by the number of requests.
func (r *Result) ExtraLoad() float64 { return float64(r.Extra) / float64(max(1, r.Reached)) }
