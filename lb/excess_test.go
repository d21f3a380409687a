package lb

import (
	"math"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb/spare"
)

// declines runs requests at endpoints of a number of loops, which decline some of them at once. It returns
// the share of each in the requests of the second half.
func declines(p Policy, loops, busy int, seed uint64, share ...float64) []float64 {
	const n = 20000
	sets := make([]Set, loops)
	counts := make([]atomic.Int32, len(share))
	for l := range sets {
		sets[l] = Set{Policy: p, Loops: loops}
		sets[l].Update(numbered(len(share), even))
		for i := range counts {
			sets[l].At(i).CountIn(&counts[i])
		}
	}
	rnd := rand.New(rand.NewPCG(seed, 2))
	picked := make([]float64, len(share))
	var queue Events
	for i := range n {
		for queue.Len() > busy {
			queue.Next()
		}
		e := sets[rnd.IntN(loops)].Pick(Query{Now: queue.Now, Rand: rnd})
		if i >= n/2 {
			picked[e.index] += 2.0 / n
		}
		began := queue.Now
		e.Start(began)
		took := time.Duration(1+rnd.ExpFloat64()*1000) * time.Microsecond
		declined := rnd.Float64() < share[e.index]
		if declined {
			took = time.Microsecond
		}
		queue.After(took, func() {
			e.Judge(queue.Now, true)
			if declined {
				e.CountErrorStatus(queue.Now, took, false)
				took = e.LatencyOfError(took)
			}
			e.Finish(queue.Now, took)
			e.Learn(queue.Now, took, 0)
		})
	}
	return picked
}

// TestDeclineShare: an endpoint that declines more than its peers does not look idle. It gets at most
// 1.5 times its share, whatever the share of what it declines and of what its peers do, and at least a
// seventh of it. Of several loops each knows only a part, so there it may be slightly more.
func TestDeclineShare(t *testing.T) {
	for _, p := range policies {
		for _, share := range [][]float64{{1, 0, 0}, {0.8, 0, 0}, {0.4, 0, 0}, {1, 0}, {1, 0.3, 0.3}, {0.9, 0.6, 0.6}, {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}} {
			for _, c := range []struct {
				loops, busy int
				most        float64
			}{{1, 1, 1.5}, {1, 10, 1.5}, {1, 60, 1.5}, {4, 10, 1.6}} {
				sum := 0.0
				for seed := range uint64(3) {
					sum += declines(p, c.loops, c.busy, seed, share...)[0] / 3
				}
				if times := sum * float64(len(share)); times > c.most || times < 1.0/7 {
					t.Errorf("%T, %d loops, %d at once: of the shares %v the first gets %.2f times its own", p, c.loops, c.busy, share, times)
				}
			}
		}
	}
}

// TestDeclineAlike: where all endpoints decline the same share, none has load for it, but for some by
// chance.
func TestDeclineAlike(t *testing.T) {
	for _, share := range []float64{0.05, 0.5, 1} {
		s := &Set{}
		s.Update(numbered(3, even))
		rnd := rand.New(rand.NewPCG(1, 2))
		sum, n := 0.0, 0
		for now := time.Duration(0); now < 60*sec; now += ms {
			e := s.Pick(Query{Now: now, Rand: rnd})
			e.Start(now)
			e.Judge(now, true)
			if rnd.Float64() < share {
				e.CountErrorStatus(now, 1, false)
				sum, n = sum+e.excess.share, n+1
			}
			e.Finish(now, ms)
		}
		if mean := sum / float64(n); mean > 0.02 {
			t.Errorf("all decline %v: %.3f of that counts as load", share, mean)
		}
	}
}

