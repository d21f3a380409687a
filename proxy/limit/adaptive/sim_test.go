package adaptive

import (
	"math"
	"math/rand/v2"
	"time"
)

const ms = time.Millisecond

// queueSim is an application with a pool of workers and a queue in front of
// them, a Limit in front of that, and requests that come whatever happens to
// those before. Who finds the limit reached waits, maxWaiting at most. Time goes
// by in small steps.
type queueSim struct {
	rnd     *rand.Rand
	now     time.Duration
	limit   *Limit
	workers int
	service func() time.Duration
	rate    float64 // arrivals a second
	frozen  time.Duration

	next    time.Duration   // arrival
	waiting int             // for the limit
	queued  []time.Duration // in the application: when each came
	busy    []job

	window Window
	began  time.Duration
	ends   time.Duration

	done    int           // answers, and
	latency time.Duration // the sum of their latencies, since the last reset
}

type job struct{ since, ends time.Duration }

const (
	simStep    = 100 * time.Microsecond
	maxWaiting = 200
)

// newSim is an application of 8 workers whose service times are exponential
// about 10 ms, without load.
func newSim(seed uint64) *queueSim {
	s := &queueSim{rnd: rand.New(rand.NewPCG(seed, 0)), limit: New(), workers: 8}
	s.service = func() time.Duration { return time.Duration(s.rnd.ExpFloat64() * float64(10*ms)) }
	s.ends = s.limit.Length()
	return s
}

// run goes on for d, at load times the capacity at a mean service time of mean.
func (s *queueSim) run(d time.Duration, load float64, mean time.Duration) {
	s.rate = load * float64(s.workers) / mean.Seconds()
	s.next = s.now
	s.done, s.latency = 0, 0
	for end := s.now + d; s.now < end; s.now += simStep {
		s.step()
	}
}

// goodput is the share of capacity that the last run made use of.
func (s *queueSim) goodput(d, mean time.Duration) float64 {
	return float64(s.done) * mean.Seconds() / float64(s.workers) / d.Seconds()
}

func (s *queueSim) meanLatency() time.Duration { return s.latency / time.Duration(s.done) }

func (s *queueSim) inApp() int { return len(s.queued) + len(s.busy) }

func (s *queueSim) step() {
	for ; s.next <= s.now; s.next += time.Duration(s.rnd.ExpFloat64() / s.rate * float64(time.Second)) {
		s.waiting = min(s.waiting+1, maxWaiting)
	}
	if s.now >= s.frozen {
		s.work()
	}
	for ; s.waiting > 0 && s.inApp() < s.limit.Value(); s.waiting-- {
		s.queued = append(s.queued, s.now)
	}
	if s.waiting > 0 {
		s.window.Reached = true
	}
	if s.window.Elapsed = s.now - s.began; s.now < s.ends || s.window.Answers == 0 {
		return
	}
	if s.limit.Update(s.window) {
		s.window, s.began = Window{}, s.now
	}
	s.ends = s.now + s.limit.Length()
}

func (s *queueSim) work() {
	left := s.busy[:0]
	for _, j := range s.busy {
		if j.ends > s.now {
			left = append(left, j)
			continue
		}
		s.window.Answers++
		s.window.Latency += s.now - j.since
		s.done++
		s.latency += s.now - j.since
	}
	s.busy = left
	for len(s.queued) > 0 && len(s.busy) < s.workers {
		s.busy = append(s.busy, job{s.queued[0], s.now + s.service()})
		s.queued = s.queued[1:]
	}
}

// freeze stops the application for d.
func (s *queueSim) freeze(d time.Duration) {
	s.frozen = s.now + d
	for i := range s.busy {
		s.busy[i].ends += d
	}
}

// lognormal service times: a long tail, with cv the standard deviation over the
// mean.
func (s *queueSim) lognormal(mean time.Duration, cv float64) {
	sigma := math.Sqrt(math.Log(1 + cv*cv))
	mu := math.Log(float64(mean)) - sigma*sigma/2
	s.service = func() time.Duration { return time.Duration(math.Exp(mu + sigma*s.rnd.NormFloat64())) }
}
