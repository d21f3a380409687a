package hedge

import (
	"math/rand/v2"
	"slices"
	"time"
)

// flow is the requests of a route, one after another. A late request has a hedge if all gates are open. A hundredth of the
// first attempts meets a freeze of up to 50 ms, which no hedge meets.
type flow struct {
	route   *Route
	service Service
	rnd     *rand.Rand
	now     time.Duration
	took    []time.Duration // by each request, in the last run
}

// run sends requests at a rate for a time. All take so many times as long as usual.
func (f *flow) run(lasts time.Duration, rate, slower float64) {
	f.took = nil
	for end := f.now + lasts; f.now < end; f.now += time.Duration(f.rnd.ExpFloat64() / rate * float64(time.Second)) {
		first, second := f.draw(slower), f.draw(slower)
		if f.rnd.IntN(100) == 0 {
			first += time.Duration(f.rnd.Float64() * float64(50*ms))
		}
		f.took = append(f.took, f.send(first, second))
	}
}

func (f *flow) draw(slower float64) time.Duration {
	return time.Duration(float64(lognormal(f.rnd, .5)) * slower)
}

// send sends a request whose first attempt takes a time, and its hedge another time. It returns when the first response
// comes.
func (f *flow) send(first, second time.Duration) time.Duration {
	r, now, q := f.route, f.now, willing()
	r.Delays.Choose(now)
	delay := r.Delays.Of(now, 0)
	f.service.Primary(now, r)
	q.Paid = r.Delays.DrawPaid(now, 0)
	if first <= delay || f.service.Decide(now, r, &q) != Open {
		r.Latencies.Observe(now, first, 0)
		return first
	}
	f.service.Done()
	r.Latencies.Responded(now, second)
	if delay+second >= first {
		r.Latencies.Observe(now, first, 0)
		r.Savings.Judge(now, first, 0)
		return first
	}
	r.Latencies.Censor(now, 0)
	r.Savings.Overtaken(now, delay+second)
	r.Savings.Judge(now, first, first-delay-second)
	return delay + second
}

// p999AfterTrouble returns P99.9 in a time after a second in which all requests took ten times as long.
func p999AfterTrouble(rate float64, after time.Duration) float64 {
	return p999(rate, func(f *flow) {
		f.run(time.Second, rate, 10)
		f.run(after, rate, 1)
	})
}

// p999After returns P99.9 in a time after a release with which all requests take so many times as long.
func p999After(rate, slower float64, after time.Duration) float64 {
	return p999(rate, func(f *flow) { f.run(after, rate, slower) })
}

// p999 returns P99.9 of the last run of do, in milliseconds, of many seeds.
func p999(rate float64, do func(f *flow)) float64 {
	const enough = 60_000
	var took []time.Duration
	for seed := uint64(0); len(took) < enough; seed++ {
		f := &flow{route: NewRoute(*auto(), 1), service: NewService(1), rnd: rand.New(rand.NewPCG(seed, 1))}
		f.now = time.Duration(seed) * time.Second // phases of the windows
		f.run(70*time.Second, rate, 1)
		do(f)
		took = append(took, f.took...)
	}
	slices.Sort(took)
	return took[len(took)*999/1000].Seconds() * 1000
}
