package hedge

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/choice"
)

// TestDelaysOf: which delay a request of a class has, and within which limits.
func TestDelaysOf(t *testing.T) {
	for name, c := range map[string]struct {
		change func(p *Policy)
		best   choice.Choice // of the route
		short  time.Duration // of requests that take 1 ms
		long   time.Duration // of those that take 10 ms
		none   time.Duration // of requests without a class
	}{
		"a quantile":                           {func(p *Policy) { p.Quantile = .97 }, choice.Choice{}, 2 * ms, 20 * ms, 10 * ms},
		"a least delay":                        {func(p *Policy) { p.Quantile, p.MinDelay = .97, 5*ms }, choice.Choice{}, 5 * ms, 20 * ms, 10 * ms},
		"a longest delay":                      {func(p *Policy) { p.Quantile, p.MaxDelay = .97, 15*ms }, choice.Choice{}, 2 * ms, 15 * ms, 10 * ms},
		"usually longer than that":             {func(p *Policy) { p.Quantile, p.MaxDelay = .97, 5*ms }, choice.Choice{}, 2 * ms, 20 * ms, 5 * ms},
		"a time":                               {func(p *Policy) { p.Delay = 3 * ms }, choice.Choice{}, 3 * ms, 3 * ms, 3 * ms},
		"the shortest time":                    {func(p *Policy) { p.Delay = 1 }, choice.Choice{}, 1, 1, 1},
		"auto, nothing is chosen":              {func(*Policy) {}, choice.Choice{}, 2 * ms, 20 * ms, 10 * ms},
		"auto":                                 {func(*Policy) {}, choice.Choice{Delay: 7 * ms}, 2 * ms, 20 * ms, 7 * ms},
		"a quantile, and a choice from before": {func(p *Policy) { p.Quantile = .97 }, choice.Choice{Delay: 7 * ms}, 2 * ms, 20 * ms, 10 * ms},
	} {
		p := auto()
		c.change(p)
		r := NewRoute(*p, 1)
		learn(r, 1000, 0, map[int]time.Duration{100: ms, 10_000: 10 * ms})
		r.Delays.best.Choice = c.best
		r.delayOfSize(cacheAge, 100)
		now := 2 * cacheAge
		class := r.Latencies.ClassOf(now, nil, 100)
		for what, of := range map[string][2]time.Duration{
			"short": {r.Delays.Of(now, class), c.short}, "long": {r.delayOfSize(now, 10_000), c.long}, "without a class": {r.Delays.Of(now, 0), c.none},
		} {
			if !within(of[0], of[1], .13) {
				t.Errorf("%s: the delay of %s requests is %v, want %v", name, what, of[0], of[1])
			}
		}
		again := max(r.Delays.Of(now, class), minAskInterval)
		if got := r.Delays.Again(now, class); got != again {
			t.Errorf("%s: asked again after %v, want %v", name, got, again)
		}
		for _, hedges := range []int{1, 3} {
			r.Policy.Max = hedges
			if got := r.Delays.HeadHold(now, class); got != time.Duration(1+hedges)*again {
				t.Errorf("%s: with %d hedges heads are held for %v", name, hedges, got)
			}
		}
	}
}

// TestDrawPaid: for which part of the requests the budget pays, by the choice for the class or for the route.
func TestDrawPaid(t *testing.T) {
	const draws = 10_000
	for name, c := range map[string]struct {
		best  choice.Choice
		class bool // the request has a class with a delay of its own, of which nothing is chosen
		want  float64
	}{
		"nothing is chosen":     {choice.Choice{}, false, 1},
		"all":                   {choice.Choice{Delay: ms, Share: 1}, false, 1},
		"a quarter":             {choice.Choice{Delay: ms, Share: .25}, false, .25},
		"none":                  {choice.Choice{Delay: ms}, false, 0},
		"nothing for the class": {choice.Choice{Delay: ms}, true, 1},
	} {
		r := NewRoute(*auto(), 1)
		learn(r, 1000, 0, map[int]time.Duration{100: ms, 10_000: 10 * ms})
		r.Delays.best.Choice = c.best
		for _, size := range []int{100, 10_000} {
			class := r.Latencies.ClassOf(cacheAge, nil, size)
			if !c.class {
				class = 0
			}
			paid := 0.0
			for range draws {
				if r.Delays.DrawPaid(cacheAge, class) {
					paid += 1. / draws
				}
			}
			if c.want == 1 && paid < 1-1e-9 || paid < c.want-.02 || paid > c.want+.02 {
				t.Errorf("%s: %v of %d bytes are paid for, want %v", name, paid, size, c.want)
			}
		}
	}
}

