package lb_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/modeltest"
	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/lb/probe"
)

// TestConstantsOfHerds shows what happens to herds at half and at twice of some constants of picks.
func TestConstantsOfHerds(t *testing.T) {
	check := func(what string, constant *float64, least float64, measure func() float64, half, twice int) {
		t.Helper()
		modeltest.New(t, constant, least).Check(what, modeltest.Of(constant), measure, half, twice)
	}
	upTo := float64(lb.ScanUpTo)
	check("scanUpTo: P99 of 64 loops with 8 and with 16 replicas is a little longer or shorter", &upTo, .02, func() float64 {
		c := herdConfig{loops: 64, service: 4 * time.Millisecond, policy: scanning(upTo)}
		few, many := c, c
		few.replicas, many.replicas = lb.ScanUpTo, 2*lb.ScanUpTo
		return herdP99(few, 3) + herdP99(many, 3)
	}, 1, -1)
	power := lb.PacePower
	paced := func(e *lb.Endpoint, _ lb.Load) { e.SetPacePower(power) }
	check("pacePower: replicas with queues of unequal length serve fewer or more requests", &power, .01, func() float64 {
		return served(herdConfig{workers: []int{4, 8, 12}, learned: paced})
	}, -1, 1)
	check("pacePower: replicas of unequal speed serve more or fewer requests", &power, .01, func() float64 {
		return served(herdConfig{workers: []int{8, 8, 8}, slow: []float64{3, 1.5, 1}, learned: paced})
	}, 1, -1)
	check("queueCost: replicas of 1, 4 and 16 workers with queues that are reported serve hardly more or fewer requests",
		lb.QueueCost, .03, servedWithQueues, 0, 0)
	fade, fadeLeast := float64(lb.PickFade), float64(lb.PickFadeLeast)
	faded := func(e *lb.Endpoint, l lb.Load) { e.SetReportLife(l.Latency, fade, time.Duration(fadeLeast)) }
	check("pickFade: P99 of 64 loops hardly changes", &fade, .1, func() float64 {
		return herdP99(herdConfig{loops: 64, replicas: 8, service: 10 * time.Millisecond, learned: faded}, 3)
	}, 0, 0)
	check("pickFadeLeast: P99 of 64 loops with quick replicas hardly changes", &fadeLeast, .1, func() float64 {
		return herdP99(herdConfig{loops: 64, replicas: 3, service: 300 * time.Microsecond, duration: time.Second / 2, learned: faded}, 3)
	}, 0, 0)
}

// scanning is LeastPending with another scanUpTo.
type scanning int

// Choose implements lb.Policy.
func (n scanning) Choose(v *lb.View) *lb.Endpoint { return v.ChooseScanning(int(n)) }

// herdP99 returns the mean P99 of some seeds, in milliseconds.
func herdP99(c herdConfig, seeds uint64) (mean float64) {
	for c.seed = range seeds {
		mean += runHerd(c).p99().Seconds() * 1000 / float64(seeds)
	}
	return mean
}

// served returns how many requests three replicas serve for three loops, if 24 requests are always in flight.
func served(c herdConfig) (n float64) {
	c.loops, c.replicas, c.service, c.closed = 3, 3, 5*time.Millisecond, 24
	c.duration, c.warmUp = 8*time.Second, 4*time.Second
	for c.seed = range uint64(3) {
		n += float64(len(runHerd(c).waits))
	}
	return n
}

func servedWithQueues() float64 { return served(herdConfig{workers: []int{1, 4, 16}, limited: true}) }

// TestWithoutQueueCost: where a request that has to queue counts no more than others, such replicas serve fewer.
func TestWithoutQueueCost(t *testing.T) {
	usual, with := *lb.QueueCost, servedWithQueues()
	defer func() { *lb.QueueCost = usual }()
	*lb.QueueCost = 0
	without := servedWithQueues()
	t.Logf("they serve %.3f of what they serve with it", without/with)
	if without > .98*with {
		t.Errorf("they serve %.3f of what they serve with it", without/with)
	}
}

// TestConstantsOfSparse shows what happens to callers with few requests at half and at twice of some constants.
func TestConstantsOfSparse(t *testing.T) {
	memory := lb.RankMemory
	modeltest.New(t, &memory, .15).Check("rankMemory: P99 of callers with few requests hardly changes",
		modeltest.Of(&memory), func() float64 {
			return p99OfSparse(func(s *sparse, c int) {
				s.sendTo(s.sets[c].PickWithMemory(lb.Query{Now: s.Now, Rand: s.rnd}, memory), s.Now)
			})
		}, 0, 0)
	asked := probe.Asked
	modeltest.Check(t, "Asked: P99 of callers with few requests is longer, or stays as it is",
		&asked, func() float64 {
			return p99OfSparse(func(s *sparse, c int) { s.chooseBy(c, probe.Default, asked) })
		}, 1, 0)
}

func p99OfSparse(choose func(s *sparse, caller int)) float64 {
	return runSparseSeeds(sparseRule{choose: choose}, 3).p99.Seconds()
}
