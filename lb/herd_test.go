package lb_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb"
)

// herd is a number of consumer loops and of replicas with a queue each. A loop sees its
// own attempts at once. It sees the load of others only in the reports that come with
// responses, after the delay of the network.
type herd struct {
	herdConfig
	lb.Events
	rnd    *rand.Rand
	sets   []lb.Set
	queues []*queue

	waits   []time.Duration // per request, from its arrival to its response
	picked  []int           // per replica
	served  []map[int]int   // per replica, by tenth of a second
	over    []time.Duration // per replica, the start of a time with more than twice the mean pending; -1 means none
	longest time.Duration   // the longest such time
}

// herdConfig is the parameters of an experiment.
type herdConfig struct {
	loops, replicas int
	policy          lb.Policy
	noReports       bool
	foreign         float64 // share of the first replica that others use

	service  time.Duration // mean; 0 means herdService
	use      float64       // utilization of the workers; 0 means herdUse
	duration time.Duration // 0 means herdDuration
	warmUp   time.Duration // of this, not measured
	workers  []int         // per replica; nil means herdWorkers each
	weights  []float64     // weights that the loops know; nil means equal
	closed   int           // number of requests always in flight, instead of arrivals at a rate
	subset   int           // number of replicas that each loop uses; 0 means all
	slow     []float64     // per replica, a factor of the service time; nil means 1
	limited  bool          // the sidecar queues requests and reports its queue
	seed     uint64

	learned func(e *lb.Endpoint, l lb.Load) // is called after a loop has learned of a response; nil means none
}

// queue is a replica with a number of workers. Requests wait if none is free.
type queue struct {
	workers int
	slow    float64
	limited bool
	busy    int
	waiting []func()
	latency time.Duration // in the application, moving average
}

func (q *queue) pending() int { return q.busy + len(q.waiting) }

// load returns the load that the sidecar reports.
func (q *queue) load() lb.Load {
	l := lb.Load{Pending: q.pending(), Latency: q.latency}
	if q.limited {
		l.Queued = len(q.waiting)
	}
	return l
}

// finished counts a request that arrived at taken and started at begun.
func (q *queue) finished(now, taken, begun time.Duration) {
	since := taken
	if q.limited {
		since = begun
	}
	if q.latency == 0 {
		q.latency = now - since
	}
	q.latency += (now - since - q.latency) / 8
}

const (
	herdWorkers  = 4
	herdUse      = 0.9 // of the workers
	herdService  = time.Millisecond
	herdNetwork  = 200 * time.Microsecond
	herdDuration = 3 * time.Second
	herdTick     = 100 * time.Millisecond
	watchUpTo    = 10
)

func runHerd(c herdConfig) *herd {
	h := newHerd(c)
	for range c.closed {
		h.After(0, h.send)
	}
	if c.foreign > 0 {
		h.After(0, h.arriveForeign)
	}
	if c.closed == 0 {
		h.After(0, h.arrive)
	}
	h.run()
	return h
}

func newHerd(c herdConfig) *herd {
	c.service = cmp.Or(c.service, herdService)
	c.use = cmp.Or(c.use, herdUse)
	c.duration = cmp.Or(c.duration, herdDuration)
	h := &herd{
		herdConfig: c,
		rnd:        rand.New(rand.NewPCG(c.seed, 7)),
		sets:       make([]lb.Set, c.loops),
		picked:     make([]int, c.replicas),
	}
	var targets []lb.Target
	for i := range c.replicas {
		target, workers := lb.Target{Addr: strconv.Itoa(i)}, herdWorkers
		if c.weights != nil {
			target.Weight = c.weights[i]
		}
		if c.workers != nil {
			workers = c.workers[i]
		}
		targets = append(targets, target)
		slow := 1.0
		if c.slow != nil {
			slow = c.slow[i]
		}
		h.queues = append(h.queues, &queue{workers: workers, slow: slow, limited: c.limited})
		h.served = append(h.served, map[int]int{})
		h.over = append(h.over, -1)
	}
	for i := range h.sets {
		h.sets[i].Policy = c.policy
		added, _ := h.sets[i].Update(lb.Subset(targets, c.subset, "loop-"+strconv.Itoa(i)))
		for _, e := range added {
			e.Ext, _ = strconv.Atoi(e.Addr)
		}
	}
	return h
}

// run runs the experiment to its end.
func (h *herd) run() {
	for h.Len() > 0 {
		h.Next()
	}
	slices.Sort(h.waits)
}

func (h *herd) exp(mean time.Duration) time.Duration {
	return time.Duration(h.rnd.ExpFloat64() * float64(mean))
}

func (h *herd) arrive() {
	if h.Now >= h.duration {
		return
	}
	workers := -h.foreign * herdWorkers
	for _, q := range h.queues {
		workers += h.use * float64(q.workers)
	}
	perSecond := workers / h.service.Seconds()
	h.After(h.exp(time.Duration(float64(time.Second)/perSecond)), h.arrive)
	h.send()
}

// send sends a request of a random loop.
func (h *herd) send() {
	set := &h.sets[h.rnd.IntN(h.loops)]
	h.sendTo(h.pick(set), h.Now)
}

func (h *herd) pick(set *lb.Set) *lb.Endpoint { return set.Pick(lb.Query{Now: h.Now, Rand: h.rnd}) }

