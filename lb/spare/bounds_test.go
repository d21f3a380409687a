package spare

import (
	"testing"
	"time"
)

// curveOf returns a curve whose levels, from 0 on, have these quartiles.
func curveOf(samples float64, logs ...float64) *Curve {
	c := &Curve{}
	for i, log := range logs {
		c.quartiles[i] = quartile{log, samples}
	}
	return c
}

// TestFade: samples are halved after half, if there were enough latencies, and after halfMost in any case. After a pause nothing counts.
func TestFade(t *testing.T) {
	for _, c := range []struct {
		now   time.Duration
		added int
		want  float64 // samples, of 100
	}{
		{model.half - 1, model.halfSamples, 100}, {model.half, model.halfSamples, 50}, {model.half, model.halfSamples - 1, 100},
		{model.halfMost - 1, model.halfSamples - 1, 100}, {model.halfMost, 0, 50}, {2*model.halfMost - 1, 0, 50}, {2 * model.halfMost, 0, 0},
	} {
		curve := curveOf(100, 20, 21)
		curve.added = c.added
		curve.slower(c.now, 0)
		if got := curve.quartiles[1].samples; got != c.want {
			t.Errorf("after %v and %d latencies: %v samples, want %v", c.now, c.added, got, c.want)
		}
		unloaded := map[float64]float64{100: 0, 50: 20 + model.drift, 0: 0}[c.want]
		if curve.unloaded != unloaded {
			t.Errorf("after %v and %d latencies: unloaded %v, want %v", c.now, c.added, curve.unloaded, unloaded)
		}
		if faded := c.want < 100; faded && (curve.halved != c.now || curve.added != 0) {
			t.Errorf("after %v: halved at %v, %d latencies since", c.now, curve.halved, curve.added)
		}
	}
	nothing := &Curve{}
	if nothing.slower(model.halfMost, 0); nothing.unloaded != 0 {
		t.Errorf("of nothing, unloaded is %v", nothing.unloaded)
	}
	low := curveOf(100, .5)
	if low.slower(model.halfMost, 0); low.unloaded != .5+model.drift {
		t.Errorf("of half, unloaded is %v", low.unloaded)
	}
}

// TestKnownLevels: a level counts from a number of samples on, and the least of those that count is unloaded.
func TestKnownLevels(t *testing.T) {
	for samples, want := range map[float64]bool{model.known - 1: false, model.known: true} {
		c := curveOf(samples, 20, 22)
		if slower, known := c.slower(0, 1); known != want || known && slower != 2 {
			t.Errorf("%v samples: slower by %v, known %t", samples, slower, known)
		}
	}
	c := curveOf(model.known, 21, 20, 22)
	c.quartiles[0].samples = 0
	for unloaded, least := range map[float64]float64{0: 20, 19: 19, 21: 20} {
		if c.unloaded = unloaded; c.least() != least {
			t.Errorf("unloaded %v: the least is %v, want %v", unloaded, c.least(), least)
		}
	}
}

// TestHasRoom: up to which load an endpoint has room.
func TestHasRoom(t *testing.T) {
	const slower = .3
	if model.slower != slower || model.stuckSlower != 1 || model.guess != 2 {
		t.Fatal("the loads below are for other constants")
	}
	all := []float64{slower, 2 * slower, 3 * slower, slower + 1} // unloaded, the bound, more, the bound of a stuck one
	for _, c := range []struct {
		name        string
		curve       *Curve
		load, usual float64
		stuck, want bool
	}{
		{"no load", curveOf(64, all...), .9, 0, false, true},
		{"at the bound", curveOf(64, all...), 1, 0, false, true},
		{"beyond", curveOf(64, all...), 2, 0, false, false},
		{"unknown, beyond a slow one", curveOf(64, all...), 4, 9, false, false},
		{"unknown, a little", curveOf(64, slower), 1.9, 0, false, true},
		{"unknown, the guess", curveOf(64, slower), 2, 0, false, false},
		{"unknown, less than usual", curveOf(64, slower), 4, 5, false, true},
		{"unknown, as usual", curveOf(64, slower), 5, 5, false, false},
		{"nothing known", &Curve{}, 1.9, 0, false, true},
		{"nothing known, the guess", &Curve{}, 2, 0, false, false},
		{"stuck, at its bound", curveOf(64, all...), 4, 1, true, true},
		{"stuck, beyond", curveOf(64, all...), 5, 1, true, false},
		{"stuck, where requests usually wait", curveOf(64, all...), 2, 2, true, false},
		{"stuck, and nobody knows whether they wait", curveOf(64, all...), 4, 5, true, false},
		{"stuck, unknown", curveOf(64, slower), 4.9, 0, true, true},
		{"stuck, twice the guess", curveOf(64, slower), 5, 0, true, false},
		{"stuck, no load but its own", curveOf(64, all...), 1.9, 0, true, true},
	} {
		if got := c.curve.HasRoom(0, c.load, c.usual, c.stuck); got != c.want {
			t.Errorf("%s: room %t", c.name, got)
		}
	}
}

// TestUsual: the usual load is the mean of the first loads, and then a moving one.
func TestUsual(t *testing.T) {
	var u Usual
	if u.Known() {
		t.Error("known before the first load")
	}
	if u.Add(10); !u.Known() {
		t.Error("not known after the first load")
	}
	if u.Add(20); !u.Known() || u.Load() != 15 {
		t.Errorf("of 10 and 20: %v, known %t", u.Load(), u.Known())
	}
	u = Usual{}
	for range 2 * model.usual {
		u.Add(0)
	}
	if u.Add(float64(model.usual)); u.Load() != 1 {
		t.Errorf("after %d loads of 0, and one of %d: %v, want 1", 2*model.usual, model.usual, u.Load())
	}
}

// TestLearned: latencies are counted until their samples are halved, which the next latency does, too.
func TestLearned(t *testing.T) {
	c := &Curve{}
	for range model.halfSamples {
		c.Learn(0, 20, 3)
	}
	all := float64(min(model.halfSamples, int(model.remembered)))
	if got := c.quartiles[3].samples; got != all {
		t.Errorf("%v samples, want %v", got, all)
	}
	c.Learn(model.half, 20, 3)
	if got := c.quartiles[3].samples; got != all/2+1 {
		t.Errorf("%v samples after they were halved, want %v", got, all/2+1)
	}
	// Of a level of which nothing is known, a higher one says how slow it is.
	for l, want := range map[Level]bool{0: true, 3: true, 4: false} {
		if slower, known := c.slower(model.half, l); slower != 0 || known != want {
			t.Errorf("level %d: slower %v, known %t", l, slower, known)
		}
	}
}
