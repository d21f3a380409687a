package lb

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/modeltest"
)

// TestConstants shows what happens at half and at twice each constant that is a variable.
func TestConstants(t *testing.T) {
	modeltest.Check(t, "gapLeast: a short burst of refusals is noticed for a shorter or longer time",
		&gapLeast, millisecondsAfterRefusal, -1, 1)
	modeltest.Check(t, "gapLeast: an endpoint with a quick limit serves more or less of what it could",
		&gapLeast, servedOfQuick, 1, -1)
	modeltest.Check(t, "gapMost: an endpoint that refuses everything gets more or fewer probes",
		&gapMost, probesOfRefusing, 1, -1)
	modeltest.Check(t, "gapMost: it has its whole share again earlier or later",
		&gapMost, secondsToShare, -1, 1)
	modeltest.Check(t, "gapShrink: an endpoint with a limit refuses more or less",
		&gapShrink, refusedOfSlow, 1, -1)
	modeltest.Check(t, "gapShrink: an endpoint that has refused everything has its whole share again earlier or later",
		&gapShrink, secondsToShare, -1, 1)
	modeltest.Check(t, "capacityShare: a capacity that has fallen is known later or earlier",
		&capacityShare, reportsToCapacity, 1, -1)
	modeltest.Check(t, "capacityShare: a report between two requests changes the capacity less or more",
		&capacityShare, errorOfCapacity, -1, 1)
	modeltest.Check(t, "utilizationLife: reports at a shorter or longer distance count",
		&utilizationLife, secondsUtilized, -1, 1)
	modeltest.Check(t, "shareMost: an endpoint that says it could serve everything gets less or more",
		&shareMost, func() float64 { return pickedOfUtilized(1000) }, -1, 1)
	modeltest.Check(t, "shareMost: an endpoint that says it could serve nothing gets more or less",
		&shareMost, func() float64 { return pickedOfUtilized(.001) }, 1, -1)
	modeltest.Check(t, "ringPoints: the keys of endpoints are less or more even",
		&ringPoints, unevenKeys, 1, -1)
	modeltest.Check(t, "ringPoints: a ring takes less or more memory",
		&ringPoints, func() float64 { return float64(len(hashed(numbered(10, even)).peers.all.ring.points)) }, -1, 1)
	modeltest.Check(t, "chance: where all decline the same share, more or fewer of them have load by chance",
		&chance, excessByChance, 1, -1)
	modeltest.Check(t, "chance: an endpoint that declines more is noticed earlier or later",
		&chance, requestsToExcess, -1, 1)
	modeltest.Check(t, "peersMost: the share of the peers is less or more exact",
		&peersMost, errorOfPeers, 1, -1)
	modeltest.Check(t, "loadEnd: the load that ends before its time is more or less",
		&loadEnd, loadLost, 1, -1)
	modeltest.Check(t, "reviewEvery: an endpoint that was avoided for a failure is back earlier or later",
		&reviewEvery, secondsAvoided, -1, 1)
	modeltest.Check(t, "unknownLatency: it makes no difference",
		&unknownLatency, picksOfUnknown, 0, 0)
	modeltest.Check(t, "latencyShare: a latency that has changed is known later or earlier",
		&latencyShare, responsesToLatency, 1, -1)
	modeltest.Check(t, "latencyShare: the recent latency of equal endpoints differs less or more by chance",
		&latencyShare, errorOfLatency, -1, 1)
	modeltest.CheckFactor(t, "latencyTie: one of three idle endpoints that are equal gets more or less than its share by chance",
		&latencyTie, unevenPicks, 1, -1)
	modeltest.CheckFactor(t, "latencyTie: an idle endpoint that is a quarter slower gets fewer or more requests",
		&latencyTie, func() float64 { return picksOfSlower(1.25) }, -1, 1)
	modeltest.Check(t, "reportLife: reports at a shorter or longer distance count in the mean",
		&reportLife, secondsReported, -1, 1)
	modeltest.Check(t, "fewSilent: sets of 50 and of 100 endpoints: what is said of them is older or newer",
		&fewSilent, silenceOutdated, 1, -1)
	modeltest.Check(t, "fewSilent: sets of 50 and of 100 endpoints: they are visited less or more often",
		&fewSilent, silenceVisits, -1, 1)
	modeltest.Check(t, "rampFrom: a new endpoint, which may be cold, gets fewer or more requests at once",
		&rampFrom, firstOfRamp, -1, 1)
	modeltest.Check(t, "rampFrom: it has had ten requests later or earlier",
		&rampFrom, secondsToTen, 1, -1)
	modeltest.Check(t, "rampStep: weights grow in smaller or larger steps",
		&rampStep, stepOfRamp, -1, 1)
	modeltest.Check(t, "rampStep: weights are computed more or less often",
		&rampStep, weighings, 1, -1)
	modeltest.Check(t, "paceLife: freezes of a replica look more or less like slowness",
		&paceLife, func() float64 { return errorOfPace(50) }, 1, -1)
	modeltest.Check(t, "paceLife: an endpoint that has become slow is known earlier or later",
		&paceLife, secondsToPace, -1, 1)
	modeltest.Check(t, "pacePrior: few latencies say more or less by chance",
		&pacePrior, func() float64 { return errorOfPace(1) }, 1, -1)
	modeltest.Check(t, "pacePrior: that an endpoint is slow is known after fewer or more latencies",
		&pacePrior, latenciesToPace, -1, 1)
	modeltest.Check(t, "paceWait: a freeze just after the start looks more or less like slowness",
		&paceWait, factorAfterFreeze(time.Second), 1, -1)
	modeltest.Check(t, "paceWait: that an endpoint is slow is known earlier or later",
		&paceWait, secondsToFirstPace, -1, 1)
	modeltest.Check(t, "paceMost: a freeze looks less or more like slowness",
		&paceMost, factorAfterFreeze(20*time.Second), -1, 1)
	modeltest.Check(t, "paceMost: an endpoint that is 16 times as slow has more or less of the load",
		&paceMost, factorOfSlow, -1, 1)
	modeltest.Check(t, "spillFactor: more or fewer requests leave the zone",
		&spillFactor, func() float64 { return spilled(4, 30) }, 1, -1)
	modeltest.Check(t, "spillFactor: the endpoints of the zone have less or more load than the others",
		&spillFactor, unevenZones, -1, 1)
	modeltest.Check(t, "spillFloor: more or fewer requests leave a zone with little load",
		&spillFloor, func() float64 { return spilled(0, 9) }, 1, -1)
}