// TestChooseAgain: a choice is made anew after a second, or once the requests have doubled, and it needs a thousand of them.
func TestChooseAgain(t *testing.T) {
	type step struct {
		after          time.Duration
		n              int
		took           time.Duration
		known, changed bool
	}
	for name, steps := range map[string][]step{
		"many requests": {
			{0, 999, ms, false, false}, {ms, 998, 2 * ms, false, false}, {ms, 1, 2 * ms, true, true}, // 1998
			{ms, 1997, 3 * ms, true, false}, {ms, 1, 3 * ms, true, true}, // 3996
			{time.Second - 1, 100, 6 * ms, true, false}, {1, 0, 6 * ms, true, true}, // a second later
			{time.Hour, 999, ms, false, true}, // what was known is old
		},
		"few at first": {{0, 10, ms, false, false}, {ms, 690, ms, false, false}, {ms, 300, ms, true, true}},
	} {
		r := NewRoute(*auto(), 1)
		now := time.Hour
		for i, c := range steps {
			before := r.Delays.Best()
			now += c.after
			observe(&r.Latencies.Primaries, c.n, now, c.took)
			r.Delays.Choose(now)
			best := r.Delays.Best()
			if best.Known() != c.known || best != before != c.changed {
				t.Errorf("%s, step %d: %+v, before %+v", name, i, best, before)
			}
		}
	}
}

// TestWindowAfterDrop: once latencies have clearly dropped, the best delay is made of the last second, unless no hedge would have
// helped the slow requests of before.
func TestWindowAfterDrop(t *testing.T) {
	const before, now = 11 * time.Second, 14 * time.Second
	for name, c := range map[string]struct {
		quick    int // in the last second
		censored int // then
		futile   int // of 2000 slow ones before
		want     int64
	}{
		"they have dropped": {500, 0, 0, 500}, "one of them is given up": {499, 1, 0, 500}, "too few to say": {499, 0, 0, 2499}, "no hedge helps the slow ones": {500, 0, 2000, 2500}, "no hedge helps some of the slow ones": {500, 0, 100, 500},
	} {
		var e Estimator
		observe(&e, 2000, before, 20*ms)
		for range c.futile {
			e.Futile(before, 20*ms)
		}
		observe(&e, c.quick, now, ms)
		for range c.censored {
			e.Censor(now)
		}
		all, futile, ok := e.primaryLatencies(now)
		if !ok || all.Samples() != c.want {
			t.Errorf("%s: made of %d, want %d", name, all.Samples(), c.want)
		}
		stalled := 3 * ms
		if c.quick+c.censored < int(minRecent) {
			stalled = 60 * ms
		}
		if got := e.StallAfter(now, auto()); !near(got, stalled) {
			t.Errorf("%s: an endpoint is stalled after %v, want %v", name, got, stalled)
		}
		if inWindow := int64(c.futile); c.want < 2000 && futile.Samples() != 0 || c.want > 2000 && futile.Samples() != inWindow {
			t.Errorf("%s: %d futile ones among them", name, futile.Samples())
		}
	}
	for n, want := range map[int]bool{999: false, 1000: true} {
		var e Estimator
		observe(&e, n, now, ms)
		if _, _, ok := e.primaryLatencies(now); ok != want {
			t.Errorf("%d requests are enough: %t", n, ok)
		}
	}
}

