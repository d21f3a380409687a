package lb

import (
	"math"
	"math/rand/v2"
	"time"
)

// paced is a set of three whose endpoints respond in turn.
type paced struct {
	Set
	now time.Duration
	rnd *rand.Rand
}

func newPaced(seed uint64) *paced {
	p := &paced{now: sec, rnd: rand.New(rand.NewPCG(seed, 2))}
	p.Update(numbered(3, even))
	return p
}

// respond has each endpoint respond a number of times a second, for a time. The first one takes so many times as long. If
// it freezes, that is for 50 ms each 2 s.
func (p *paced) respond(lasts time.Duration, rate int, times float64, freezes bool) {
	every, frozen := sec/time.Duration(rate), time.Duration(0)
	for end := p.now + lasts; p.now < end; p.now += every {
		if frozen < p.now {
			frozen = p.now + time.Duration(p.rnd.ExpFloat64()*float64(2*sec)) + 50*ms
		}
		for i := range p.Len() {
			latency := time.Duration(p.rnd.ExpFloat64()*float64(ms)) + 1
			if i == 0 {
				latency = time.Duration(float64(latency) * times)
			}
			if i == 0 && freezes && p.now > frozen-50*ms {
				latency += frozen - p.now
			}
			p.At(i).answer(p.now+time.Duration(i)*every/3, latency)
		}
	}
}

func (p *paced) factor() float64 { return p.At(0).slowness.factor }

// errorOfPace returns the standard deviation of the logarithm of the load factor of equal endpoints at a number of requests
// a second, of which the first freezes now and then.
func errorOfPace(rate int) float64 {
	seed := uint64(0)
	return deviation(100, func() float64 {
		seed++
		p := newPaced(seed)
		p.respond(100*sec, rate, 1, true)
		return math.Log(p.factor())
	})
}

// secondsToPace returns after what time the load of an endpoint that has become twice as slow counts half as much again.
func secondsToPace() float64 {
	p := newPaced(1)
	p.respond(60*sec, 100, 1, false)
	since := p.now
	for p.factor() < 1.5 {
		p.respond(100*ms, 100, 2, false)
	}
	return (p.now - since).Seconds()
}

// latenciesToPace returns after how many latencies the load of an endpoint counts twice that is four times as slow.
func latenciesToPace() float64 {
	p := newPaced(1)
	p.respond(10*sec, 1, 1, false) // it is known for long enough
	n := 0.0
	for ; p.factor() < 2; n++ {
		p.respond(10*ms, 100, 4, false)
	}
	return n
}

// factorAfterFreeze returns by which factor the load of an endpoint counts after a freeze of a minute, as a power of 2, if
// the endpoint has been known for a time.
func factorAfterFreeze(known time.Duration) func() float64 {
	return func() float64 {
		p := newPaced(1)
		p.respond(known, 100, 1, false)
		before := p.factor()
		for range 50 {
			p.At(0).answer(p.now, time.Minute)
		}
		return math.Log2(p.factor() / before)
	}
}

// factorOfSlow returns by which factor the load of an endpoint counts that is 16 times as slow as the others.
func factorOfSlow() float64 {
	p := newPaced(1)
	p.respond(20*sec, 100, 16, false)
	return p.factor()
}

// secondsToFirstPace returns after what time the load of an endpoint counts twice that is slow from the start.
func secondsToFirstPace() float64 {
	p := newPaced(1)
	for p.factor() < 2 {
		p.respond(10*ms, 1000, 4, false)
	}
	return (p.now - sec).Seconds()
}
