package lb

import (
	"math/rand/v2"
	"time"
)

// zones is a zone and another one, each with two endpoints. All requests are of the first.
type zones struct {
	Events
	*Set
	rnd  *rand.Rand
	near int
	far  int
	over float64 // sum of the load of an endpoint in the zone divided by that of another one, as picks found it
}

// runZones keeps requests in flight: so many of this process, and so many of others at each endpoint elsewhere.
func runZones(own, others int) *zones {
	z := &zones{Set: zoned(nil, map[string]int{"a": 2, "b": 2}), rnd: rand.New(rand.NewPCG(1, 2))}
	z.Stall = Stall{}
	for range others {
		for _, e := range z.peers.far.endpoints {
			e.OpenStream(0)
		}
	}
	var send func()
	send = func() {
		if z.Now > 20*sec {
			return
		}
		e, now := z.Pick(Query{Now: z.Now, Rand: z.rnd}), z.Now
		if e.Zone == "a" {
			z.near++
		} else {
			z.far++
		}
		e.Start(now)
		z.over += (z.At(0).load(now) + 1) / (z.At(2).load(now) + 1)
		z.After(time.Duration(z.rnd.ExpFloat64()*float64(5*ms)), func() {
			e.Finish(z.Now, z.Now-now)
			send()
		})
	}
	for range own {
		z.After(0, send)
	}
	for z.Events.Len() > 0 {
		z.Next()
	}
	return z
}

// spilled returns the share of the requests that leave the zone.
func spilled(others, own int) float64 {
	z := runZones(own, others)
	return float64(z.far) / float64(z.near+z.far)
}

// unevenZones returns how many times the load of an endpoint elsewhere one of the zone has, on average.
func unevenZones() float64 {
	z := runZones(30, 4)
	return z.over / float64(z.near+z.far)
}
