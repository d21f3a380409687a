package periodic

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/modeltest"
)

// TestConstants shows what happens at half and at twice each constant of the model.
func TestConstants(t *testing.T) {
	m := modeltest.New(t, &model, .1)
	m.Check("minStall: at half, silences by chance hide the period; at twice, the stalls are none",
		modeltest.Of(&model.minStall), foundAmongHiccups, -1, -1)
	m.Check("stallGap: at half, the backlog is no part of a stall; at twice, another stall is",
		modeltest.Of(&model.stallGap), lengthWithBacklog, -1, 1)
	m.Check("leastJitter: hedges are withheld for a shorter or a longer time",
		modeltest.Of(&model.leastJitter), withheld, -1, 1)
	m.Check("stalls: at half, a period among other stalls is found less often; at twice, no more often",
		modeltest.Of(&model.stalls), foundAmongOthers, -1, 0)
	m.Check("minPeriod: more or fewer quick periods are found",
		modeltest.Of(&model.minPeriod), func() float64 { return foundExact(1500*time.Millisecond) + foundExact(3*time.Second) }, 1, -1)
	m.Check("maxPeriod: fewer or more slow periods are found",
		modeltest.Of(&model.maxPeriod), func() float64 { return foundExact(40*time.Minute) + foundExact(100*time.Minute) }, -1, 1)
	m.Check("candidates: at half, a period among other stalls is not found; at twice, no more often",
		modeltest.Of(&model.candidates), foundAmongOthers, -1, 0)
	m.Check("jitters: at half, stalls that are not exact have no period; at twice, those that are exact have it later",
		func(by float64) {
			for i := range model.jitters {
				model.jitters[i] *= by
			}
		}, func() float64 { return foundExact(time.Minute) + found(10, time.Minute, 1500*time.Millisecond, 0) }, -1, -1)
	m.Check("missedBeats: a period is over earlier or later",
		modeltest.Of(&model.missedBeats), beatsUntilOver, -1, 1)
	m.Check("leastBeats: at half, a period with few stalls is found; at twice, none is",
		modeltest.Of(&model.leastBeats), func() float64 { return found(30, time.Minute, 0, .5) }, 1, -1)
	m.Check("leastChance: at half, five exact stalls do not suffice; at twice, four do not either",
		modeltest.Of(&model.leastChance), func() float64 { return foundExact(time.Minute) + found(4, time.Minute, 0, 0) }, -1, 0)
}

// histories is how many seeds a measure has.
const histories = 100

// share returns the share of histories for which play finds the period.
func share(period time.Duration, play func(seed uint64) *history) float64 {
	n := 0
	for seed := range uint64(histories) {
		h := play(seed)
		if p := h.Period(h.now); (p.Every - period).Abs() < period/100 {
			n++
		}
	}
	return float64(n) / histories
}

// found returns the share of histories of n beats whose period is known at the end.
func found(n int, period, jitter time.Duration, missed float64) float64 {
	return share(period, func(seed uint64) *history {
		return new(history).replay(min(900*time.Millisecond, period/5), beats(seeded(seed), n, period, jitter, missed)...)
	})
}

func foundExact(period time.Duration) float64 { return found(5, period, 0, 0) }

// foundAmongHiccups has stalls of 60 ms, and six silences of 30 ms by chance between two of them.
func foundAmongHiccups() float64 {
	return share(time.Minute, func(seed uint64) *history {
		h, rnd := new(history), seeded(seed)
		for i := range 12 {
			at := time.Duration(i) * time.Minute
			h.replay(60*time.Millisecond, at)
			for range 6 {
				at += time.Second + time.Duration(rnd.Float64()*8*float64(time.Second))
				h.replay(30*time.Millisecond, at)
			}
		}
		return h
	})
}

// foundAmongOthers has two stalls at random times after each of 40 beats.
func foundAmongOthers() float64 {
	return share(time.Minute, func(seed uint64) *history {
		h, rnd := new(history), seeded(seed)
		for i := range 40 {
			at := time.Duration(i) * time.Minute
			h.replay(900*time.Millisecond, at)
			for range 2 {
				at += time.Duration((2 + 25*rnd.Float64()) * float64(time.Second))
				h.replay(900*time.Millisecond, at)
			}
		}
		return h
	})
}

// lengthWithBacklog returns the sum of the lengths in seconds of two periods: of stalls of 300 ms with
// a backlog 400 ms after their ends, and of stalls with another one 800 ms after their ends.
func lengthWithBacklog() (sum float64) {
	for _, after := range []time.Duration{400 * time.Millisecond, 800 * time.Millisecond} {
		h := new(history)
		for i := range 8 {
			at := time.Duration(i) * 10 * time.Second
			h.replay(300*time.Millisecond, at)
			h.replay(100*time.Millisecond, at+300*time.Millisecond+after)
		}
		p := h.Period(h.now)
		sum += p.Length.Seconds()
	}
	return sum
}

// withheld returns the share of time in which a stall of 100 ms each 10 s is expected, beyond that of
// the stall.
func withheld() float64 {
	h := new(history).replay(100*time.Millisecond, beats(seeded(1), 8, 10*time.Second, 0, 0)...)
	n := 0
	for ms := range 10_000 {
		if h.Expects(h.now + time.Duration(ms)*time.Millisecond) {
			n++
		}
	}
	return float64(n)/10_000 - 0.01
}

// beatsUntilOver returns after how many beats without a stall a period is over.
func beatsUntilOver() float64 {
	h := new(history).replay(100*time.Millisecond, beats(seeded(1), 8, 10*time.Second, 0, 0)...)
	for n := 0; ; n++ {
		if p := h.Period(h.now + time.Duration(n)*10*time.Second); p.Every == 0 {
			return float64(n)
		}
	}
}
