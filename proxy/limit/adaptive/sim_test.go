package adaptive

import (
	"math"
	"math/rand/v2"
	"time"
)

const ms = time.Millisecond

// queueSim simulates an application: a pool of workers, a queue before them, and a
// Limit before the queue. Arrivals do not depend on earlier requests. Requests that
// find the limit reached wait, at most maxWaiting of them. Time advances in steps.
type queueSim struct {
	rnd     *rand.Rand
	now     time.Duration
	limit   *Limit
	workers int
	service func() time.Duration
	rate    float64 // arrivals a second
	frozen  time.Duration

	next    time.Duration   // next arrival
	waiting int             // requests before the limit
	queued  []time.Duration // arrivals of the requests in the application's queue
	busy    []job

	window Window
	began  time.Duration
	ends   time.Duration

	done    int           // responses since the last reset
	latency time.Duration // sum of their latencies
}

type job struct{ since, ends time.Duration }

const (
	simStep    = 100 * time.Microsecond
	maxWaiting = 200
)

// newSim returns an application without load, with 8 workers and exponential service
// times of 10 ms on average.
func newSim(seed uint64) *queueSim {
	s := &queueSim{rnd: rand.New(rand.NewPCG(seed, 0)), limit: New(), workers: 8}
	s.service = func() time.Duration { return time.Duration(s.rnd.ExpFloat64() * float64(10*ms)) }
	s.ends = s.limit.Length()
	return s
}

// run simulates d. The load is a multiple of the capacity at the given mean service
// time.
func (s *queueSim) run(d time.Duration, load float64, mean time.Duration) {
	s.rate = load * float64(s.workers) / mean.Seconds()
	s.next = s.now
	s.done, s.latency = 0, 0
	for end := s.now + d; s.now < end; s.now += simStep {
		s.step()
	}
}

// goodput returns the fraction of the capacity that the last run used.
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

// lognormal sets service times with a long tail. cv is their standard deviation
// divided by their mean.
func (s *queueSim) lognormal(mean time.Duration, cv float64) {
	sigma := math.Sqrt(math.Log(1 + cv*cv))
	mu := math.Log(float64(mean)) - sigma*sigma/2
	s.service = func() time.Duration { return time.Duration(math.Exp(mu + sigma*s.rnd.NormFloat64())) }
}