// refusing has two endpoints, of which the first has places for so many requests, and refuses the others.
type refusing struct {
	Events
	set  Set
	rnd  *rand.Rand
	busy int

	sent, refused int // requests to the first endpoint
}

func newRefusing() *refusing {
	r := &refusing{rnd: rand.New(rand.NewPCG(1, 2)), set: Set{Policy: Random{}}}
	r.set.Update(numbered(2, even))
	return r
}

// request sends a request.
func (r *refusing) request(takes time.Duration, places int) {
	e, sent := r.set.Pick(Query{Now: r.Now, Rand: r.rnd}), r.Now
	if e.Addr != "0" {
		return
	}
	e.Start(sent)
	r.sent++
	if r.busy == places {
		e.CountNoRoom(sent, sent)
		e.Drop()
		r.refused++
		return
	}
	r.busy++
	r.After(takes, func() {
		r.busy--
		e.CountTaken(sent)
		e.Finish(r.Now, takes)
	})
}

// run sends requests at a rate for a time.
func (r *refusing) run(rate int, lasts, takes time.Duration, places int) {
	end, over := r.Now+lasts, false
	var arrive func()
	arrive = func() {
		if over = r.Now >= end; !over {
			r.request(takes, places)
			r.After(time.Duration(r.rnd.ExpFloat64()*float64(sec)/float64(rate)), arrive)
		}
	}
	arrive()
	for !over {
		r.Next()
	}
}

// refusedOfSlow returns the share of its requests that the first endpoint refuses, if it serves 400 a second.
func refusedOfSlow() float64 {
	r := newRefusing()
	r.run(2000, 10*sec, 10*ms, 4)
	return float64(r.refused) / float64(r.sent)
}

// servedOfQuick returns how many requests the first endpoint serves in a second, if it could serve 4000.
func servedOfQuick() float64 {
	r := newRefusing()
	r.run(20_000, 5*sec, ms, 4)
	return float64(r.sent-r.refused) / 5
}

// millisecondsAfterRefusal returns how long requests to an endpoint have gaps after one has been refused.
func millisecondsAfterRefusal() float64 {
	r := newRefusing()
	e := r.set.At(0)
	e.Start(0)
	e.CountNoRoom(0, 0)
	e.Drop()
	for e.Refuses() {
		r.run(100_000, ms/10, 0, 1)
	}
	return float64(r.Now) / float64(ms)
}

// probesOfRefusing returns how many requests an endpoint gets in a minute that refuses everything.
func probesOfRefusing() float64 {
	r := newRefusing()
	r.run(1000, 60*sec, 0, 0)
	return float64(r.sent)
}

