package queues

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/hedge"
)

const ms = time.Millisecond

func near(got, want, part float64) bool { return math.Abs(got-want) <= part*math.Abs(want) }

// TestServiceTimes: the mean of each distribution, by its formula and of many requests.
func TestServiceTimes(t *testing.T) {
	for service, want := range map[Service]float64{
		Exponential: 1, Lognormal05: 1.13315, Lognormal10: 1.64872, Bimodal: 2.13315, Unequal: 3.03348, MostLarge: 15.95195, RareLarge: 2.08159,
		Stragglers: 7.46249, FewStragglers: 6.11249,
	} {
		if got := float64(service.mean()) / float64(ms); !near(got, want, 1e-5) {
			t.Errorf("%v: the mean is %v ms, want %v", service, got, want)
		}
		const n = 100_000
		rnd, sum := rand.New(rand.NewPCG(1, 2)), time.Duration(0)
		var fast, slow []time.Duration // of stragglers
		for range n {
			size := small
			if rnd.Float64() < service.largeShare() {
				size = large
			}
			took := service.draw(rnd, size)
			if sum += took; took > 45*ms {
				slow = append(slow, took)
			} else {
				fast = append(fast, took)
			}
		}
		if got := float64(sum) / n / float64(ms); !near(got, want, 0.03) {
			t.Errorf("%v: the mean of %d requests is %v ms, want %v", service, n, got, want)
		}
		if share := service.stragglers(); share > 0 {
			if got := float64(len(slow)) / n; !near(got, share, 0.1) {
				t.Errorf("%v: %v are stragglers, want %v", service, got, share)
			}
			if more := mean(slow) - mean(fast); more < 44700*time.Microsecond || more > 45300*time.Microsecond {
				t.Errorf("%v: stragglers take %v more", service, more)
			}
		}
	}
}

func mean(all []time.Duration) (d time.Duration) {
	for _, one := range all {
		d += one
	}
	return d / time.Duration(max(1, len(all)))
}

// TestFreezeTimes: of each kind, a replica stands still for 2.5% of the time, and freezes don't overlap.
func TestFreezeTimes(t *testing.T) {
	const until = 10_000 * time.Second
	for kind, length := range map[Freezes]time.Duration{None: 0, Independent: 50 * ms, Together: 50 * ms, ManyShort: 5 * ms} {
		all := kind.starts(rand.New(rand.NewPCG(1, 2)), until)
		if got := float64(time.Duration(len(all)) * length); !near(got, float64(until)/40, 0.05) && kind != None || kind == None && len(all) > 0 {
			t.Errorf("%v: %d freezes of %v in %v", kind, len(all), length, until)
		}
		last := -length
		for _, at := range all {
			if at < last+length || at > until {
				t.Fatalf("%v: a freeze at %v, after one at %v", kind, at, last)
			}
			last = at
		}
	}
}

// TestRate: the rate has the workers busy for the share of the time.
func TestRate(t *testing.T) {
	c := Cell{Busy: 0.5, Workers: 4, Service: Exponential, Replicas: 3}
	if got := c.rate(); !near(got, 6000, 1e-9) {
		t.Errorf("%v/s, want 6,000", got)
	}
	c.Workers = 0
	if got := c.rate(); !near(got, 24000, 1e-9) {
		t.Errorf("%v/s without a limit, want those of %d workers", got, unlimited)
	}
}

