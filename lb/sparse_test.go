package lb_test

import (
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb"
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
	{"3 probes for the next request", (*sparse).chooseAhead},
	{"2 probes when a request comes", func(s *sparse, c int) { s.ask(c, 2) }},
	{"3 probes when a request comes", func(s *sparse, c int) { s.ask(c, 3) }},
	{"4 probes when a request comes", func(s *sparse, c int) { s.ask(c, 4) }},
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

// quickest returns the answer with the least latency times load, which is in proportion to the latency that
// one more request would have.
func quickest(answers []sparseAnswer) *sparseAnswer {
	cost := func(a *sparseAnswer) float64 { return float64(a.Pending+1) * float64(max(1, a.Latency)) }
	best := &answers[0]
	for i := range answers {
		if a := &answers[i]; cost(a) < cost(best) {
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

// sparseCaller has the answers to probes that followed earlier requests, and the loads of the latest ones.
type sparseCaller struct {
	answers []sparseAnswer
	loads   []int
}

// chooseAhead is Prequal with its sizes and life of a pool (Wydrowski, Kleinberg, Rumble and Archer, "Load is
// not what you should balance: Introducing Prequal", NSDI 2024). It picks the least latency of the answers
// that are not hot, or the least load if all are. Hot is a load above the median of those that the caller has
// seen: at the quantile 0.84 of the paper, P99 is longer.
func (s *sparse) chooseAhead(caller int) {
	const probes, most, loads = 3, 16, 64
	c := &s.callers[caller]
	c.answers = slices.DeleteFunc(c.answers, func(a sparseAnswer) bool { return s.Now-a.at >= time.Second })
	if len(c.answers) < 2 {
		s.sendTo(s.pick(&s.sets[caller]), s.Now)
	} else {
		best := c.coldest()
		best.Pending++
		s.sendTo(s.sets[caller].At(best.replica), s.Now)
	}
	for _, r := range s.rnd.Perm(s.replicas)[:probes] {
		s.probe(r, func(a sparseAnswer) {
			c.answers = slices.DeleteFunc(c.answers, func(old sparseAnswer) bool { return old.replica == r })
			c.answers = append(c.answers, a)
			c.answers = c.answers[max(0, len(c.answers)-most):]
			c.loads = append(c.loads, a.Pending)
			c.loads = c.loads[max(0, len(c.loads)-loads):]
		})
	}
}

func (c *sparseCaller) coldest() *sparseAnswer {
	loads := slices.Sorted(slices.Values(c.loads))
	hot := func(a *sparseAnswer) bool { return a.Pending > loads[len(loads)/2] }
	best := &c.answers[0]
	for i := range c.answers {
		a := &c.answers[i]
		switch {
		case hot(a) != hot(best):
			if hot(best) {
				best = a
			}
		case hot(a) && a.Pending < best.Pending, !hot(a) && a.Latency < best.Latency:
			best = a
		}
	}
	return best
}

// sparseResult has the medians of several seeds.
type sparseResult struct {
	p50, p99     time.Duration
	slow, probes float64 // share of the requests at the slow replica; probes per request
}

func runSparseSeeds(rule sparseRule) sparseResult {
	const seeds = 9
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

// TestSparseCallers prints the table of docs/balancing.md. Probes help callers with few requests only if
// they are sent when the request comes: by the next request the queues have changed.
func TestSparseCallers(t *testing.T) {
	p99 := map[string]time.Duration{}
	for _, rule := range sparseRules {
		x := runSparseSeeds(rule)
		p99[rule.name] = x.p99
		t.Logf("| %s | %d ms | %d ms | %.1f%% | %.0f |", rule.name, x.p50.Milliseconds(), x.p99.Milliseconds(), 100*x.slow, x.probes)
	}
	best := float64(p99["all loads known"])
	if asked := p99["4 probes when a request comes"]; asked > p99["least_pending"]*3/4 || float64(asked) > 1.15*best {
		t.Errorf("P99 with 4 probes when a request comes is %v", asked)
	}
	if ahead := p99["3 probes for the next request"]; ahead > p99["least_pending"]*3/4 || float64(ahead) < 2*best {
		t.Errorf("P99 with 3 probes for the next request is %v", ahead)
	}
}
