package periodic

import (
	"math/rand/v2"
	"testing"
	"time"
)

// history is what Stalls made of stalls.
type history struct {
	Stalls
	found, over int           // changes
	first       int           // the number of the stall with the first period, from 1; 0 means none
	now         time.Duration // of the last look
}

func (h *history) look(now time.Duration, stalled bool, since time.Duration) {
	h.now = now
	switch h.Look(now, stalled, since, 5*time.Millisecond) {
	case Found:
		h.found++
	case Over:
		h.over++
	}
}

// replay makes stalls of one length, with looks before them, in them and at their ends.
func (h *history) replay(length time.Duration, onsets ...time.Duration) *history {
	for i, onset := range onsets {
		if onset > h.now { // not within the last one
			h.look(onset, false, 0)
		}
		h.look(max(h.now, onset+20*time.Millisecond), true, onset)
		h.look(max(h.now, onset+length), false, 0)
		if h.found > 0 && h.first == 0 {
			h.first = i + 1
		}
	}
	return h
}

// beats returns n times with a period, each up to jitter away from its beat, without the share missed.
func beats(rnd *rand.Rand, n int, period, jitter time.Duration, missed float64) (onsets []time.Duration) {
	for i := range n {
		at := time.Second + time.Duration(i)*period + time.Duration((2*rnd.Float64()-1)*float64(jitter))
		if i == 0 || rnd.Float64() >= missed {
			onsets = append(onsets, at)
		}
	}
	return onsets
}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

func TestPeriodFound(t *testing.T) {
	for _, c := range []struct {
		name           string
		period, jitter time.Duration
		missed         float64
		latest         int // the number of the stall by which the period is found, for 19 of 20 seeds
	}{
		{"a minute", time.Minute, 0, 0, 5},
		{"ten seconds", 10 * time.Second, 0, 0, 5},
		{"two seconds", 2*time.Second + 5*time.Millisecond, 0, 0, 5},
		{"an hour", time.Hour - time.Second, 0, 0, 5},
		{"jitter", time.Minute, 300 * time.Millisecond, 0, 6},
		{"large jitter", time.Minute, time.Second, 0, 9},
		{"some missed", time.Minute, 0, 0.2, 6},
		{"some missed, and jitter", time.Minute, 300 * time.Millisecond, 0.2, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			late := 0
			for seed := range uint64(200) {
				h := new(history).replay(900*time.Millisecond, beats(seeded(seed), 30, c.period, c.jitter, c.missed)...)
				p := h.Period(h.now)
				if h.first == 0 || h.first > c.latest || (p.Every-c.period).Abs() > c.period/100 || (p.Length-900*time.Millisecond).Abs() > time.Millisecond {
					late++
				}
			}
			if late > 10 {
				t.Errorf("%d of 200 were found after stall %d, or have another period", late, c.latest)
			}
		})
	}
}

// TestPeriodAmongOthers checks that a period is found among as many stalls at random times.
func TestPeriodAmongOthers(t *testing.T) {
	missed := 0
	for seed := range uint64(200) {
		h, rnd := new(history), seeded(seed)
		for i := range 30 {
			at := time.Duration(i) * time.Minute
			h.replay(900*time.Millisecond, at, at+time.Duration((5+50*rnd.Float64())*float64(time.Second)))
		}
		if p := h.Period(h.now); (p.Every-time.Minute).Abs() > time.Second || p.Seen < 10 {
			missed++
		}
	}
	if missed > 4 {
		t.Errorf("%d of 200 were missed", missed)
	}
}

// TestRandomStalls checks that stalls at random times have no period.
func TestRandomStalls(t *testing.T) {
	for name, next := range map[string]func(rnd *rand.Rand) float64{
		"independent": func(rnd *rand.Rand) float64 { return 1 + 10*rnd.ExpFloat64() },
		"rare":        func(rnd *rand.Rand) float64 { return 600 * rnd.ExpFloat64() },
		"in bursts": func(rnd *rand.Rand) float64 {
			if rnd.IntN(4) > 0 {
				return 1 + rnd.ExpFloat64()
			}
			return 60 * rnd.ExpFloat64()
		},
	} {
		wrong := 0
		for seed := range uint64(1000) {
			rnd, at := seeded(seed), time.Duration(0)
			h := new(history)
			for range 200 {
				at += time.Duration(next(rnd) * float64(time.Second))
				h.replay(300*time.Millisecond, at)
			}
			if h.found > 0 {
				wrong++
			}
		}
		if wrong > 1 {
			t.Errorf("%s: %d of 1,000 histories have a period", name, wrong)
		}
	}
}

