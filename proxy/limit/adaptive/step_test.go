package adaptive

import (
	"testing"
	"time"
)

// window is one in which requests found the limit reached, with this mean latency.
func window(mean time.Duration) Window {
	return Window{Elapsed: time.Second, Answers: 100, Latency: 100 * mean, Reached: true}
}

// TestSteps: a window changes the limit by a quarter at most, and by half of what the latency asks for.
func TestSteps(t *testing.T) {
	for mean, want := range map[time.Duration]int{
		100 * ms:               75,  // a freeze
		2 * ms:                 85,  // (100 + 135/2 + 1) / 2, rounded up
		1 * ms:                 118, // (100 + 135 + 1) / 2
		900 * time.Microsecond: 125,
	} {
		l := &Limit{phase: steady, limit: 100, base: float64(ms), latency: float64(ms), probeIn: probeEvery}
		if l.Update(window(mean)); l.Value() != want {
			t.Errorf("a latency of %v: %d, want %d", mean, l.Value(), want)
		}
	}
}

// TestProbeEvery: after so many windows at the limit a probe halves it, and windows below the limit do not count.
func TestProbeEvery(t *testing.T) {
	l := &Limit{phase: steady, limit: 100, base: float64(ms), latency: float64(ms), probeIn: 3}
	for i, reached := range []bool{true, false, true, true} {
		if l.phase != steady {
			t.Fatalf("a probe before window %d", i)
		}
		w := window(ms)
		w.Reached = reached
		l.Update(w)
	}
	if whole := int(l.limit); l.phase != draining || l.Value() != whole/2 {
		t.Errorf("no probe: phase %d, limit %d of %d", l.phase, l.Value(), whole)
	}
}

// TestBase: the estimate without a queue follows the latency below the limit by a part of the difference, and at the limit only
// downwards.
func TestBase(t *testing.T) {
	const before = float64(10 * ms)
	for _, c := range []struct {
		mean    time.Duration
		reached bool
		want    float64
	}{
		{42 * ms, false, before + float64(ms)}, {10 * ms, false, before}, {9680 * time.Microsecond, false, before - float64(10*time.Microsecond)},
		{42 * ms, true, before}, {10 * ms, true, before}, {9680 * time.Microsecond, true, before - float64(10*time.Microsecond)},
	} {
		l := &Limit{phase: steady, limit: 100, base: before, latency: before, probeIn: probeEvery}
		w := window(c.mean)
		w.Reached = c.reached
		if l.Update(w); l.base != c.want || !c.reached && l.Value() != 100 {
			t.Errorf("a latency of %v, at the limit %t: %v, limit %d; want %v", c.mean, c.reached, time.Duration(l.base), l.Value(), time.Duration(c.want))
		}
	}
}

// TestProbes: what a probe makes of the latencies before it and in it, how soon the next one follows, and which windows it takes.
func TestProbes(t *testing.T) {
	for name, c := range map[string]struct {
		half    time.Duration // the latency at half the limit; it was 10 ms before
		base    time.Duration // the estimate before
		value   int           // the limit, which was 100
		want    time.Duration // the estimate after
		probeIn int
	}{
		"a queue":                 {5 * ms, 8 * ms, 50, 5 * ms, probeSoon},
		"a queue, and a low base": {5 * ms, 4 * ms, 50, 4 * ms, probeSoon},
		"no queue":                {6 * ms, 8 * ms, 100, 6 * ms, probeEvery},
		"slower":                  {9 * ms, 7 * ms, 100, 9 * ms, probeSoon},
		"hardly slower":           {10 * ms, 8 * ms, 100, 10 * ms, probeEvery},
	} {
		l := &Limit{phase: steady, limit: 100, base: float64(c.base), latency: float64(10 * ms), previous: float64(10 * ms), probeIn: 1}
		l.Update(window(12 * ms)) // the less unusual of two counts
		for i, want := range []phase{draining, measuring, refilling} {
			if l.phase != want || (l.Value() == 50) != (want != refilling) && c.value != 50 {
				t.Errorf("%s: window %d has phase %d, limit %d", name, i, l.phase, l.Value())
			}
			l.Update(window(c.half))
		}
		if l.phase != steady || l.Value() != c.value || l.base != float64(c.want) || l.probeIn != c.probeIn {
			t.Errorf("%s: phase %d, limit %d, estimate %v, the next one after %d", name, l.phase, l.Value(), time.Duration(l.base), l.probeIn)
		}
	}
}

// TestLengths: how long windows last, by their latency and what they are for.
func TestLengths(t *testing.T) {
	for _, c := range []struct {
		phase   phase
		latency time.Duration
		want    time.Duration
	}{
		{steady, ms, minLength}, {steady, 25 * ms, minLength}, {steady, 50 * ms, 200 * ms}, {steady, 20 * time.Second, maxLength},
		{starting, 50 * ms, minLength}, {starting, 100 * ms, 200 * ms}, {measuring, 50 * ms, 600 * ms}, {measuring, ms, measureFactor * minLength},
		{draining, 50 * ms, 200 * ms}, {refilling, 50 * ms, 200 * ms},
	} {
		if got := (&Limit{phase: c.phase, latency: float64(c.latency)}).Length(); got != c.want {
			t.Errorf("phase %d, a latency of %v: %v, want %v", c.phase, c.latency, got, c.want)
		}
	}
}

