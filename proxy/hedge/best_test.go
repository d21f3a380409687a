package hedge

import (
	"testing"
	"time"
)

// late has a route observe n requests a millisecond apart, of which one in every takes 49 ms. It returns the time after
// them.
func late(r *Route, from time.Duration, n, every int) time.Duration {
	for i := range n {
		from += ms
		took := 4*ms + time.Duration(i%64)*ms/32
		if i%every == 0 {
			took = 49 * ms
		}
		r.Latencies.Observe(from, took, 0)
		r.Delays.Choose(from)
	}
	return from
}

// TestBestDelay: the delay is in the valley before the slow requests, if it is the best one. A quantile is among them.
func TestBestDelay(t *testing.T) {
	for _, c := range []struct {
		name      string
		change    func(p *Policy)
		low, high time.Duration
	}{
		{"auto", func(*Policy) {}, 5 * ms, 8 * ms},
		{"auto in shadow mode", func(p *Policy) { p.Mode = Shadow }, 5 * ms, 8 * ms},
		{"auto while hedging is off", func(p *Policy) { p.Mode = Off }, 48 * ms, 50 * ms},
		{"p97", func(p *Policy) { p.Quantile = .97 }, 48 * ms, 50 * ms},
		{"a time", func(p *Policy) { p.Delay = 20 * ms }, 20 * ms, 20 * ms},
		{"at least 10 ms", func(p *Policy) { p.MinDelay = 10 * ms }, 10 * ms, 12 * ms},
	} {
		p := auto()
		c.change(p)
		r := NewRoute(*p, 1)
		if got := r.Delays.Of(0, 0); p.Delay == 0 && got != p.MaxDelay {
			t.Errorf("%s: without requests the delay is %v", c.name, got)
		}
		now := late(r, 0, 5000, 20)
		if got := r.Delays.Of(now, 0); got < c.low || got > c.high {
			t.Errorf("%s: the delay is %v, want %v to %v", c.name, got, c.low, c.high)
		}
	}
}

// TestMeasuredHedges: hedges that respond as late as first attempts save nothing, so nearly none is sent.
func TestMeasuredHedges(t *testing.T) {
	r := NewRoute(*auto(), 1)
	now := late(r, 0, 5000, 20)
	if best := r.Delays.Best(); !best.Gains() {
		t.Fatalf("as long as no hedge is known: %+v", best)
	}
	for i := range 200 {
		if i%2 == 0 {
			r.Latencies.Responded(now, 60*ms)
		} else {
			r.Latencies.Withdrew(now, 45*ms)
		}
	}
	now = late(r, now, 1100, 20)
	if best := r.Delays.Best(); best.Gains() || r.Delays.Of(now, 0) < 49*ms {
		t.Errorf("hedges take 60 ms: the delay is %v, %+v", r.Delays.Of(now, 0), best)
	}
}

// TestFutileComesAndGoes: requests that are late since all endpoints are silent come and go at random. Between them the
// choice does not forget them.
func TestFutileComesAndGoes(t *testing.T) {
	r := NewRoute(*auto(), 1)
	now := time.Duration(0)
	for i := range 40_000 {
		now += ms
		took := 2 * ms
		if i%32 == 0 { // a hedge helps, but there are later requests that no hedge helps
			took = 12 * ms
		}
		r.Latencies.Observe(now, took, 0)
		if i%8000 < 250 { // for a quarter of a second in eight
			r.Latencies.Observe(now, 45*ms, 0)
			r.Latencies.Futile(now, 45*ms)
		}
		r.Delays.Choose(now)
		if best := r.Delays.Best(); best.Gains() {
			t.Fatalf("after %v: %+v", now, best)
		}
	}
}

// TestBestRecovers: two seconds after a time in which all was slow, the delay is again that of before.
func TestBestRecovers(t *testing.T) {
	r := NewRoute(*auto(), 1)
	now := late(r, 0, 20_000, 20)
	before := r.Delays.Of(now, 0)
	for range 3000 {
		now += ms
		r.Latencies.Observe(now, 200*ms, 0)
		r.Delays.Choose(now)
	}
	if got := r.Delays.Of(now, 0); got <= before {
		t.Errorf("the delay is %v while requests take 200 ms", got)
	}
	now = late(r, now, 2000, 20)
	if got := r.Delays.Of(now, 0); got > before+before/4 {
		t.Errorf("two seconds later the delay is %v; it was %v", got, before)
	}
}

// TestPays: where late requests are more than the budget pays for, it pays for its part of them.
func TestPays(t *testing.T) {
	p := auto()
	p.Budget = .006
	r := NewRoute(*p, 1)
	now := late(r, 0, 5000, 100)
	paid := 0
	for range 10_000 {
		if r.Delays.DrawPaid(now, 0) {
			paid++
		}
	}
	share := r.Delays.Best().Share
	if want := int(10_000 * share); share > .7 || share < .5 || paid < want-200 || paid > want+200 {
		t.Errorf("%d of 10000 requests are paid for, want a share of %v; %+v", paid, share, r.Delays.Best())
	}
	r.Policy.Quantile = .97
	if !r.Delays.DrawPaid(now, 0) {
		t.Error("with a quantile the tokens alone decide")
	}
}

// TestInheritBest: a reload keeps the delay.
func TestInheritBest(t *testing.T) {
	old := NewRoute(*auto(), 1)
	now := late(old, 0, 5000, 20)
	r := NewRoute(*auto(), 1)
	r.Inherit(old)
	if got, want := r.Delays.Of(now, 0), old.Delays.Of(now, 0); got != want {
		t.Errorf("the delay is %v after a reload, and was %v", got, want)
	}
}

// TestBestDelayOfClasses: short and long requests have best delays of their own, each before the slow ones of its class.
func TestBestDelayOfClasses(t *testing.T) {
	r := NewRoute(*auto(), 1)
	now := time.Duration(0)
	for i := range 4000 {
		now += ms
		for size, took := range map[int]time.Duration{100: 2 * ms, 10_000: 10 * ms} {
			took += time.Duration(i%64) * took / 128
			if i%25 == 0 {
				took *= 4
			}
			r.Latencies.Observe(now, took, r.Latencies.ClassOf(now, nil, size))
			r.delayOfSize(now, size)
		}
		r.Delays.Choose(now)
	}
	for size, low := range map[int]time.Duration{100: 3 * ms, 10_000: 15 * ms} {
		if got := r.delayOfSize(now, size); got < low-low/8 || got > 2*low {
			t.Errorf("the delay of %d bytes is %v, want %v or a little more", size, got, low)
		}
		if !r.Delays.DrawPaid(now, r.Latencies.ClassOf(now, nil, size)) {
			t.Errorf("the budget does not pay for %d bytes", size)
		}
	}
}

// TestFutileCensor: requests that ended at their deadline are a reason for hedges, but not if the endpoints were silent together.
func TestFutileCensor(t *testing.T) {
	for _, together := range []bool{false, true} {
		r := NewRoute(*auto(), 1)
		for i := range 3000 {
			if r.Latencies.Observe(0, ms, 0); i%50 != 0 {
				continue
			}
			r.Latencies.Observe(0, 100*ms, 0)
			r.Latencies.Censor(0, 0)
			if together {
				r.Latencies.Futile(0, 100*ms)
				r.Latencies.FutileCensor(0)
			}
		}
		r.Delays.Choose(0)
		if c := r.Delays.Best(); !c.Known() || c.Gains() == together {
			t.Errorf("together %t: the best delay is %+v", together, c)
		}
	}
}