// secondsToShare returns after what time an endpoint has its whole share that has refused everything.
func secondsToShare() float64 {
	r := newRefusing()
	r.run(1000, 10*sec, 0, 0)
	since := r.Now
	for r.set.At(0).Refuses() {
		r.run(1000, ms, 0, 1)
	}
	return (r.Now - since).Seconds()
}

// reportsToCapacity returns after how many reports a capacity that has fallen from 16 to 8 is known.
func reportsToCapacity() (n float64) {
	c := capacity(16)
	for ; c > 9; n++ {
		c.observe(&Load{Pending: 12, Queued: 4})
	}
	return n
}

// errorOfCapacity returns the standard deviation of a capacity of 8, if in one report of four only six requests run.
func errorOfCapacity() float64 {
	rnd, c := rand.New(rand.NewPCG(1, 2)), capacity(8)
	return deviation(10_000, func() float64 {
		l := Load{Pending: 12, Queued: 4}
		if rnd.IntN(4) == 0 {
			l.Pending = 10
		}
		c.observe(&l)
		return float64(c)
	})
}

// deviation returns the standard deviation of n values.
func deviation(n int, next func() float64) float64 {
	sum, squares := 0.0, 0.0
	for range n {
		x := next()
		sum, squares = sum+x/float64(n), squares+x*x/float64(n)
	}
	return math.Sqrt(squares - sum*sum)
}

// utilized returns a set of three whose first endpoint says that it could serve so many times as much as the second says.
func utilized(times float64) *Set {
	s := &Set{Policy: WeightedRoundRobin{}}
	s.Update(numbered(3, even))
	s.At(0).ReportUtilization(0, 100*times, .5)
	s.At(1).ReportUtilization(0, 100, .5)
	return s
}

// secondsUtilized returns how long a report of utilization counts.
func secondsUtilized() float64 {
	s := utilized(2)
	for now := sec; ; now += sec {
		if s.peers.refresh(now); !s.peers.utilizations.any {
			return now.Seconds()
		}
	}
}

// pickedOfUtilized returns the share of the picks of the first endpoint.
func pickedOfUtilized(times float64) float64 {
	s := &Set{Policy: WeightedRoundRobin{}}
	s.Update(numbered(12, even)) // so that the mean is not the first
	for i := range s.Len() {
		s.At(i).ReportUtilization(0, 100, .5)
	}
	s.At(0).utilization = utilization{}
	s.At(0).ReportUtilization(0, 100*times, .5)
	picked, rnd := 0.0, rand.NewPCG(1, 2)
	for range 12_000 {
		if s.Pick(Query{Now: reviewEvery, Rand: rnd}) == s.At(0) {
			picked++
		}
	}
	return picked / 12_000
}

// unevenKeys returns the standard deviation of the keys of endpoints, as a share of them.
func unevenKeys() float64 {
	const n, keys = 100, 200_000
	s := hashed(numbered(n, even))
	counts, squares := map[string]float64{}, 0.0
	for _, addr := range owners(s, keys) {
		counts[addr]++
	}
	for _, c := range counts {
		squares += (c*n/keys - 1) * (c*n/keys - 1) / n
	}
	return math.Sqrt(squares)
}

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

// secondsAvoided returns how long after its record has expired, on average, an endpoint is avoided whose only request has
// failed.
func secondsAvoided() (mean float64) {
	const phases = 16
	for phase := range time.Duration(phases) {
		s := &Set{}
		s.Update(numbered(2, even))
		s.At(0).Judge(100*sec, false)
		now := 100*sec + phase*reviewEvery/phases
		for ; s.At(0).discount < 1; now += 10 * ms {
			s.peers.refresh(now)
		}
		mean += (now - 110*sec).Seconds() / phases
	}
	return mean
}

// picksOfUnknown returns how many of a hundred requests at once go to an endpoint of unknown latency.
func picksOfUnknown() (n float64) {
	s, rnd := &Set{Policy: PeakEWMA{}}, rand.NewPCG(1, 2)
	s.Update(numbered(3, even))
	s.At(0).answer(sec, ms)
	s.At(1).answer(sec, 30*sec)
	for range 100 {
		e := s.Pick(Query{Now: sec, Rand: rnd})
		if e.Start(sec); e == s.At(2) {
			n++
		}
	}
	return n
}

// responsesToLatency returns after how many responses a latency that is twice as long is known.
func responsesToLatency() (n float64) {
	var r Recent
	r.Add(0, 10*ms)
	for ; r.Mean() < 18*ms; n++ {
		r.Add(ms, 20*ms)
	}
	return n
}

