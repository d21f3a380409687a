package lb_test

import (
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/lb/probe"
)

// sparse is a herd whose loops have few requests each: reports are old when a pick needs them. A loop may
// ask replicas for their load. The wait for the answers is part of a request's latency.
type sparse struct {
	*herd
	rule     sparseRule
	callers  []sparseCaller
	requests int
	probes   int
}

// sparseRule is how a loop picks.
type sparseRule struct {
	name   string
	choose func(s *sparse, caller int)
}

var sparseRules = []sparseRule{
	{"random", func(s *sparse, c int) { s.sendTo(s.sets[c].At(s.rnd.IntN(s.replicas)), s.Now) }},
	{"least_pending", func(s *sparse, c int) { s.sendTo(s.pick(&s.sets[c]), s.Now) }},
	{"4 probes for the next request", (*sparse).chooseAhead},
	{"2 probes that are awaited", func(s *sparse, c int) { s.ask(c, 2) }},
	{"4 probes that are awaited", func(s *sparse, c int) { s.ask(c, 4) }},
	{"pool of fresh answers", (*sparse).chooseFresh},
	{"all loads known", func(s *sparse, c int) {
		answers := make([]sparseAnswer, s.replicas)
		for i, r := range s.rnd.Perm(s.replicas) {
			answers[i] = sparseAnswer{Load: s.queues[r].load(), replica: r}
		}
		s.sendTo(s.sets[c].At(quickest(answers).replica), s.Now)
	}},
}

const (
	sparseCallers = 100
	sparseRate    = 3 // requests per second of a caller
	sparseUse     = 0.7
	sparseSlow    = 3 // times slower is the first replica
)

// sparseAnswer is the answer of a replica to a probe.
type sparseAnswer struct {
	lb.Load
	replica int
	at      time.Duration
}

// cost is the latency times the load, which is in proportion to the latency that one more request would have.
func (a *sparseAnswer) cost() float64 { return float64(a.Pending+1) * float64(max(1, a.Latency)) }

// quickest returns the answer with the least cost.
func quickest(answers []sparseAnswer) *sparseAnswer {
	best := &answers[0]
	for i := range answers {
		if a := &answers[i]; a.cost() < best.cost() {
			best = a
		}
	}
	return best
}

func runSparse(rule sparseRule, seed uint64) *sparse {
	slow := []float64{sparseSlow, 1, 1, 1, 1, 1, 1, 1, 1, 1}
	capacity, workers := 0.0, make([]int, len(slow))
	for i, times := range slow {
		capacity += 1 / times
		workers[i] = 1
	}
	s := &sparse{rule: rule, callers: make([]sparseCaller, sparseCallers), herd: newHerd(herdConfig{
		loops: sparseCallers, replicas: len(slow), workers: workers, slow: slow, seed: seed,
		service:  time.Duration(sparseUse * capacity / (sparseCallers * sparseRate) * float64(time.Second)),
		duration: time.Minute, warmUp: 10 * time.Second,
	})}
	s.After(0, s.arrive)
	s.run()
	return s
}

func (s *sparse) arrive() {
	if s.Now >= s.duration {
		return
	}
	s.After(s.exp(time.Second/(sparseCallers*sparseRate)), s.arrive)
	s.requests++
	s.rule.choose(s, s.rnd.IntN(s.loops))
}

func (s *sparse) probe(replica int, answered func(sparseAnswer)) {
	s.probes++
	s.After(herdNetwork, func() {
		l := s.queues[replica].load()
		s.After(herdNetwork, func() { answered(sparseAnswer{l, replica, s.Now}) })
	})
}

// ask asks n replicas, and sends the request to the best once all have answered.
func (s *sparse) ask(caller, n int) {
	came := s.Now
	var answers []sparseAnswer
	for _, r := range s.rnd.Perm(s.replicas)[:n] {
		s.probe(r, func(a sparseAnswer) {
			if answers = append(answers, a); len(answers) == n {
				s.sendTo(s.sets[caller].At(quickest(answers).replica), came)
			}
		})
	}
}

// sparseCaller has the answers to the probes of a loop.
type sparseCaller struct {
	pool  probe.Pool[int]
	costs []float64 // of the latest answers, for oneByOne
}

// answered keeps the answer of a replica.
func (c *sparseCaller) answered(a sparseAnswer) {
	c.pool.Add(probe.Answer[int]{From: a.replica, Pending: float64(a.Pending), Weight: 1, Latency: a.Latency, At: a.at})
}

// take sends a request that came at the time came to the best replica of the pool, if there is one.
func (s *sparse) take(caller int, came time.Duration) bool {
	r, ok := s.callers[caller].pool.Take(func(int) bool { return true })
	if ok {
		s.sendTo(s.sets[caller].At(r), came)
	}
	return ok
}

