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
	modeltest.Check(t, "ringPoints: if 97 of 100 endpoints can't be picked, more or fewer keys have no endpoint of their own",
		&ringPoints, strayKeys, 1, -1)
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

// strayKeys returns the share of the keys whose requests go to several endpoints, if 97 of 100 can't be picked.
func strayKeys() (share float64) {
	const keys = 10_000
	s, rnd := stalledSet(ConsistentHash{}, 97), rand.NewPCG(1, 2)
	for key := range uint64(keys) {
		q := Query{Now: sec, Rand: rnd, Key: mix(key)}
		if one, next := s.Pick(q), s.Pick(q); one != next {
			share += 1.0 / keys
		}
	}
	return share
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
