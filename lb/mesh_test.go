package lb_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/hedge"
)

// mesh is one consumer loop and its replicas on virtual time. It has the workload of the
// emulated replica, without network and sidecars, so that results depend only on the
// policies.
type mesh struct {
	meshConfig
	lb.Events
	rnd      *rand.Rand
	replicas map[*lb.Endpoint]*replica
	set      lb.Set
	service  hedge.Service
	route    *hedge.Route
	census   lb.SilentCount

	latencies []time.Duration // of requests, after the warm-up
	delays    []time.Duration // of their hedge timers
	sent      int             // requests after the warm-up
	hedges    int             // hedges of these requests
	victims   int             // attempts sent to a replica that was visibly frozen
	gates     [hedge.Gates]int
}

// meshConfig is the parameters of an experiment.
type meshConfig struct {
	policy   lb.Policy
	pickAny  func(m *mesh) *lb.Endpoint // instead of set.Pick
	noStall  bool                       // without stall detection
	hedge    hedge.Policy
	losers   losers
	askOnce  bool    // a closed gate is final
	rate     float64 // requests per second
	duration time.Duration
	warmUp   time.Duration // not measured
}

// losers says how the latency of a primary counts whose hedge won.
type losers uint8

const (
	censored losers = iota // as a lower bound, which is correct
	leftOut                // not at all
	cutOff                 // as if it had ended then
)

const (
	freezeFor   = 50 * time.Millisecond
	freezeEvery = 2 * time.Second
	freezeShows = 5 * time.Millisecond // longer than any normal silence
	sigma       = 0.5                  // of the lognormal service time, median 1 ms
)

// replica sometimes freezes all its requests.
type replica struct {
	freezes []time.Duration // start times
}

func newReplica(rnd *rand.Rand, until time.Duration) *replica {
	r := &replica{}
	for at := time.Duration(0); at < until; at += freezeFor {
		at += time.Duration(rnd.ExpFloat64() * float64(freezeEvery))
		r.freezes = append(r.freezes, at)
	}
	return r
}

// finish returns when work that begins at start is done.
func (r *replica) finish(start, work time.Duration) time.Duration {
	i, _ := slices.BinarySearch(r.freezes, start-freezeFor+1)
	end := start
	for ; i < len(r.freezes) && r.freezes[i] < end+work; i++ {
		work -= max(0, r.freezes[i]-end)
		end = r.freezes[i] + freezeFor
	}
	return end + work
}

// frozenFor returns how long the replica has been frozen; 0 means it is not.
func (r *replica) frozenFor(at time.Duration) time.Duration {
	i, _ := slices.BinarySearch(r.freezes, at+1)
	if i == 0 || at-r.freezes[i-1] >= freezeFor {
		return 0
	}
	return at - r.freezes[i-1]
}

// run runs the whole experiment.
func run(c meshConfig, seed uint64) *mesh {
	m := &mesh{
		meshConfig: c,
		rnd:        rand.New(rand.NewPCG(seed, 1)),
		replicas:   map[*lb.Endpoint]*replica{},
		service:    hedge.NewService(1),
		route:      hedge.NewRoute(c.hedge, 1),
	}
	m.set.Policy = c.policy
	added, _ := m.set.Update([]lb.Target{{Addr: "a"}, {Addr: "b"}, {Addr: "c"}})
	for _, e := range added {
		m.replicas[e] = newReplica(m.rnd, c.duration+time.Second)
	}
	m.After(0, m.arrive)
	for m.Len() > 0 {
		m.Next()
	}
	return m
}

// request is one request: a primary and at most hedge.Max hedges.
type request struct {
	m        *mesh
	start    time.Duration
	tried    []*lb.Endpoint
	done     bool
	paid     bool // see hedge.Delays.DrawPaid
	measured bool
}

func (m *mesh) arrive() {
	if m.Now >= m.duration {
		return
	}
	m.After(time.Duration(m.rnd.ExpFloat64()/m.rate*float64(time.Second)), m.arrive)

	delay := m.route.Delays.Of(m.Now, 0)
	if !m.noStall {
		m.set.Stall = lb.Stall{After: m.route.Latencies.Primaries.StallAfter(m.Now, &m.hedge), Probe: delay}
	}
	r := &request{m: m, start: m.Now, paid: m.route.Delays.DrawPaid(m.Now, 0), measured: m.Now >= m.warmUp}
	if r.measured {
		m.sent++
		m.delays = append(m.delays, delay)
	}
	m.service.Primary(m.Now, m.route)
	var e *lb.Endpoint
	if m.pickAny != nil {
		e = m.pickAny(m)
	} else {
		e = m.set.Pick(lb.Query{Now: m.Now, Rand: m.rnd})
	}
	r.attempt(e, false)
	if m.hedge.Mode == hedge.On {
		m.After(delay, r.late)
	}
}

