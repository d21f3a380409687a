package periodic

import (
	"math"
	"testing"
	"time"
)

// TestAtLeast compares the probability with the sum of the binomial distribution.
func TestAtLeast(t *testing.T) {
	for n := range 12 {
		for _, p := range []float64{1.0 / 256, .1, .5, .9} {
			want, choose := 0.0, 1.0
			for k := n; k >= -1; k-- {
				if k >= 0 {
					want += choose * math.Pow(p, float64(k)) * math.Pow(1-p, float64(n-k))
					choose *= float64(k) / float64(n-k+1)
				}
				if got := atLeast(k, n, p); math.Abs(got-want) > 1e-9*want {
					t.Errorf("at least %d of %d events of the probability %v: %v, want %v", k, n, p, got, want)
				}
			}
			if got := atLeast(n+1, n, p); got != 0 {
				t.Errorf("more than %d of as many events: %v", n, got)
			}
		}
	}
}

// TestJudge compares the line through beats with the one that goes through their mean by the covariance.
func TestJudge(t *testing.T) {
	rnd, found := seeded(3), 0
	for range 300 {
		jitter := []float64{0, .001, .004, .02, .06}[rnd.IntN(5)]
		beats, stalls, number := []beat{{}}, 1, 0.0
		for range 1 + rnd.IntN(10) {
			number += []float64{1, 1, 1, 2, 3}[rnd.IntN(5)]
			beats = append(beats, beat{number, (number + jitter*(2*rnd.Float64()-1)) * float64(10*time.Second)})
			stalls += 1 + rnd.IntN(2)
		}
		n := float64(len(beats))
		var meanX, meanY, xx, xy float64
		for _, b := range beats {
			meanX, meanY = meanX+b.number/n, meanY+b.back/n
		}
		for _, b := range beats {
			xx, xy = xx+(b.number-meanX)*(b.number-meanX), xy+(b.number-meanX)*(b.back-meanY)
		}
		every := xy / xx
		var want Period
		least := 1.0
		if n >= 3 && n/(number+1) >= model.leastBeats {
			for _, share := range model.jitters {
				near, most := 0, model.leastJitter
				for _, b := range beats {
					if off := time.Duration(math.Abs(b.back - meanY - (b.number-meanX)*every)); float64(off) <= share*every {
						near, most = near+1, max(most, off)
					}
				}
				if chance := atLeast(near-2, stalls-2, 2*share); chance < least {
					least = chance
					want = Period{Every: time.Duration(every), Last: -time.Duration(meanY - every*meanX), Jitter: most, Seen: near}
				}
			}
		}
		got, chance := judge(beats, stalls)
		off := max((got.Every - want.Every).Abs(), (got.Last - want.Last).Abs(), (got.Jitter - want.Jitter).Abs())
		if math.Abs(chance-least) > 1e-6*least || off > time.Microsecond || got.Seen != want.Seen {
			t.Fatalf("%v of %d stalls: %+v by a chance of %v, want %+v by %v", beats, stalls, got, chance, want, least)
		}
		if want.Seen > 0 {
			found++
		}
	}
	if found < 100 {
		t.Errorf("only %d of 300 have a period", found)
	}
}

// TestBounds: the shortest and the longest period, and the longest stalls that still have one.
func TestBounds(t *testing.T) {
	for _, c := range []struct {
		period, length time.Duration
		found          bool
	}{
		{2 * time.Second, 100 * time.Millisecond, true}, {2*time.Second - time.Millisecond, 100 * time.Millisecond, false},
		{time.Hour, 100 * time.Millisecond, true}, {time.Hour + time.Millisecond, 100 * time.Millisecond, false},
		{10 * time.Second, 5 * time.Second, true}, {10 * time.Second, 5*time.Second + time.Millisecond, false},
		{10 * time.Second, 50 * time.Millisecond, true}, {10 * time.Second, 50*time.Millisecond - 1, false},
	} {
		h := new(history).replay(c.length, beats(seeded(1), 5, c.period, 0, 0)...)
		want := Period{Every: c.period, Length: c.length, Last: time.Second + 4*c.period, Jitter: model.leastJitter, Seen: 5}
		if !c.found {
			want = Period{}
		}
		if got := h.Period(h.now); got != want || h.found != map[bool]int{true: 1}[c.found] {
			t.Errorf("stalls of %v each %v: %+v, want %+v", c.length, c.period, got, want)
		}
	}
}

