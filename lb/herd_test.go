package lb_test

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb"
)

// herd is many consumer loops in front of few replicas with a queue each. A loop
// sees its own attempts at once and everybody else's only through the reports
// that come with answers, a network's delay late.
type herd struct {
	herdConfig
	rnd    *rand.Rand
	now    time.Duration
	seq    int
	events events
	sets   []lb.Set
	queues []*queue

	waits  []time.Duration // per request, from sent to answered
	picked []int           // per replica
}

// herdConfig is what the experiments vary.
type herdConfig struct {
	loops, replicas int
	policy          lb.Policy
	noReports       bool
	foreign         float64 // part of the first replica that others use
}

// queue is a replica of so many workers; what finds none free waits.
type queue struct {
	busy    int
	waiting []func()
}

const (
	herdWorkers  = 4
	herdUse      = 0.9 // of the workers
	herdService  = time.Millisecond
	herdNetwork  = 200 * time.Microsecond
	herdDuration = 3 * time.Second
)

func (h *herd) after(d time.Duration, do func()) {
	h.seq++
	heap.Push(&h.events, event{h.now + d, h.seq, do})
}

func runHerd(c herdConfig) *herd {
	h := &herd{
		herdConfig: c,
		rnd:        rand.New(rand.NewPCG(7, 7)),
		sets:       make([]lb.Set, c.loops),
		picked:     make([]int, c.replicas),
	}
	var targets []lb.Target
	for i := range c.replicas {
		targets = append(targets, lb.Target{Addr: strconv.Itoa(i)})
		h.queues = append(h.queues, &queue{})
	}
	for i := range h.sets {
		h.sets[i].Policy = c.policy
		added, _ := h.sets[i].Update(targets)
		for j, e := range added {
			e.Ext = j
		}
	}
	if c.foreign > 0 {
		h.after(0, h.arriveForeign)
	}
	h.after(0, h.arrive)
	for len(h.events) > 0 {
		e := heap.Pop(&h.events).(event)
		h.now = e.at
		e.do()
	}
	slices.Sort(h.waits)
	return h
}

func (h *herd) exp(mean time.Duration) time.Duration {
	return time.Duration(h.rnd.ExpFloat64() * float64(mean))
}

func (h *herd) arrive() {
	if h.now >= herdDuration {
		return
	}
	perSecond := (herdUse*float64(len(h.queues)) - h.foreign) * herdWorkers / herdService.Seconds()
	h.after(h.exp(time.Duration(float64(time.Second)/perSecond)), h.arrive)

	set := &h.sets[h.rnd.IntN(h.loops)]
	e := set.Pick(h.now, h.rnd, nil)
	e.Started(h.now)
	r := e.Ext.(int)
	h.picked[r]++
	start := h.now
	h.after(herdNetwork, func() {
		h.serve(h.queues[r], func(pending int) { // answered by the replica
			h.after(herdNetwork, func() { // seen by the loop
				e.Answered(h.now, h.now-start)
				if !h.noReports {
					e.Report(h.now, lb.Load{Pending: pending}, e.Pending())
				}
				h.waits = append(h.waits, h.now-start)
			})
		})
	})
}

func (h *herd) arriveForeign() {
	if h.now >= herdDuration {
		return
	}
	h.after(h.exp(time.Duration(float64(herdService)/(h.foreign*herdWorkers))), h.arriveForeign)
	h.serve(h.queues[0], func(int) {})
}

func (h *herd) serve(q *queue, done func(pending int)) {
	work := func() {
		h.after(h.exp(herdService), func() {
			q.busy--
			if len(q.waiting) > 0 {
				q.busy++
				next := q.waiting[0]
				q.waiting = q.waiting[1:]
				next()
			}
			done(q.busy + len(q.waiting))
		})
	}
	if q.busy == herdWorkers {
		q.waiting = append(q.waiting, work)
		return
	}
	q.busy++
	work()
}

func (h *herd) p99() time.Duration { return h.waits[len(h.waits)*99/100] }

func (h *herd) share(replica int) float64 {
	return float64(h.picked[replica]) / float64(len(h.waits))
}

// drawn picks at random: what herding must not be worse than.
type drawn struct{}

func (drawn) Choose(v *lb.View) *lb.Endpoint { return v.Draw() }

// Many loops that hear the same reports must not all run to the same replica.
func TestReportsDoNotHerd(t *testing.T) {
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

// A replica that works for somebody else as well gets less; two drawn of 20 see
// that only through the reports.
func TestReportsShowForeignLoad(t *testing.T) {
	for _, n := range []int{3, 20} {
		c := herdConfig{loops: 4, replicas: n, foreign: 0.6}
		informed := runHerd(c)
		c.noReports = true
		blind := runHerd(c)
		t.Logf("%d replicas: the loaded one got %.4f of the requests, without reports %.4f",
			n, informed.share(0), blind.share(0))
		if informed.share(0) > 0.85*blind.share(0) {
			t.Errorf("%d replicas: the loaded one got %.4f of the requests, without reports %.4f",
				n, informed.share(0), blind.share(0))
		}
	}
}