// late handles the hedge timer.
func (r *request) late() {
	m := r.m
	if r.done {
		return
	}
	silent := m.route.Delays.SilentAfter(m.Now)
	q := hedge.Question{Paid: r.paid, Idempotent: true, Left: math.MaxInt64, Endpoints: m.set.Len(), Stuck: r.stuck(silent)}
	q.Active, q.Silent = m.census.Count(&m.set, m.Now, silent)
	e := m.set.PickHedge(lb.Query{Now: m.Now, Rand: m.rnd, Tried: r.tried}, q.Stuck)
	if e != nil {
		q.Untried = 1
	}
	gate := m.service.Decide(m.Now, m.route, &q)
	if r.measured {
		m.gates[gate]++
	}
	switch gate {
	case hedge.Open:
		if r.measured {
			m.hedges++
		}
		r.attempt(e, true)
	case hedge.Budget:
		r.paid = false
	}
	if len(r.tried) <= m.hedge.Max && (gate == hedge.Open || !m.askOnce && gate.Transient()) {
		m.After(m.route.Delays.Of(m.Now, 0), r.late)
	}
}

// stuck reports whether all endpoints with the request have been silent for this time.
func (r *request) stuck(silent time.Duration) bool {
	return !slices.ContainsFunc(r.tried, func(e *lb.Endpoint) bool { return !e.Stalled(r.m.Now, silent) })
}

func (r *request) attempt(e *lb.Endpoint, isHedge bool) {
	m := r.m
	r.tried = append(r.tried, e)
	if r.measured && m.replicas[e].frozenFor(m.Now) > freezeShows {
		m.victims++
	}
	found := e.Start(m.Now)
	start := m.Now
	work := time.Duration(math.Exp(m.rnd.NormFloat64()*sigma) * float64(time.Millisecond))
	m.After(m.replicas[e].finish(start, work)-start, func() {
		e.Finish(m.Now, m.Now-start)
		e.Learn(m.Now, m.Now-start, found)
		if isHedge {
			m.service.Done()
		}
		if r.done {
			return // a loser, whose response is discarded
		}
		r.done = true
		if isHedge {
			m.route.Counts.HedgesWon++
		}
		if r.measured {
			m.latencies = append(m.latencies, m.Now-r.start)
		}
		switch {
		case !isHedge:
			m.route.Latencies.Primaries.Observe(m.Now, m.Now-start)
		case m.losers == censored:
			m.route.Latencies.Primaries.Censor(m.Now)
		case m.losers == cutOff:
			m.route.Latencies.Primaries.Observe(m.Now, m.Now-r.start)
		}
	})
}

// result is the result of several seeds.
type result struct {
	sorted  []time.Duration
	delay   time.Duration // mean
	extra   float64       // hedges per request
	victims int
	gates   [hedge.Gates]int
}

func runSeeds(c meshConfig, seeds int) result {
	var r result
	var sent, hedges int
	var delays time.Duration
	for seed := range seeds {
		m := run(c, uint64(seed))
		r.sorted = append(r.sorted, m.latencies...)
		sent += m.sent
		hedges += m.hedges
		r.victims += m.victims
		for _, d := range m.delays {
			delays += d
		}
		for g, n := range m.gates {
			r.gates[g] += n
		}
	}
	slices.Sort(r.sorted)
	r.delay = delays / time.Duration(sent)
	r.extra = float64(hedges) / float64(sent)
	return r
}

func (r *result) quantile(q float64) time.Duration {
	return r.sorted[int(math.Ceil(q*float64(len(r.sorted))))-1]
}

func (r *result) String() string {
	ms := func(d time.Duration) string {
		return strconv.FormatFloat(float64(d)/1e6, 'f', 2, 64) + " "
	}
	return "p50 " + ms(r.quantile(.5)) + "p95 " + ms(r.quantile(.95)) + "p99 " + ms(r.quantile(.99)) +
		"p99.9 " + ms(r.quantile(.999)) + "max " + ms(r.sorted[len(r.sorted)-1]) +
		"delay " + ms(r.delay) + "extra " + strconv.FormatFloat(100*r.extra, 'f', 2, 64) + "%"
}
