package probe

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/modeltest"
)

// TestConstants shows what happens at half and at twice each constant.
func TestConstants(t *testing.T) {
	modeltest.Check(t, "rateMost: loops with fewer or more requests send probes",
		&rateMost, mostRate, -1, 1)
	modeltest.Check(t, "rateLife: a burst is taken for busy traffic, and ends the probes, more or less often",
		&rateLife, changesOfRate, 1, -1)
	modeltest.Check(t, "rateLife: a loop that has become busy goes on with its probes for a shorter or longer time",
		&rateLife, secondsToBusy, -1, 1)
	modeltest.Check(t, "othersLeast: probes begin at less or more load of others",
		&othersLeast, leastOthers, -1, 1)
	modeltest.Check(t, "othersShare: others that have come are known later or earlier",
		&othersShare, secondsToOthers, 1, -1)
	modeltest.Check(t, "othersShare: reports that meet nothing by chance end the probes less or more often",
		&othersShare, pausesByChance, -1, 1)
	modeltest.Check(t, "latencyLeast: quicker or only slower services are probed",
		&latencyLeast, leastLatency, -1, 1)
	modeltest.Check(t, "reportLife: loops whose reports are newer or only those whose reports are older send probes",
		&reportLife, mostLatency, 1, -1)
	modeltest.Check(t, "waitShare: a request waits for a larger or smaller part of the latency",
		&waitShare, func() float64 { return WaitOf(10 * ms).Seconds() }, 1, -1)
	modeltest.Check(t, "waitLeast: requests of quick services wait for a shorter or longer time",
		&waitLeast, func() float64 { return WaitOf(time.Millisecond).Seconds() }, -1, 1)
	modeltest.Check(t, "waitMost: requests of slow services wait for a shorter or longer time",
		&waitMost, func() float64 { return WaitOf(time.Second).Seconds() }, -1, 1)
	modeltest.Check(t, "skipMost: while no endpoint answers, more or fewer requests wait in vain",
		&skipMost, waitsInVain, 1, -1)
	modeltest.Check(t, "skipMost: once endpoints answer again, fewer or more requests do not wait for that",
		&skipMost, requestsUntilWait, -1, 1)
	modeltest.Check(t, "lifeLeast: answers of quick services serve for a shorter or longer time",
		&lifeLeast, lifeOfQuick, -1, 1)
}

// traffic is typical sparse traffic.
var traffic = Traffic{Endpoints: 10, Others: 1.5, Known: true, Latency: 50 * ms}

// sparse is traffic that is observed each 100 ms, at a number of requests a second.
type sparse struct {
	Sparse
	now     time.Duration
	traffic Traffic
}

func (s *sparse) run(lasts time.Duration, rate float64) {
	for end := s.now + lasts; s.now < end; {
		s.now += 100 * ms
		s.traffic.Requests = uint64(math.Round(float64(s.traffic.Requests) + rate/10))
		s.Observe(s.now, &s.traffic)
	}
}

// probed reports whether probes are sent in such traffic.
func probed(rate float64, t Traffic) bool {
	s := sparse{traffic: t}
	s.run(30*time.Second, rate)
	return s.On()
}

// mostRate returns the largest rate at which probes are sent.
func mostRate() float64 {
	rate := 10.0
	for probed(rate+10, traffic) {
		rate += 10
	}
	return rate
}

// changesOfRate returns how often probes begin or end in an hour of 40 requests a second that come at random.
func changesOfRate() (n float64) {
	var s Sparse
	t, rnd, on := traffic, rand.New(rand.NewPCG(1, 2)), false
	for now := time.Duration(0); now < time.Hour; now += 100 * ms {
		for range 400 {
			if rnd.Float64() < 4./400 {
				t.Requests++
			}
		}
		if s.Observe(now, &t); s.On() != on {
			on = s.On()
			n++
		}
	}
	return n
}

// secondsToBusy returns after what time the probes end of a loop whose rate grows from 10 to 90 a second.
func secondsToBusy() float64 {
	s := sparse{traffic: traffic}
	s.run(30*time.Second, 10)
	since := s.now
	for s.On() {
		s.run(100*ms, 90)
	}
	return (s.now - since).Seconds()
}

// leastOthers returns the least load of others at which probes are sent.
func leastOthers() float64 {
	t := traffic
	for t.Others = .01; !probed(10, t); {
		t.Others += .01
	}
	return t.Others
}

// secondsToOthers returns after what time probes begin once others have come.
func secondsToOthers() float64 {
	s := sparse{traffic: traffic}
	s.traffic.Others = 0
	s.run(30*time.Second, 10)
	since := s.now
	for s.traffic.Others = .5; !s.On(); {
		s.run(100*ms, 10)
	}
	return (s.now - since).Seconds()
}

// pausesByChance returns how often probes end in an hour, if a report meets a request of others one time in three.
func pausesByChance() (n float64) {
	s, rnd, on := sparse{traffic: traffic}, rand.New(rand.NewPCG(1, 2)), false
	for s.now < time.Hour {
		s.traffic.Others = 0
		if rnd.IntN(3) == 0 {
			s.traffic.Others = 1
		}
		if s.run(100*ms, 10); on && !s.On() {
			n++
		}
		on = s.On()
	}
	return n
}

// leastLatency returns the least latency, in milliseconds, of a service that is probed.
func leastLatency() float64 {
	t := traffic
	for t.Latency = ms / 10; !probed(10, t); {
		t.Latency += ms / 10
	}
	return float64(t.Latency) / float64(ms)
}

// mostLatency returns the longest latency, in seconds, of a service that is probed: requests in flight bring reports.
func mostLatency() float64 {
	t := traffic
	for t.Latency = 100 * ms; probed(10, t); {
		t.Latency += 100 * ms
	}
	return t.Latency.Seconds()
}

// waitsInVain returns how many of 100,000 requests wait while no endpoint answers.
func waitsInVain() (n float64) {
	var p Patience
	for range 100_000 {
		if p.Waits() {
			n++
			p.InVain()
		}
	}
	return n
}

// requestsUntilWait returns how many requests do not wait after many have waited in vain.
func requestsUntilWait() (n float64) {
	var p Patience
	for range 100 {
		p.InVain()
	}
	for ; !p.Waits(); n++ {
	}
	return n
}

// lifeOfQuick returns for how long an answer of a service serves that takes half a millisecond.
func lifeOfQuick() float64 {
	var p Pool[string]
	p.addAll(0, abc, Answer[string]{Latency: ms / 2})
	now := time.Duration(0)
	for p.Enough(now, 1) {
		now += ms / 100
	}
	return now.Seconds()
}