func TestPeriodOver(t *testing.T) {
	const period = 10 * time.Second
	h := new(history).replay(900*time.Millisecond, beats(seeded(1), 8, period, 0, 0)...)
	last := h.Period(h.now).Last
	for at := last + period; at < last+3*period; at += 100 * time.Millisecond {
		h.look(at, false, 0)
	}
	if h.over > 0 || h.Period(h.now).Every == 0 {
		t.Errorf("the period is over before three beats are missed")
	}
	if end := last + 4*period; h.Period(end).Every != 0 {
		t.Error("the period is not over without a look")
	}
	h.look(last+4*period, false, 0)
	if h.found != 1 || h.over != 1 || h.Period(h.now).Every != 0 {
		t.Errorf("found %d times, over %d times: %+v", h.found, h.over, h.Period(h.now))
	}
	// Another period is another finding. The change of a period is none.
	h.replay(900*time.Millisecond, 200*time.Second, 215*time.Second, 230*time.Second, 245*time.Second, 260*time.Second)
	if p := h.Period(h.now); h.found != 2 || p.Every.Round(time.Millisecond) != 15*time.Second {
		t.Errorf("found %d times: %+v", h.found, p)
	}
	for at := 270 * time.Second; at <= 340*time.Second; at += 5 * time.Second {
		h.replay(900*time.Millisecond, at)
	}
	if p := h.Period(h.now); h.found != 2 || h.over != 1 || p.Every.Round(time.Millisecond) != 5*time.Second {
		t.Errorf("found %d times, over %d times: %+v", h.found, h.over, p)
	}
}

// TestStallRecorded checks which silences count as stalls, and how long they are.
func TestStallRecorded(t *testing.T) {
	h := new(history)
	h.replay(40*time.Millisecond, 10*time.Second)
	if h.count != 0 {
		t.Error("a short silence was recorded")
	}
	h.replay(200*time.Millisecond, 20*time.Second)
	h.replay(100*time.Millisecond, 20*time.Second+500*time.Millisecond) // goes on
	h.replay(100*time.Millisecond, 22*time.Second)
	if h.count != 2 || *h.back(1) != (stall{20 * time.Second, 600 * time.Millisecond}) || *h.back(0) != (stall{22 * time.Second, 100 * time.Millisecond}) {
		t.Errorf("%d stalls: %v", h.count, h.ended)
	}
	// One endpoint has been silent for long when the others stop, too.
	h.look(30*time.Second, false, 0)
	h.look(30*time.Second+100*time.Millisecond, true, 10*time.Second)
	h.look(31*time.Second, false, 0)
	if at := h.back(0).onset; at != 30*time.Second-5*time.Millisecond {
		t.Errorf("the stall began at %v", at)
	}
}

func TestPeriodExpects(t *testing.T) {
	p := Period{Every: 10 * time.Second, Length: time.Second, Last: 100 * time.Second, Jitter: 100 * time.Millisecond}
	for at, want := range map[time.Duration]bool{
		109_800 * time.Millisecond: false, 109_950 * time.Millisecond: true, 110_500 * time.Millisecond: true, 111_050 * time.Millisecond: true, 111_150 * time.Millisecond: false,
		115 * time.Second: false, 120 * time.Second: true, 130 * time.Second: true, 140 * time.Second: false,
	} {
		if got := p.expects(at); got != want {
			t.Errorf("a stall is expected at %v: %v", at, got)
		}
	}
	if none := (&Period{}); none.expects(0) {
		t.Error("a stall is expected without a period")
	}
}

func TestDescribePeriod(t *testing.T) {
	day := time.Date(2026, 3, 29, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		period time.Duration
		last   time.Time
		want   string
	}{
		{59_990 * time.Millisecond, day.Add(-20 * time.Millisecond), "every 60 s at second 0"},
		{time.Minute, day.Add(17_600 * time.Millisecond), "every 60 s at second 18"},
		{10 * time.Second, day.Add(43 * time.Second), "every 10 s at second 3"},
		{5 * time.Minute, day.Add(12*time.Minute + time.Second), "every 300 s at second 121"},
		{time.Hour, day.Add(90 * time.Minute), "every 3600 s at second 1800"},
		{7 * time.Second, day, "every 7 s"},
		{10_100 * time.Millisecond, day, "every 10.1 s"},
		{time.Minute, time.Time{}, "every 60 s"},
		{10_020 * time.Millisecond, day, "every 10 s at second 0"},
		{10_021 * time.Millisecond, day, "every 10 s"},
		{9_980 * time.Millisecond, day, "every 10 s at second 0"},
		{100 * time.Millisecond, day, "every 0.1 s"},
		{2 * time.Hour, day, "every 7200 s"},
	} {
		p := Period{Every: c.period, Length: 889 * time.Millisecond}
		if got, want := p.Describe("compute", c.last), "the replicas of compute stall together "+c.want+" for 0.9 s"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for length, want := range map[time.Duration]string{54: "0.05", 56: "0.06", 160: "0.16", 204: "0.2", 249: "0.2", 250: "0.3", 1460: "1.5"} {
		p := Period{Every: time.Minute, Length: length * time.Millisecond}
		if got, want := p.Describe("compute", time.Time{}), "the replicas of compute stall together every 60 s for "+want+" s"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