// TestInherit: a reload keeps whether heads are held, and the last known tail of a class unless the quantile has changed.
func TestInherit(t *testing.T) {
	for _, quantile := range []float64{.97, .9} {
		p := auto()
		p.Quantile = .97
		last := NewRoute(*p, 1)
		learn(last, 1000, 0, map[int]time.Duration{100: ms, 10_000: 10 * ms})
		known := last.delayOfSize(cacheAge, 100)
		last.Heads.Followed()
		p.Quantile = quantile
		r := NewRoute(*p, 1)
		r.Inherit(last)
		now := 2 * cacheAge
		for range 200 {
			r.Latencies.Censor(now, r.Latencies.ClassOf(now, nil, 100))
		}
		if got := r.delayOfSize(now, 100); (got == known) != (quantile == .97) || !r.Heads.Hold() {
			t.Errorf("quantile %v: the delay is %v and was %v, heads are held: %t", quantile, got, known, r.Heads.Hold())
		}
	}
}

// TestLongestDelay: a class that usually takes as long as the longest delay has no longer one.
func TestLongestDelay(t *testing.T) {
	p := auto()
	p.Quantile = .97
	r := NewRoute(*p, 1)
	learn(r, 1000, 0, map[int]time.Duration{100: ms, 10_000: 10 * ms})
	c := r.Latencies.ClassOf(cacheAge, nil, 10_000)
	_, median, _ := r.Latencies.estimateOf(cacheAge, c)
	for longest, clamped := range map[time.Duration]bool{median: true, median - 1: false} {
		r.Policy.MaxDelay = longest
		if got := r.Delays.Of(cacheAge, c); (got == longest) != clamped || !clamped && got < 2*longest-longest/4 {
			t.Errorf("the longest delay is %v, the median %v: the delay is %v", longest, median, got)
		}
	}
}

// TestChooseOvertaken: a choice counts the primaries that a hedge has overtaken with the latencies of those that finished
// nevertheless.
func TestChooseOvertaken(t *testing.T) {
	var without [2]time.Duration
	for i, finished := range []bool{false, true} {
		r := NewRoute(*auto(), 1)
		observe(&r.Latencies.Primaries, 2000, 0, ms)
		for range 50 {
			r.Latencies.Censor(0, 0)
			r.Savings.Overtaken(0, 5*ms)
			if finished {
				r.Savings.Judge(0, 40*ms, 35*ms)
			}
		}
		r.Delays.Choose(0)
		without[i] = r.Delays.Best().Without
	}
	if !within(without[1], 40*ms, .15) || within(without[0], 40*ms, .5) {
		t.Errorf("the slowest take %v if none of those overtaken has finished, and %v if they take 40 ms", without[0], without[1])
	}
}

// TestPrimaries: each first attempt is counted, and earns its budget.
func TestPrimaries(t *testing.T) {
	s, r := NewService(10), NewRoute(*auto(), 1)
	for s.Retry(0) {
	}
	r.Policy.Budget = .5
	for range 3 {
		s.Primary(0, r)
	}
	if r.Counts.Primaries != 3 || s.Tokens(0) != 1.5 {
		t.Errorf("%d primaries, %v tokens", r.Counts.Primaries, s.Tokens(0))
	}
}

// TestDrawPaidLeavesEstimate: a draw for a request without a class computes no estimate of the route. The estimate would be kept for a
// while, although latencies change then.
func TestDrawPaidLeavesEstimate(t *testing.T) {
	r := NewRoute(*auto(), 1)
	r.Delays.best.Choice = choice.Choice{Delay: 5 * ms, Share: 1}
	for range 100 {
		r.Latencies.Observe(0, 10*ms, 0)
	}
	r.Delays.DrawPaid(ms, 0)
	for range 900 {
		r.Latencies.Observe(ms, 40*ms, 0)
	}
	if got := r.Delays.SilentAfter(2 * ms); !within(got, 80*ms, .13) {
		t.Errorf("endpoints are silent after %v, want 80 ms", got)
	}
}