// sendTo sends a request that has come at the time came to e.
func (h *herd) sendTo(e *lb.Endpoint, came time.Duration) {
	found := e.Start(h.Now)
	r := e.Ext.(int)
	h.picked[r]++
	start := h.Now
	h.After(herdNetwork, func() {
		h.serve(h.queues[r], func(l lb.Load) { // answered by the replica
			h.served[r][int(h.Now/herdTick)]++
			h.After(herdNetwork, func() { // seen by the loop
				e.Finish(h.Now, h.Now-start)
				e.Learn(h.Now, h.Now-start, found)
				if !h.noReports {
					e.Report(h.Now, l, e.Pending())
				}
				if h.learned != nil {
					h.learned(e, l)
				}
				if came >= h.warmUp {
					h.waits = append(h.waits, h.Now-came)
				}
				if h.closed > 0 && h.Now < h.duration {
					h.send()
				}
			})
		})
	})
}

func (h *herd) arriveForeign() {
	if h.Now >= h.duration {
		return
	}
	h.After(h.exp(time.Duration(float64(h.service)/(h.foreign*herdWorkers))), h.arriveForeign)
	h.serve(h.queues[0], func(lb.Load) {})
}

func (h *herd) serve(q *queue, done func(lb.Load)) {
	taken := h.Now
	work := func() {
		begun := h.Now
		h.After(h.exp(time.Duration(float64(h.service)*q.slow)), func() {
			q.finished(h.Now, taken, begun)
			q.busy--
			if len(q.waiting) > 0 {
				q.busy++
				next := q.waiting[0]
				q.waiting = q.waiting[1:]
				next()
			}
			h.watch()
			done(q.load())
		})
	}
	if q.busy == q.workers {
		q.waiting = append(q.waiting, work)
	} else {
		q.busy++
		work()
	}
	h.watch()
}

// watch measures how long replicas have more than twice the mean pending, if there are at
// most watchUpTo.
func (h *herd) watch() {
	if h.replicas > watchUpTo {
		return
	}
	sum := 0
	for _, q := range h.queues {
		sum += q.pending()
	}
	for i, q := range h.queues {
		switch over := q.pending()*h.replicas > 2*sum; {
		case !over:
			h.over[i] = -1
		case h.over[i] < 0:
			h.over[i] = h.Now
		default:
			h.longest = max(h.longest, h.Now-h.over[i])
		}
	}
}

// busiest returns the most requests that a replica served in any second, in steps of a
// tenth, as a multiple of the mean.
func (h *herd) busiest() float64 {
	total, most := 0, 0
	ticks := int(h.duration / herdTick)
	for _, served := range h.served {
		for from := ticks / 10; from+10 <= ticks; from++ {
			n := 0
			for tick := from; tick < from+10; tick++ {
				n += served[tick]
			}
			most = max(most, n)
			total += n
		}
	}
	seconds := ticks - ticks/10 - 9
	return float64(most*h.replicas*seconds) / float64(total)
}

func (h *herd) p99() time.Duration { return h.quantile(0.99) }

func (h *herd) quantile(q float64) time.Duration { return h.waits[int(q*float64(len(h.waits)))] }

func (h *herd) share(replica int) float64 {
	return float64(h.picked[replica]) / float64(len(h.waits))
}

// drawn picks at random: the baseline for herding.
type drawn struct{}

func (drawn) Choose(v *lb.View) *lb.Endpoint { return v.Draw() }

// Many loops with the same reports do not move to the same replica.
func TestReportHerding(t *testing.T) {
	for _, c := range []struct {
		name     string
		loops, n int
	}{
		{"few loops, scan", 4, 3},
		{"many loops, scan", 64, 8},
		{"many loops, two drawn", 64, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			random := runHerd(herdConfig{loops: c.loops, replicas: c.n, policy: drawn{}})
			least := runHerd(herdConfig{loops: c.loops, replicas: c.n})
			t.Logf("p99: %v at random, %v least pending", random.p99(), least.p99())
			if least.p99() > random.p99()*9/10 {
				t.Errorf("p99 is %v, at random %v", least.p99(), random.p99())
			}
			for r := range c.n {
				if even := 1 / float64(c.n); math.Abs(least.share(r)-even) > 0.1*even {
					t.Errorf("replica %d got %.3f of the requests, want about %.3f", r, least.share(r), even)
				}
			}
		})
	}
}

// Reports help where each loop has few of the requests, and make nothing worse where few loops
// have many, or where one replica also works for others.
func TestReportsHelp(t *testing.T) {
	if testing.Short() {
		t.Skip("fewer runs would leave too much to chance")
	}
	const same = 1.1 // chance makes 5%
	for _, c := range []struct {
		herdConfig
		most float64 // mean P99 with reports, as a multiple of that without
	}{
		{herdConfig{loops: 4, replicas: 3}, same},
		{herdConfig{loops: 64, replicas: 8}, 0.95},
		{herdConfig{loops: 30, replicas: 3, service: 10 * time.Millisecond}, same},
		{herdConfig{loops: 30, replicas: 3, foreign: 0.5}, same},
		{herdConfig{loops: 4, replicas: 20, foreign: 0.6}, same},
	} {
		c.duration = 5 * time.Second
		var informed, blind time.Duration
		for c.seed = range 2 * uint64(scaleSeeds) {
			c.noReports = false
			informed += runHerd(c.herdConfig).p99()
			c.noReports = true
			blind += runHerd(c.herdConfig).p99()
		}
		ratio := float64(informed) / float64(blind)
		t.Logf("%d loops, %d replicas: P99 with reports is %.2f of that without", c.loops, c.replicas, ratio)
		if ratio > c.most {
			t.Errorf("%d loops, %d replicas: P99 with reports is %.2f of that without, want at most %.2f", c.loops, c.replicas, ratio, c.most)
		}
	}
}