// chooseAhead sends probes after each request, for the next one, whose answers are as old as the request before.
func (s *sparse) chooseAhead(caller int) {
	if !s.take(caller, s.Now) {
		s.sendTo(s.pick(&s.sets[caller]), s.Now)
	}
	for _, r := range s.rnd.Perm(s.replicas)[:probe.Asked] {
		s.probe(r, s.callers[caller].answered)
	}
}

// chooseFresh uses the pool if it has enough fresh answers. Otherwise the request waits for them.
func (s *sparse) chooseFresh(caller int) { s.chooseBy(caller, probe.Default, probe.Asked) }

func (s *sparse) chooseBy(caller int, rules probe.Rules, asked int) {
	c, came := &s.callers[caller], s.Now
	c.pool.Rules = rules
	waits := !c.pool.Enough(came, s.replicas)
	if !waits {
		s.take(caller, came)
	}
	answers := 0
	for _, r := range s.rnd.Perm(s.replicas)[:asked] {
		s.probe(r, func(a sparseAnswer) {
			c.answered(a)
			if answers++; waits && answers == min(rules.Enough, asked) {
				s.take(caller, came)
			}
		})
	}
}

// sparseResult has the medians of several seeds.
type sparseResult struct {
	p50, p99     time.Duration
	slow, probes float64 // share of the requests at the slow replica; probes per request
}

const sparseSeeds = 9

func runSparseSeeds(rule sparseRule, seeds int) sparseResult {
	var p50, p99 []time.Duration
	var slow, probes []float64
	for seed := range uint64(seeds) {
		s := runSparse(rule, seed)
		p50, p99 = append(p50, s.quantile(.5)), append(p99, s.p99())
		slow = append(slow, float64(s.picked[0])/float64(s.requests))
		probes = append(probes, float64(s.probes)/float64(s.requests))
	}
	return sparseResult{median(p50), median(p99), median(slow), median(probes)}
}

func median[N time.Duration | float64](x []N) N {
	slices.Sort(x)
	return x[len(x)/2]
}

// TestSparseCallers prints the table of docs/balancing.md. Answers to earlier probes don't help callers with few
// requests: by the next request the queues have changed.
func TestSparseCallers(t *testing.T) {
	p99 := map[string]time.Duration{}
	for _, rule := range sparseRules {
		x := runSparseSeeds(rule, sparseSeeds)
		p99[rule.name] = x.p99
		t.Logf("| %s | %d ms | %d ms | %.1f%% | %.0f |", rule.name, x.p50.Milliseconds(), x.p99.Milliseconds(), 100*x.slow, x.probes)
	}
	today, best, pool := p99["least_pending"], p99["all loads known"], p99["pool of fresh answers"]
	if pool > today*3/4 || float64(pool) > 1.15*float64(best) {
		t.Errorf("P99 with a pool of fresh answers is %v; %v without, %v with all loads known", pool, today, best)
	}
	if ahead := p99["4 probes for the next request"]; ahead < 2*best {
		t.Errorf("P99 with probes for the next request is %v, less than twice %v", ahead, best)
	}
}

// TestPoolRules prints the P99 at half and twice each rule of a pool. One answer is too few; no other rule is delicate.
func TestPoolRules(t *testing.T) {
	d := probe.Default
	p99 := func(r probe.Rules) time.Duration {
		choose := func(s *sparse, c int) { s.chooseBy(c, r, probe.Asked) }
		return runSparseSeeds(sparseRule{choose: choose}, 3).p99
	}
	usual := p99(d)
	for _, c := range []struct {
		rules probe.Rules
		least float64 // P99 relative to that of the defaults
		most  float64
	}{
		{probe.Rules{Enough: 1, Uses: d.Uses, Hot: d.Hot, Life: d.Life}, 1.5, 1e9},
		{probe.Rules{Enough: 6, Uses: d.Uses, Hot: d.Hot, Life: d.Life}, 0.8, 1.1},
		{probe.Rules{Enough: d.Enough, Uses: 1, Hot: d.Hot, Life: d.Life}, 0.8, 1.1},
		{probe.Rules{Enough: d.Enough, Uses: 4, Hot: d.Hot, Life: d.Life}, 0.8, 1.1},
		{probe.Rules{Enough: d.Enough, Uses: d.Uses, Hot: d.Hot / 2, Life: d.Life}, 0.8, 1.3},
		{probe.Rules{Enough: d.Enough, Uses: d.Uses, Hot: 1, Life: d.Life}, 0.8, 1.1},
		{probe.Rules{Enough: d.Enough, Uses: d.Uses, Hot: d.Hot, Life: d.Life / 2}, 0.8, 1.1},
		{probe.Rules{Enough: d.Enough, Uses: d.Uses, Hot: d.Hot, Life: d.Life * 2}, 0.8, 1.2},
	} {
		got := float64(p99(c.rules)) / float64(usual)
		t.Logf("%+v: P99 is %.2f of that of the defaults", c.rules, got)
		if got < c.least || got > c.most {
			t.Errorf("%+v: P99 is %.2f of that of the defaults, want %v to %v", c.rules, got, c.least, c.most)
		}
	}
}
