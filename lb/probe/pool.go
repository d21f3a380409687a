package probe

import (
	"slices"
	"time"
)

// Asked is the number of endpoints that are asked for one pick: one more than a pick needs, as a probe may be lost. With two, P99
// is a sixth longer. With eight it is as long, for twice the probes (TestConstantsOfSparse of package lb).
const Asked = 4

// Rules are the constants of a Pool.
type Rules struct {
	// Enough is the number of fresh answers that a pick needs, or that it waits for.
	Enough int

	// Uses is how many picks an answer serves: then so many requests have come to the endpoint that the load in the
	// answer does not have.
	Uses int

	// Hot is the quantile of the recent loads above which an answer is hot.
	Hot float64

	// Life is how long an answer is fresh, as a share of the median latency in the recent answers: half of the requests
	// that a load counts are over after half of the latency. All answers have the same life. If each had that of
	// its own latency, an overloaded endpoint would soon have the only answer left.
	Life float64
}

// Default is the rules that pools have if their field says none. Hot has the value of the paper. TestPoolRules of package lb
// has the P99 at half and twice each of the others.
var Default = Rules{Enough: 3, Uses: 2, Hot: 0.84, Life: 0.5}

const (
	poolMost   = 16 // answers that a pool keeps, at most one of each endpoint (Prequal, section 4.2)
	recentMost = 32 // answers of which the quantiles are taken
)

// lifeLeast is the shortest life of an answer: the clocks and loops of two sidecars are no finer. TestConstants shows what
// happens at twice and at half.
var lifeLeast = time.Millisecond

// Answer is the load of an endpoint when it has answered a probe.
type Answer[E comparable] struct {
	From    E
	Pending float64       // requests
	Weight  float64       // of the endpoint in picks, above 0
	Latency time.Duration // recent; 0 means unknown, and counts as the median of the others
	At      time.Duration // when the answer came

	uses int
}

// load is the load per weight, with so many requests more.
func (a *Answer[E]) load(more float64) float64 { return (a.Pending + more) / a.Weight }

// cost is in proportion to the latency that the next request would have.
func (a *Answer[E]) cost() float64 { return a.load(1) * float64(a.Latency) }

// Pool is the fresh answers that one loop has of the endpoints of a service. The zero value is empty.
type Pool[E comparable] struct {
	Rules Rules // the zero value means Default

	answers []Answer[E] // the oldest first
	recent  *recent     // nil before the first answer

	hot    float64       // the quantile of loads
	median time.Duration // of latencies
}

// recent is the loads and latencies of the recent answers, each in a ring.
type recent struct {
	loads     [recentMost]float64
	latencies [recentMost]time.Duration
	n         int // answers so far
}

func (p *Pool[E]) rules() *Rules {
	if p.Rules == (Rules{}) {
		return &Default
	}
	return &p.Rules
}

// Add adds an answer, in place of an earlier one of the same endpoint. A pool that is full drops its oldest.
func (p *Pool[E]) Add(a Answer[E]) {
	if a.Latency == 0 {
		a.Latency = max(p.median, 1)
	}
	p.Forget(a.From)
	if len(p.answers) == poolMost {
		p.remove(0)
	}
	p.answers = append(p.answers, a)
	if p.recent == nil {
		p.recent = new(recent)
	}
	r := p.recent
	at := r.n % recentMost
	r.loads[at], r.latencies[at] = a.load(0), a.Latency
	r.n++
	n := min(r.n, recentMost)
	p.hot = quantile(r.loads, n, p.rules().Hot)
	p.median = quantile(r.latencies, n, 0.5)
}

// quantile sorts a copy of the first n values.
func quantile[T time.Duration | float64](values [recentMost]T, n int, q float64) T {
	slices.Sort(values[:n])
	return values[min(int(q*float64(n)), n-1)]
}

// Forget removes the answer of an endpoint, if there is one.
func (p *Pool[E]) Forget(e E) {
	if i := slices.IndexFunc(p.answers, func(a Answer[E]) bool { return a.From == e }); i >= 0 {
		p.remove(i)
	}
}

// Enough reports whether a pick among so many endpoints may use the answers. It removes those that are too old.
func (p *Pool[E]) Enough(now time.Duration, endpoints int) bool {
	life := max(time.Duration(p.rules().Life*float64(p.median)), lifeLeast)
	for len(p.answers) > 0 && now-p.answers[0].At >= life {
		p.remove(0)
	}
	return len(p.answers) >= min(p.rules().Enough, endpoints)
}

// Take returns the best usable endpoint that has answered, and adds a request to its load. It removes the worst answer
// if there are more than enough, and one that has served enough picks. ok is false if no answer is left.
func (p *Pool[E]) Take(usable func(E) bool) (e E, ok bool) {
	best, worst := -1, 0
	for i := range p.answers {
		a := &p.answers[i]
		if p.better(&p.answers[worst], a) {
			worst = i
		}
		if usable(a.From) && (best < 0 || p.better(a, &p.answers[best])) {
			best = i
		}
	}
	if best < 0 {
		return e, false
	}
	a := &p.answers[best]
	e = a.From
	a.Pending++
	a.uses++
	used := a.uses >= p.rules().Uses
	if worst != best && len(p.answers) > p.rules().Enough {
		p.remove(worst)
	}
	if used {
		p.Forget(e)
	}
	return e, true
}

// better is the hot-cold lexicographic rule. A cold answer is better than a hot one. Of two hot answers, the one with less
// load is better, of two cold ones the one with less latency for the next request.
func (p *Pool[E]) better(a, b *Answer[E]) bool {
	switch hotA, hotB := a.load(0) > p.hot, b.load(0) > p.hot; {
	case hotA != hotB:
		return hotB
	case hotA:
		return a.load(0) < b.load(0)
	default:
		return a.cost() < b.cost()
	}
}

func (p *Pool[E]) remove(i int) { p.answers = slices.Delete(p.answers, i, i+1) }
