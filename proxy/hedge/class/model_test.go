package class

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/modeltest"
)

// TestConstants shows what happens at half and at twice each constant of the model. The measure changes
// by at least a fifth.
func TestConstants(t *testing.T) {
	m := modeltest.New(t, &model, .2)
	m.Check("after: there are classes, and memory for them, after fewer or more requests",
		modeltest.Of(&model.after), requestsToClasses, -1, 1)
	m.Check("samples: a class has a delay of its own earlier, by less evidence, or later",
		modeltest.Of(&model.samples), requestsToDelay, -1, 1)
	m.Check("half: a delay follows a change earlier or later",
		modeltest.Of(&model.half), secondsToFollow, -1, 1)
	m.Check("longHalf: at half, too little is known of a class with a request a second; at twice, old latencies count",
		modeltest.Of(&model.longHalf), samplesOfRare, -1, 1)
	m.Check("age: delays are computed more or less often",
		modeltest.Of(&model.age), computations, 1, -1)
	m.Check("alike: more or fewer classes have a delay of their own",
		func(by float64) { model.alike = 1 + (model.alike-1)*by }, groups, 1, -1)
}

var unequal = map[int]time.Duration{100: ms, 10_000: 10 * ms}

// requestsToClasses returns after how many pairs of a short and a long request there are classes.
func requestsToClasses() float64 {
	var s Set
	for n := 1; ; n++ {
		if learn(&s, 1, 0, unequal); s.Len() > 0 {
			return float64(n)
		}
	}
}

// requestsToDelay returns after how many of them, beyond those, short ones have a delay of their own.
func requestsToDelay() float64 {
	var s Set
	for now, n := time.Duration(0), -requestsToClasses(); ; n++ {
		now += model.age
		if learn(&s, 1, 0, unequal); s.own(now, 100) > 0 {
			return n
		}
	}
}

// secondsToFollow returns after what time the delay of short requests has followed their latency, which
// falls to a half of what it was.
func secondsToFollow() float64 {
	var s Set
	now := time.Duration(0)
	for ; now < 60*time.Second; now += 100 * ms {
		learn(&s, 10, now, map[int]time.Duration{100: 2 * ms, 10_000: 20 * ms})
	}
	for began := now; ; now += 100 * ms {
		learn(&s, 10, now, map[int]time.Duration{100: ms, 10_000: 20 * ms})
		if s.own(now, 100) < 3*ms {
			return (now - began).Seconds()
		}
	}
}

// samplesOfRare returns how many samples count, on average, of a class with a request a second.
func samplesOfRare() float64 {
	var s Set
	learn(&s, 100, 0, unequal)
	c := s.Of(0, nil, 10_000)
	sum, n := 0, 0
	for now := time.Second; now < 5*time.Minute; now += time.Second {
		s.Observe(now, 10*ms, c)
		if _, samples := s.Describe(now, c); now > 2*time.Minute {
			sum += samples
			n++
		}
	}
	return float64(sum) / float64(n)
}

// computations returns how often the delays are computed in 10 s.
func computations() float64 {
	var s Set
	learn(&s, 1000, 0, unequal)
	last, n := s.updated, 0
	for now := time.Duration(0); now < 10*time.Second; now += ms {
		if s.own(now, 100); s.updated != last {
			last = s.updated
			n++
		}
	}
	return float64(n)
}

// groups returns the number of different delays of classes whose latencies are 30% or 60% apart.
func groups() float64 {
	var s Set
	learn(&s, 1000, 0, map[int]time.Duration{100: 100 * ms, 1000: 130 * ms, 10_000: 208 * ms, 100_000: 270 * ms, 1 << 20: 432 * ms})
	seen := map[time.Duration]bool{}
	for c := range s.Len() {
		delay, _, _ := s.Estimate(model.age, ID(c+1), whole)
		seen[delay] = true
	}
	return float64(len(seen))
}