// TestDeclinesFade: an endpoint that declines no longer has its share again once the record has
// expired, and its load at once.
func TestDeclinesFade(t *testing.T) {
	s := &Set{Loops: 4}
	s.Update(numbered(3, even))
	e, peer := s.At(0), s.At(1)
	for range 100 {
		peer.Start(0)
		peer.Judge(0, true)
		peer.Finish(0, 10*ms)
	}
	for range 100 {
		e.CountNotDone(0, 0)
	}
	if e.excess.share < 0.9 || e.excess.load < 80 || e.excess.load > 100 {
		t.Errorf("excess %v, load %v, want that of 100 requests", e.excess.share, e.excess.load)
	}
	if got := e.load(0); got != e.excess.load {
		t.Errorf("a load of %v, want %v", got, e.excess.load)
	}
	if found := e.Start(0); found != spare.LevelOf(0) || e.usualLoad.Load() != 0 {
		t.Errorf("a request found the level %d, and the usual load is %v, without work", found, e.usualLoad)
	}
	e.Drop()
	if a, b := e.load(7*ms)/e.load(0), e.load(60*ms); a < 0.45 || a > 0.55 || b != 0 {
		t.Errorf("after 7 ms %v of the load is left, after 60 ms %v", a, b)
	}
	if got, least := e.LatencyOfError(ms), e.LatencyOfError(20*ms); got != 10*ms || least != 20*ms {
		t.Errorf("errors after 1 and 20 ms have the latencies %v and %v, want that of the peers at least", got, least)
	}
	if e.Report(0, Load{Pending: 100}, 0); s.peers.reports.n != 0 {
		t.Error("what the endpoint declines counts as load of others")
	}
	e.CountIn(new(atomic.Int32))
	before := e.excess.load
	if e.CountNotDone(0, 0); e.excess.load-before < 3.5 || e.excess.load-before > 4 {
		t.Errorf("a request of one of four loops adds the load %v", e.excess.load-before)
	}
	s.Loops = 0
	s.Retune()
	before = e.excess.load
	if e.CountNotDone(0, 0); e.excess.load-before < .9 || e.excess.load-before > 1 {
		t.Errorf("a request of the only loop adds the load %v", e.excess.load-before)
	}
	before = e.excess.at(ms)
	e.CountNotDone(ms, ms)
	if got := e.excess.at(ms) - before; got < .9 || got > 1 {
		t.Errorf("a request that is declined at once adds the load %v", got)
	}
	for now := time.Duration(0); now < 15*sec; now += sec {
		s.Pick(Query{Now: now, Rand: rand.NewPCG(1, 2)})
	}
	if e.excess.share != 0 || e.excess.load != 0 {
		t.Errorf("excess %v and load %v after the record has expired", e.excess.share, e.excess.load)
	}
	if got := e.LatencyOfError(ms); got != ms {
		t.Errorf("then an error after 1 ms has the latency %v", got)
	}
}

// TestCompare: which share of the errors of an endpoint is beyond that of its peer, and beyond chance.
func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name           string
		errors, good   int
		peer, peerGood int           // errors of the peer, and attempts without
		latency        time.Duration // of the peer, once; 0 means unknown
		want           float64
	}{
		{"far beyond", 50, 50, 0, 99, ms, .92}, // a share of 1% with one more: 1, twice the root of 1, and 1 are expected
		{"just beyond", 5, 95, 0, 99, ms, .2},
		{"expected", 4, 96, 0, 99, ms, 0},
		{"the peer fails, too", 100, 0, 49, 50, ms, (100 - 50 - 2*math.Sqrt(50) - 1) / 100},
		{"a peer of unknown latency", 50, 50, 0, 99, 0, 0},
	} {
		s := &Set{}
		s.Update(numbered(2, even))
		e, peer := s.At(0), s.At(1)
		e.judgeMany(0, c.good, true)
		e.judgeMany(0, c.errors, false)
		peer.judgeMany(0, c.peerGood, true)
		peer.judgeMany(0, c.peer, false)
		if c.latency > 0 {
			peer.Start(0)
			peer.Finish(0, c.latency)
		}
		x := excess{share: 1}
		x.compare(0, &e.record, 0, s.peers.all.endpoints)
		if math.Abs(x.share-c.want) > 1e-12 || x.share > 0 && (x.latency != ms || x.peak != float64(ms)) {
			t.Errorf("%s: share %v, latency %v, peak %v, want a share of %v", c.name, x.share, x.latency, x.peak, c.want)
		}
	}
}

