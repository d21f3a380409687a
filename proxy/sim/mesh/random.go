package mesh

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Random draws a small mesh, its configuration, its load and its events.
// The same seed gives the same Spec.
func Random(seed uint64) Spec {
	d := dice{rand.New(rand.NewPCG(seed, 0x6d657368))}
	s := NewSpec()
	s.Seed = seed
	s.Consumers, s.Providers, s.Loops = d.upTo(3), d.upTo(4), d.oneOf(1, 1, 1, 2)
	s.Threads, s.Queue = d.upTo(8), d.oneOf(0, 4, 1000)
	if d.chance(.3) {
		s.Capacity = []float64{1, 2, 3}
	}
	if d.chance(.2) {
		s.Weights = []int{1, 2, 3}
	}
	s.Service, s.Sigma = d.duration(200*time.Microsecond, 3*time.Millisecond), .5
	if d.chance(.5) {
		s.StallEvery, s.StallFor = d.duration(30*time.Millisecond, 200*time.Millisecond), d.duration(5*time.Millisecond, 60*time.Millisecond)
	}
	s.Direct = d.chance(.15)
	if d.chance(.15) {
		s.Breaks = .003
	}
	if d.chance(.15) {
		s.Bandwidth = d.oneOf(1_000_000, 20_000_000)
	}
	s.NewsMin, s.NewsMax = 0, d.duration(time.Millisecond, 40*time.Millisecond)
	s.Lease = d.duration(10*time.Millisecond, 100*time.Millisecond)
	s.Duration = 200 * time.Millisecond
	s.Load = float64(200 + d.IntN(800))
	if d.chance(.2) {
		s.Abandon = .05
	}
	s.Unsafe = []float64{0, 0, .3, 1}[d.IntN(4)]
	if d.chance(.15) {
		s.Large = .03
	}
	d.configure(&s)
	for range d.IntN(6) {
		s.Events = append(s.Events, d.event(&s))
	}
	if d.chance(.2) {
		s.Batch = s.Load
	}
	if d.chance(.2) {
		s.Route["fault"] = fmt.Sprintf("{delay: %s, delay_share: %s, abort: %s, abort_share: %s}",
			d.word("1ms", "10ms", "25ms"), d.word("0.1", "1"), d.word("429", "503"), d.word("0", "0.1"))
	}
	if d.chance(.15) {
		s.Route["mirror"] = "{service: compute, share: " + d.word("0.2", "1") + "}"
	}
	s.HTTP2Callers, s.HTTP2Apps = d.chance(.3), d.chance(.3)
	if d.chance(.3) {
		s.Same = []float64{.3, .9}[d.IntN(2)]
		if d.chance(.6) {
			s.Route["collapse"] = "true"
		}
		if d.chance(.6) {
			s.Route["cache"] = "{ttl: " + d.word("0s", "1ms", "10ms") + ", stale: " + d.word("0s", "10ms", "100ms") + "}"
		}
	}
	s.Stop = d.chance(.3)
	s.Consumer["cancel"], s.Provider["cancel"] = d.word("auto", "close", "finish"), d.word("auto", "close", "finish")
	return s
}

// dice draws random values.
type dice struct{ *rand.Rand }

func (d dice) chance(p float64) bool { return d.Float64() < p }

// upTo returns a number from 1 to n.
func (d dice) upTo(n int) int { return 1 + d.IntN(n) }

func (d dice) oneOf(of ...int) int { return of[d.IntN(len(of))] }

func (d dice) word(of ...string) string { return of[d.IntN(len(of))] }

// duration returns a duration from least to most, truncated to 0.1 ms.
func (d dice) duration(least, most time.Duration) time.Duration {
	return (least + time.Duration(d.Int64N(int64(most-least)+1))).Truncate(100 * time.Microsecond)
}

func (d dice) configure(s *Spec) {
	c, p := s.Consumer, s.Provider
	c["timeout"] = d.word("30ms", "150ms", "1s")
	c["connect_timeout"] = d.word("5ms", "50ms")
	c["retry"] = d.word("{on: []}", "{on: [connect, refused]}", "{attempts: 2, on: [connect, refused, reset]}",
		"{attempts: 3, on: [connect, refused, reset, 5xx]}", "{attempts: 2, per_try_timeout: 12ms}")
	if d.chance(.75) {
		c["hedge"] = fmt.Sprintf("{mode: on, delay: %s, budget: %s, max: %d}",
			d.word("auto", "1ms", "3ms", "5ms"), d.word("0.05", "0.2", "1"), d.upTo(3))
	}
	subset := 0
	if d.chance(.15) {
		subset = d.upTo(3)
	}
	c["lb"] = fmt.Sprintf("{policy: %s, subset: %d, slow_start: %s}",
		d.word("least_pending", "least_pending", "weighted_round_robin", "peak_ewma", "random", "consistent_hash, hash: {header: x-nonce}"), subset, d.word("0s", "100ms"))
	if d.chance(.5) {
		c["outlier"] = fmt.Sprintf("{consecutive: %d, base: %s}", d.upTo(5), d.word("20ms", "200ms"))
	}
	if d.chance(.15) {
		c["breaker"] = fmt.Sprintf("{consecutive: %d, open: %s}", d.upTo(8), d.word("10ms", "50ms"))
	}
	if d.chance(.3) {
		c["max_pending"] = fmt.Sprint(d.upTo(30))
	}
	if d.chance(.15) {
		c["max_concurrency"], c["max_queue"] = fmt.Sprint(d.upTo(10)), fmt.Sprint(d.IntN(20))
	}
	if d.chance(.7) {
		p["max_concurrency"], p["max_queue"] = d.word("auto", "1", "2", "4", "8"), fmt.Sprint(d.IntN(20))
	}
	if d.chance(.2) {
		p["max_pending"] = fmt.Sprint(d.upTo(20))
	}
	p["connect_timeout"] = d.word("5ms", "50ms")
	if d.chance(.3) {
		p["idle_timeout"] = "20ms"
	}
}

// event draws a fault.
func (d dice) event(s *Spec) Event {
	e := Event{
		At:     d.duration(time.Millisecond, s.Duration-time.Millisecond),
		For:    d.duration(time.Millisecond, 60*time.Millisecond),
		Action: Action(d.IntN(actions)),
		Factor: float64(d.oneOf(2, 5, 10)),
	}
	form := &syntaxes[e.Action]
	e.Target.Kind = form.target
	if form.either && d.chance(.25) {
		e.Target.Kind = TargetConsumer
	}
	switch hosts := s.Providers; {
	case e.Target.Kind == TargetConsumer:
		e.Target.Index = d.upTo(s.Consumers)
	case e.Target.Kind == TargetProvider && d.chance(.85):
		e.Target.Index = d.upTo(hosts)
	}
	if !form.factor {
		e.Factor = 0
	}
	if !form.mayFor && !form.mustFor {
		e.For = 0
	}
	if d.chance(.2) && e.Action != Roll {
		e.Every = d.duration(20*time.Millisecond, 80*time.Millisecond)
	}
	return e
}
