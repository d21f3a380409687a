package lb

import (
	"math/rand/v2"
	"time"
)

// declined counts a request that e has declined at once, or not.
func (e *Endpoint) declined(now time.Duration, declined bool) {
	e.Start(now)
	e.Judge(now, true)
	if declined {
		e.CountErrorStatus(now, 1, false)
	}
	e.Finish(now, ms)
}

// excessByChance returns how many of the requests that are declined come from endpoints that have load for that by chance,
// if all decline a twentieth.
func excessByChance() float64 {
	s, rnd, loaded, n := &Set{}, rand.New(rand.NewPCG(1, 2)), 0.0, 0.0
	s.Update(numbered(10, even))
	for now := time.Duration(0); now < 200*sec; now += 2 * ms {
		e, declined := s.At(rnd.IntN(s.Len())), rnd.IntN(20) == 0
		if e.declined(now, declined); declined {
			if n++; e.excess.share > 0 {
				loaded++
			}
		}
	}
	return loaded / n
}

// requestsToExcess returns after how many requests, on average, an endpoint is noticed that declines a fifth, if its peers
// decline a twentieth.
func requestsToExcess() (mean float64) {
	const seeds = 50
	for seed := range uint64(seeds) {
		s, rnd := &Set{}, rand.New(rand.NewPCG(seed, 2))
		s.Update(numbered(9, even))
		for now := time.Duration(0); s.At(0).excess.share == 0; now += ms / 10 {
			for i := range s.Len() {
				share := 20
				if i == 0 {
					share, mean = 5, mean+1.0/seeds
				}
				s.At(i).declined(now, rnd.IntN(share) == 0)
			}
		}
	}
	return mean
}

// errorOfPeers returns the standard deviation of the share of errors of the peers.
func errorOfPeers() float64 {
	rnd := rand.New(rand.NewPCG(1, 2))
	return deviation(500, func() float64 {
		s := &Set{}
		s.Update(numbered(40, even))
		for i := range s.Len() {
			for range 20 {
				s.At(i).declined(0, rnd.IntN(5) == 0)
			}
		}
		return usualOf(0, 0, s.peers.all.endpoints).share
	})
}

// loadLost returns which share of the load of a declined request does not count, since it ends before its time.
func loadLost() float64 {
	x := excess{share: 1, latency: 10 * ms}
	x.add(0, 0, 1)
	now := time.Duration(0)
	for x.at(now+ms/10) > 0 {
		now += ms / 10
	}
	return x.at(now)
}