// errorOfLatency returns the standard deviation of a recent latency, in milliseconds.
func errorOfLatency() float64 {
	rnd, r := rand.New(rand.NewPCG(1, 2)), Recent{}
	return deviation(10_000, func() float64 {
		r.Add(ms, time.Duration(rnd.ExpFloat64()*float64(ms)))
		return float64(r.Mean()) / float64(ms)
	})
}

// picksOfIdle returns the shares of three endpoints in requests that come one after another, 50 a second. The third one takes
// so many times as long, and all vary by chance.
func picksOfIdle(seed uint64, n int, times, sigma float64) (picked [3]float64) {
	s, rnd := &Set{}, rand.New(rand.NewPCG(seed, 2))
	s.Update(numbered(3, even))
	for now := sec; now < sec+time.Duration(n)*20*ms; now += 20 * ms {
		e := s.Pick(Query{Now: now, Rand: rnd})
		latency := math.Exp(rnd.NormFloat64()*sigma) * float64(5*ms)
		if e.index == 2 {
			latency *= times
		}
		e.answer(now+10*ms, time.Duration(latency))
		picked[e.index] += 1 / float64(n)
	}
	return picked
}

// unevenPicks returns the standard deviation of the share of an endpoint in a hundred requests.
func unevenPicks() float64 {
	seed := uint64(0)
	return deviation(500, func() float64 {
		seed++
		return picksOfIdle(seed, 100, 1, .5)[0]
	})
}

func picksOfSlower(times float64) float64 { return picksOfIdle(1, 5000, times, .1)[2] }

// secondsReported returns how long a report counts in the mean.
func secondsReported() float64 {
	s := &Set{}
	s.Update(numbered(2, even))
	s.At(0).Report(sec, Load{Pending: 5}, 0)
	for now := sec; ; now += 10 * ms {
		if s.peers.refresh(now); s.peers.reports.n == 0 {
			return (now - sec).Seconds()
		}
	}
}

// lookAtSilence has sets of 50 and of 100 endpoints fall silent, and counts the silent each 0.1 ms. It returns for how long
// these are not known, in milliseconds, and how many endpoints were visited.
func lookAtSilence() (outdated, visits float64) {
	const after = 83 * ms
	for _, n := range []int{50, 100} {
		s, last := &Set{}, SilentCount{}
		added, _ := s.Update(numbered(n, even))
		for _, e := range added {
			e.Start(sec)
		}
		for now := sec; ; now += ms / 10 {
			until := last.until
			_, silent := last.Count(s, now, after)
			if last.until != until {
				visits += float64(n)
			}
			if silent == n {
				break
			}
			if now >= sec+after {
				outdated += .1
			}
		}
	}
	return outdated, visits
}

func silenceOutdated() float64 {
	outdated, _ := lookAtSilence()
	return outdated
}

func silenceVisits() float64 {
	_, visits := lookAtSilence()
	return visits
}

// ramped returns a set of ten, of which the last one has just come.
func ramped() *Set {
	s := &Set{Policy: Random{}, SlowStart: 10 * sec}
	s.Update(numbered(9, even))
	s.Update(numbered(10, even))
	return s
}

// firstOfRamp returns the share of a new endpoint in the first picks, as a multiple of its part of all.
func firstOfRamp() (n float64) {
	s, rnd := ramped(), rand.NewPCG(1, 2)
	for range 20_000 {
		if s.Pick(Query{Rand: rnd}) == s.At(9) {
			n += 10.0 / 20_000
		}
	}
	return n
}

// secondsToTen returns after what time a new endpoint has had ten of 200 requests a second, on average.
func secondsToTen() (mean float64) {
	const seeds = 50
	for seed := range uint64(seeds) {
		s, rnd, n := ramped(), rand.NewPCG(seed, 2), 0
		for now := time.Duration(0); n < 10; now += 5 * ms {
			if s.Pick(Query{Now: now, Rand: rnd}) == s.At(9) {
				n++
			}
			mean += .005 / seeds
		}
	}
	return mean
}

// steps returns by how much the weight of a new endpoint grows at once, at most, and how often it grows.
func steps() (most, n float64) {
	s := ramped()
	s.peers.refresh(0)
	last := s.At(9).effectiveWeight
	for now := time.Duration(0); now <= 10*sec; now += ms {
		s.peers.refresh(now)
		if w := s.At(9).effectiveWeight; w > last {
			most, n, last = max(most, w-last), n+1, w
		}
	}
	return most, n
}

func stepOfRamp() float64 {
	most, _ := steps()
	return most
}

func weighings() float64 {
	_, n := steps()
	return n
}

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