// TestDeclinedLoad: a declined request is load for the rest of the usual latency, and fades.
func TestDeclinedLoad(t *testing.T) {
	x := excess{share: .5, latency: 10 * ms}
	half := time.Duration(math.Round(math.Ln2 * 10e6))
	for _, c := range []struct {
		after, took time.Duration
		want        float64 // load
	}{{0, 0, 2}, {0, 5 * ms, 3}, {0, 10 * ms, 3}, {0, 20 * ms, 3}, {half, 0, 3.5}, {2*half + half, 5 * ms, 3.5/8 + 1}} {
		now := max(x.loadAt, sec) + c.after
		if x.add(now, c.took, 4); math.Abs(x.at(now)-c.want) > 1e-6 {
			t.Errorf("%v later, after %v: load %v, want %v", c.after, c.took, x.at(now), c.want)
		}
	}
}

// TestErrorsCountOnce: an error that was judged bad is the same error as its status.
func TestErrorsCountOnce(t *testing.T) {
	for _, bad := range []bool{false, true} {
		_, e := one(t)
		e.Judge(0, !bad)
		e.CountErrorStatus(0, 0, bad)
		if errors, all := e.record.Errors(); errors != 1 || all != 1 {
			t.Errorf("judged bad %t: %v errors of %v", bad, errors, all)
		}
	}
}

// TestPeersOfMany: in a large set an endpoint is compared with those next to it, around its end.
func TestPeersOfMany(t *testing.T) {
	for _, n := range []int{1, 2, peersMost + 1, peersMost + 2} {
		s := &Set{}
		s.Update(numbered(n, even))
		last := s.At(n - 1)
		for i := range n - 1 {
			s.At(i).Judge(0, false)
		}
		want := min(n-1, peersMost)
		if p := usualOf(0, last.index, s.peers.all.endpoints); p.share != 1 {
			t.Errorf("%d endpoints: share %v, want 1", n, p.share)
		}
		last.Judge(0, true)
		for i := range n - 1 {
			s.At(i).Judge(0, true)
		}
		if p, want := usualOf(0, last.index, s.peers.all.endpoints), float64(want+1)/float64(2*want+1); p.share != want {
			t.Errorf("%d endpoints: share %v, want %v", n, p.share, want)
		}
	}
}

// TestRefusalsAllocateNothing also covers picks among endpoints that refuse and decline.
func TestRefusalsAllocateNothing(t *testing.T) {
	s := &Set{}
	s.Update(numbered(20, even))
	rnd := rand.NewPCG(1, 2)
	var now time.Duration
	if n := testing.AllocsPerRun(1000, func() {
		now += ms
		e := s.Pick(Query{Now: now, Rand: rnd})
		e.Start(now)
		if e.index%2 == 0 {
			e.Judge(now, true)
			e.CountErrorStatus(now, 1, false)
			e.Finish(now, e.LatencyOfError(1))
			return
		}
		e.CountNoRoom(now, now)
		e.Drop()
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkPickDeclined is a pick where endpoints decline, for comparison with BenchmarkPick.
func BenchmarkPickDeclined(b *testing.B) {
	for _, n := range []int{3, 8, 100} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			s := &Set{}
			s.Update(numbered(n, even))
			for _, e := range s.peers.all.endpoints {
				e.excess.latency, e.excess.load = ms, 1
			}
			rnd := rand.NewPCG(1, 2)
			for b.Loop() {
				s.Pick(Query{Now: ms, Rand: rnd})
			}
		})
	}
}

// TestDeclinedLoadIsForgotten: the load of declined requests is kept until its time is over.
func TestDeclinedLoadIsForgotten(t *testing.T) {
	x := excess{load: 4, latency: time.Second}
	if x.review(100*time.Millisecond, nil, 0, nil); x.load != 4 {
		t.Errorf("the load is %v soon after, and was 4", x.load)
	}
	if x.review(time.Minute, nil, 0, nil); x.load != 0 {
		t.Errorf("the load is %v after a minute", x.load)
	}
}
