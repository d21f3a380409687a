package lb

import "math"

// scanUpTo is the largest number of endpoints of which a policy compares all. At twice, P99 of 64 loops with 16 replicas is a
// tenth shorter, and a pick there looks at 16 endpoints. At half, P99 with 8 replicas is a twentieth longer
// (TestConstantsOfHerds). A pick from more endpoints draws as often before it visits all.
const scanUpTo = 8

// drawUpTo is the largest number of endpoints that are drawn from a larger set. TestConstantsOfPicks shows what happens at
// twice and at half.
var drawUpTo = 8

// latencyTie is how much slower an endpoint may be and still count as equal to the fastest.
// Smaller differences are random. TestConstants shows what happens at twice and at half.
var latencyTie = 1.25

// LeastPending picks the endpoint with the least load per weight. The load is the own and the
// reported load, scaled by the endpoint's capacity: a reported queue, and responses that are
// slow for long, increase it. Among equals, such as idle endpoints, it picks one with low
// latency, and among those a random one in proportion to weight and capacity.
//
// Of more than 8 endpoints it compares two, drawn in proportion to weight, and up to 8 while the
// best is busier than usual. Two suffice to avoid loaded ones (Mitzenmacher, "The Power of Two
// Choices in Randomized Load Balancing", 2001), at a cost that does not grow with the set. Of up
// to 8 it compares all. With three replicas that sometimes freeze, two drawn ones miss the idle
// one a third of the time: without hedging P99 is 3.53 ms against 3.44 (TestScanBeatsTwoDrawn;
// medians of 1 ms). Small sets do not herd either: with 64 loops on 8 replicas that are 90% busy
// and report late, P99 is 6.4 ms, 7.1 for two drawn ones and 11.1 at random.
//
// An endpoint of little weight is nearly always idle. So idleness alone does not decide if all
// are compared: if another endpoint would have less load per weight with the request, weight
// decides between the two. Otherwise an endpoint of weight 1 beside one of 1000 would get half
// of the requests while two are always in flight (TestLeastPendingLightEndpoint).
type LeastPending struct{}

// Choose implements Policy.
func (LeastPending) Choose(v *View) *Endpoint {
	e := v.cheapest((*View).score)
	if e == nil || v.group.even || v.Len() > scanUpTo {
		return e
	}
	other := v.cheapestOfAll((*View).scoreWithOne) // nil: other loops have made all busy
	if other == nil || other == e || v.costOf((*View).score, other) <= v.costOf((*View).score, e) {
		return e
	}
	var l weightedDraw
	l.add(v, e)
	l.add(v, other)
	return l.drawn
}

// measure is the value that picks minimize.
type measure func(v *View, e *Endpoint) float64

// costOf returns the cost of e. A due probe comes first: an endpoint whose attempts have all
// failed would lose to idle and fast ones as long as its failures are remembered.
func (v *View) costOf(of measure, e *Endpoint) float64 {
	if v.mayProbe(e) {
		return -1
	}
	return of(v, e)
}

func (v *View) cheapest(of measure) *Endpoint {
	if v.Len() > scanUpTo {
		if e := v.cheapestOfDrawn(of); e != nil {
			return e
		}
	}
	return v.cheapestOfAll(of)
}

// cheapestOfDrawn compares two drawn endpoints, and more as long as the best has own requests and
// more load than usual: another may be idle, and all that were drawn may be frozen. It returns nil
// if no two were found. It prefers the first among equals: only that was drawn exactly in proportion
// to weight.
func (v *View) cheapestOfDrawn(of measure) *Endpoint {
	best := v.drawEligible(nil)
	if best == nil {
		return nil
	}
	e := v.drawEligible(best)
	if e == nil {
		return nil
	}
	least := v.costOf(of, best)
	if x := v.costOf(of, e); x < least || x == least && v.slower(best, e) {
		best, least = e, x
	}
	crowded := v.crowded(best)
	for n := 2; crowded && n < drawUpTo; n++ {
		if e = v.drawEligible(best); e == nil {
			break
		}
		if x := v.costOf(of, e); x < least {
			best, least = e, x
			crowded = v.crowded(best)
		}
	}
	return best
}

// cheapestOfAll visits every endpoint twice: for the least cost, and the least latency at that
// cost, and then to choose among equals.
func (v *View) cheapestOfAll(of measure) *Endpoint {
	var best *Endpoint
	var least float64
	var costs [scanUpTo]float64 // of the first endpoints: all of them, unless draws failed
	for i, e := range v.group.endpoints {
		x := math.Inf(1)
		if v.Eligible(e) {
			x = v.costOf(of, e)
		}
		if i < scanUpTo {
			costs[i] = x
		}
		if math.IsInf(x, 1) {
			continue
		}
		if best == nil || x < least || x == least && v.rank(e) < v.rank(best) {
			best, least = e, x
		}
	}
	if best == nil {
		return nil
	}
	var equals weightedDraw
	most := latencyTie * v.rank(best)
	for i, e := range v.group.endpoints {
		if i < scanUpTo && costs[i] != least || i >= scanUpTo && (!v.Eligible(e) || v.costOf(of, e) != least) {
			continue
		}
		if v.rank(e) <= most {
			equals.addWith(v, e, e.effectiveWeight/e.slowness.factor)
		}
	}
	if equals.drawn == nil { // other loops have changed the counts meanwhile
		return best
	}
	return equals.drawn
}

func (v *View) crowded(e *Endpoint) bool {
	return e.OfProcess() > 0 && e.load(v.Now) > e.usualLoad.Load()
}

func (v *View) slower(a, b *Endpoint) bool {
	return v.rank(a) > latencyTie*v.rank(b)
}