// TestSeen: so many stalls are remembered, and those before more missed beats than three in a row do not belong to the period.
// The length of a stall is that of all in the period on average.
func TestSeen(t *testing.T) {
	const period = 10 * time.Second
	for _, c := range []struct {
		earlier, gap, later int
		seen                int
		length              time.Duration
	}{
		{0, 0, 40, 32, 300 * time.Millisecond}, {8, 1, 5, 13, 10 * time.Millisecond * (8*10 + 5*30) / 13}, {8, 4, 5, 13, 10 * time.Millisecond * (8*10 + 5*30) / 13},
		{8, 5, 12, 12, 300 * time.Millisecond},
	} {
		h := new(history)
		for i := range c.earlier {
			h.replay(100*time.Millisecond, time.Second+time.Duration(i)*period)
		}
		last := time.Second + time.Duration(c.earlier-1+c.gap)*period
		for i := range c.later {
			h.replay(300*time.Millisecond, last+time.Duration(i)*period)
		}
		if p := h.Period(h.now); p.Seen != c.seen || p.Length != c.length || p.Every != period {
			t.Errorf("%+v: %+v", c, p)
		}
	}
}

// TestGoesOn: a silence soon after a stall goes on with it, and a later one is another stall.
func TestGoesOn(t *testing.T) {
	for gap, stalls := range map[time.Duration]int{0: 1, model.stallGap - 1: 1, model.stallGap: 2} {
		h := new(history).replay(200*time.Millisecond, 10*time.Second)
		h.look(h.now+gap, true, h.now+gap)
		if !h.Open() {
			t.Error("a stall is not open")
		}
		h.look(h.now+100*time.Millisecond, false, 0)
		if h.count != stalls || h.Open() {
			t.Errorf("after %v there are %d stalls, want %d", gap, h.count, stalls)
		}
	}
}

// TestMoments: when a stall is expected, and when a period is over, to the nanosecond.
func TestMoments(t *testing.T) {
	const s = time.Second
	p := Period{Every: 10 * s, Length: s, Last: 103 * s, Jitter: s / 10}
	for at, want := range map[time.Duration]bool{
		113*s - p.Jitter - 1: false, 113*s - p.Jitter: true, 113*s + p.Length + p.Jitter - 1: true, 113*s + p.Length + p.Jitter: false,
	} {
		if got := p.expects(at); got != want {
			t.Errorf("at %v a stall is expected: %t", at, got)
		}
	}
	for at, want := range map[time.Duration]bool{133*s + p.Jitter + p.Length: false, 133*s + p.Jitter + p.Length + 1: true} {
		if got := p.over(at); got != want {
			t.Errorf("at %v it is over: %t", at, got)
		}
	}
}

// TestDistances: a period is found where only the two latest stalls are a beat apart, or where these are two beats apart.
func TestDistances(t *testing.T) {
	for _, beats := range [][]time.Duration{{0, 2, 3, 5, 6}, {0, 1, 3, 4, 6}, {0, 1, 2, 4, 6}} {
		h := new(history)
		for _, n := range beats {
			h.replay(100*time.Millisecond, time.Second+n*10*time.Second)
		}
		if p := h.Period(h.now); p.Every != 10*time.Second || p.Seen != 5 {
			t.Errorf("stalls at the beats %d: %+v", beats, p)
		}
	}
}

// TestMeanLength: the length of a stall is that of all in the period on average, the latest one among them.
func TestMeanLength(t *testing.T) {
	h := new(history)
	for i := range time.Duration(5) {
		h.replay((1+i)*100*time.Millisecond, time.Second+i*10*time.Second)
	}
	if p := h.Period(h.now); p.Length != 300*time.Millisecond {
		t.Errorf("%+v", p)
	}
}

// TestHiccupAfterPeriod: a short silence does not bring back a period that is over.
func TestHiccupAfterPeriod(t *testing.T) {
	h := new(history).replay(100*time.Millisecond, beats(seeded(1), 5, 10*time.Second, 0, 0)...)
	h.replay(30*time.Millisecond, h.now+time.Minute)
	if h.replay(30*time.Millisecond, h.now+time.Second); h.found != 1 || h.over != 1 || h.Period(h.now).Every != 0 {
		t.Errorf("found %d times, over %d times", h.found, h.over)
	}
}

// TestFarFromBeat: a stall that is further from its beat than a sixteenth of the period does not belong to it, and changes nothing.
// One that is nearer does, although it is too far for the jitter.
func TestFarFromBeat(t *testing.T) {
	for off, belongs := range map[time.Duration]bool{-640: false, -610: true, 610: true, 640: false} {
		h := new(history)
		for i := range time.Duration(8) {
			at := time.Second + i*10*time.Second
			if i == 2 {
				at += off * time.Millisecond
			}
			h.replay(100*time.Millisecond, at)
		}
		if p := h.Period(h.now); (p.Every == 10*time.Second && p.Seen == 7) == belongs {
			t.Errorf("off by %d ms: %+v", off, p)
		}
	}
}