// TestPolicyOfCell: a cell has the product's defaults, but for what it says itself.
func TestPolicyOfCell(t *testing.T) {
	if got := (&Cell{}).policy(); got != Policy {
		t.Errorf("%+v, want %+v", got, Policy)
	}
	want := Policy
	want.OneClass, want.Quantile, want.Budget = true, 0.5, 0.1
	if got := (&Cell{OneClass: true, Quantile: 0.5, Budget: 0.1}).policy(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// someWorld is a world in which nothing has happened yet.
func someWorld(c Cell, way Way) *world { return newWorld(c, way, Length{Requests: 1}, 1) }

// TestFinish: work stops while the replica is frozen.
func TestFinish(t *testing.T) {
	w := someWorld(Cell{Busy: 0.5, Workers: 1, Freezes: Independent, Replicas: 1, Callers: 1}, Off)
	r := newReplica(w, []time.Duration{100 * ms, 300 * ms, 360 * ms})
	for _, c := range []struct{ start, work, want time.Duration }{
		{0, 50, 50}, {0, 100, 100}, {60, 50, 160}, {100, 0, 100}, {120, 10, 160}, {150, 10, 160}, {151, 10, 161}, {250, 50, 300},
		{250, 51, 351}, {250, 60, 360}, {250, 61, 411}, {290, 200, 590}, {349, 1, 351}, {350, 1, 351}, {410, 1, 411},
	} {
		if got := r.finish(c.start*ms, c.work*ms); got != c.want*ms {
			t.Errorf("%d ms of work at %d ms end at %v, want %d ms", c.work, c.start, got, c.want)
		}
	}
	if len(r.freezes) != 0 {
		t.Errorf("%d freezes are left", len(r.freezes))
	}
}

// TestOracleWorkers: the oracle knows when the first worker is free.
func TestOracleWorkers(t *testing.T) {
	w := someWorld(Cell{Busy: 0.5, Workers: 3, Replicas: 1, Callers: 1}, Oracle)
	r := w.replicas[0]
	for _, c := range []struct{ free, until time.Duration }{
		{network, 10 * ms}, {network, 5 * ms}, {network, 7 * ms}, {5 * ms, 12 * ms}, {7 * ms, 8 * ms}, {8 * ms, 20 * ms}, {10 * ms, 11 * ms},
	} {
		if got := r.free(); got != c.free {
			t.Errorf("a worker is free at %v, want %v", got, c.free)
		}
		r.occupy(c.until)
	}
	w.Workers = 0
	w.now = ms
	for range 3 {
		if got := r.free(); got != ms+network {
			t.Errorf("without a limit: free at %v", got)
		}
		r.occupy(time.Hour)
	}
}

// TestLeastOwn: the endpoint with the fewest requests is taken, of equals the next in turn.
func TestLeastOwn(t *testing.T) {
	w := someWorld(Cell{Busy: 0.5, Workers: 1, Replicas: 3, Callers: 2}, HAProxy)
	for n, c := range w.callers {
		for _, step := range []struct{ want, start, drop int }{ // start: of the endpoint taken
			{want: 1}, {want: 2}, {want: 0}, {want: 1, start: 1}, {want: 2}, {want: 0}, {want: 2}, // 1 has a request
			{want: 2, start: 1}, {want: 0}, {want: 0, start: 1}, {want: 2}, {want: 0}, {want: 1, start: 1}, {want: 2, start: 1}, {want: 0},
		} {
			e := c.leastOwn()
			if want := address((step.want + n) % 3); e.Addr != want {
				t.Fatalf("caller %d, %+v: took %s, want %s", n, step, e.Addr, want)
			}
			for range step.start {
				e.Start(0)
			}
		}
	}
}

// TestQueueOfTied: hedges that queue get a worker after all primaries.
func TestQueueOfTied(t *testing.T) {
	for way, want := range map[Way]string{On: "hPhP", Tied: "PPhh"} {
		w := someWorld(Cell{Busy: 0.5, Workers: 1, Replicas: 1, Callers: 1, Queued: true}, way)
		r := w.replicas[0]
		for _, hedge := range []bool{true, false, true, false} {
			r.waiting = append(r.waiting, &attempt{hedge: hedge})
		}
		got := ""
		for range 4 {
			if r.next().hedge {
				got += "h"
			} else {
				got += "P"
			}
		}
		if got != want || r.passed < len(r.waiting) {
			t.Errorf("%v: %s, want %s; %d of %d have passed", way, got, want, r.passed, len(r.waiting))
		}
	}
}

// TestReportOfReplica: a response says how many attempts the replica has and how many of them queue, and when it responded last.
func TestReportOfReplica(t *testing.T) {
	for _, queued := range []bool{false, true} {
		w := someWorld(Cell{Busy: 0.5, Workers: 1, Replicas: 1, Callers: 1, Queued: queued}, Off)
		r, q := w.replicas[0], w.take()
		q.held = 10
		for range 3 {
			r.endpoint.Start(0)
		}
		r.busy, w.now = 1, 5*ms
		a := &q.attempts[0]
		want := lb.Load{Pending: 3, SinceResponse: -1}
		if queued {
			want.Queued = 2
		}
		if r.respond(a); a.load != want {
			t.Errorf("queued %t: %+v, want %+v", queued, a.load, want)
		}
		r.answered, r.busy = 0, 7
		want.SinceResponse, want.Queued = 5*ms, 0
		if r.respond(a); a.load != want {
			t.Errorf("queued %t, later: %+v, want %+v", queued, a.load, want)
		}
		if e, ok := w.next(); !ok || e.kind() != returns || e.at != 5*ms+network {
			t.Errorf("the response is %+v", e)
		}
	}
}

// TestSingleServer: requests wait as queueing theory says: M/M/1. With one replica all ways without hedges are the same.
func TestSingleServer(t *testing.T) {
	const n = 60_000
	for busy, want := range map[float64]time.Duration{0.2: 1250 * time.Microsecond, 0.5: 2 * ms} {
		c := Cell{Busy: busy, Workers: 1, Service: Exponential, Replicas: 1, Callers: 1}
		first := Run(c, Off, Length{Requests: n}, 1)
		if got := time.Duration(first.Took.Mean()); !near(float64(got), float64(want+2*network), 0.03) {
			t.Errorf("busy %v: requests take %v, want %v", busy, got, want+2*network)
		}
		if first.Requests != n || first.Took.TotalCount() != n || first.Hedges+first.Reached+first.Won != 0 || first.Small.TotalCount() != 0 {
			t.Errorf("busy %v: %+v", busy, first)
		}
		for _, way := range []Way{Oracle, HAProxy} {
			if other := Run(c, way, Length{Requests: n}, 1); other.Requests != n || !slices.Equal(quantiles(other), quantiles(first)) {
				t.Errorf("busy %v, %v: quantiles %v, want %v", busy, way, quantiles(other), quantiles(first))
			}
		}
	}
}

func quantiles(r *Result) (all []time.Duration) {
	for _, q := range []float64{.1, .5, .9, .99, .999, 1} {
		all = append(all, r.Quantile(q))
	}
	return all
}

// TestWarmUp: requests of the warm-up don't count.
func TestWarmUp(t *testing.T) {
	c := Cell{Busy: 0.5, Workers: 1, Service: Unequal, Replicas: 2, Callers: 2}
	r := Run(c, Off, Length{Requests: 5000, WarmUp: 10 * time.Second}, 1)
	if !near(float64(r.Requests), 5000, 0.05) || int(r.Took.TotalCount()) != r.Requests {
		t.Errorf("%d requests, %d latencies", r.Requests, r.Took.TotalCount())
	}
	if share := float64(r.Small.TotalCount()) / float64(r.Requests); !near(share, 0.9, 0.03) || r.SmallQuantile(.5) > r.Quantile(.5) {
		t.Errorf("%v of the requests are small, with a median of %v, that of all is %v", share, r.SmallQuantile(.5), r.Quantile(.5))
	}
}

// TestAddResults: results add up.
func TestAddResults(t *testing.T) {
	sum := NewResult()
	if sum.Extra() != 0 {
		t.Error("hedges of no requests")
	}
	for i := range 3 {
		r := &Result{Took: newLatencies(), Small: newLatencies(), Requests: 10, Hedges: 4, Reached: 3, Won: 2}
		r.Gates[hedge.Budget], r.Gates[hedge.Open] = 5, 4
		record(r.Took, time.Duration(1+i)*ms)
		record(r.Small, ms)
		sum.Add(r)
	}
	if sum.Requests != 30 || sum.Hedges != 12 || sum.Reached != 9 || sum.Won != 6 || sum.Gates[hedge.Budget] != 15 || sum.Gates[hedge.Open] != 12 ||
		sum.Took.TotalCount() != 3 || sum.Small.TotalCount() != 3 || !near(float64(sum.Quantile(.5)), float64(2*ms), 0.002) || sum.Extra() != 0.3 {
		t.Errorf("%+v", sum)
	}
}