// TestFewResponses: a window goes on until it has enough responses, or has lasted for too long. Then a probe is given up.
func TestFewResponses(t *testing.T) {
	for _, c := range []struct {
		phase    phase
		answers  int
		elapsed  time.Duration
		ends     bool
		then     phase
		measured bool
	}{
		{steady, minResponses - 1, maxLength - 1, false, steady, false}, {steady, minResponses, ms, true, steady, true},
		{measuring, measureFactor*minResponses - 1, maxLength - 1, false, measuring, false}, {measuring, measureFactor * minResponses, ms, true, refilling, true},
		{steady, minResponses - 1, maxLength, true, steady, false}, {measuring, minResponses, maxLength, true, steady, false},
		{starting, 0, maxLength, true, starting, false}, {draining, 0, maxLength, true, steady, false}, {refilling, 0, maxLength, true, steady, false},
	} {
		l := &Limit{phase: c.phase, limit: 100, base: float64(ms), latency: float64(ms), probeIn: probeEvery, beforeProbe: float64(ms)}
		ends := l.Update(Window{Elapsed: c.elapsed, Answers: c.answers, Latency: time.Duration(c.answers) * 2 * ms})
		if ends != c.ends || l.phase != c.then || (l.latency == float64(2*ms)) != c.measured {
			t.Errorf("%+v: ends %t, phase %d, latency %v", c, ends, l.phase, time.Duration(l.latency))
		}
	}
}

// TestStart: at first the limit doubles with each window in which it was reached, until the latency rises.
func TestStart(t *testing.T) {
	l := New()
	for i, c := range []struct {
		mean    time.Duration
		reached bool
		value   int
		phase   phase
	}{
		{10 * ms, false, initial, starting}, {10 * ms, true, 2 * initial, starting}, {13500 * time.Microsecond, true, 4 * initial, starting},
		{13501 * time.Microsecond, true, 4 * initial, steady},
	} {
		w := window(c.mean)
		w.Reached = c.reached
		if l.Update(w); l.Value() != c.value || l.phase != c.phase {
			t.Errorf("window %d: limit %d, phase %d, want %d and %d", i, l.Value(), l.phase, c.value, c.phase)
		}
	}
}

// TestLateWindows: a window in which more than half of the requests reached their deadline ends a probe, and does not raise the
// estimate without a queue. The limit rises after it only if the application had less time for those than it usually takes.
func TestLateWindows(t *testing.T) {
	const base = float64(10 * ms)
	for name, c := range map[string]struct {
		late     int           // of 100
		lateTime time.Duration // of each
		reached  bool
		before   Limit
		value    int
		phase    phase
		base     float64
	}{
		"no response yet":        {100, 200 * ms, true, Limit{phase: starting, limit: 4}, 4, starting, 0},
		"the first response":     {99, 10 * ms, true, Limit{phase: starting, limit: 100}, 100, steady, base},
		"the first responses":    {90, 10 * ms, true, Limit{phase: starting, limit: 100}, 100, steady, base},
		"too little time so far": {90, 9 * ms, true, Limit{phase: starting, limit: 100}, 125, steady, base},
		"at the start":           {51, 11 * ms, true, Limit{phase: starting, limit: 100, base: base}, 100, steady, base},
		"half, at the start":     {50, 11 * ms, true, Limit{phase: starting, limit: 100, base: base}, 200, starting, base},
		"slower":                 {100, 200 * ms, true, Limit{phase: steady, limit: 100, base: base}, 75, steady, base},
		"as quick as ever":       {51, 10 * ms, true, Limit{phase: steady, limit: 100, base: base}, 100, steady, base},
		"half, as quick as ever": {50, 10 * ms, true, Limit{phase: steady, limit: 100, base: base}, 118, steady, base},
		"too little time":        {100, 10*ms - 1000, true, Limit{phase: steady, limit: 100, base: base}, 119, steady, base},
		"too little, no queue":   {100, 1 * ms, false, Limit{phase: steady, limit: 100, base: base}, 100, steady, base},
		"below the limit":        {51, 200 * ms, false, Limit{phase: steady, limit: 100, base: base}, 100, steady, base},
		"in a probe":             {100, 200 * ms, true, Limit{phase: measuring, limit: 100, base: base, beforeProbe: float64(200 * ms)}, 75, steady, base},
	} {
		l := c.before
		l.latency, l.probeIn = base, probeEvery
		w := Window{Elapsed: time.Second, Answers: 100 - c.late, Latency: time.Duration(100-c.late) * 10 * ms, Late: c.late, LateTime: time.Duration(c.late) * c.lateTime, Reached: c.reached}
		if !l.Update(w) || l.Value() != c.value || l.phase != c.phase || l.base != c.base {
			t.Errorf("%s: limit %d, phase %d, estimate %v", name, l.Value(), l.phase, time.Duration(l.base))
		}
	}
}
