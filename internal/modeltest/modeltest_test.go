package modeltest

import (
	"testing"
	"time"
)

// TestCheck: the constants are as before afterwards, whatever their type.
func TestCheck(t *testing.T) {
	type constants struct {
		wait  time.Duration
		count int
		share float64
	}
	usual := constants{time.Second, 8, .5}
	model := usual
	m := New(t, &model, .1)
	m.Check("wait: later", Of(&model.wait), func() float64 { return model.wait.Seconds() }, -1, 1)
	m.Check("count: fewer", Of(&model.count), func() float64 { return 1 / float64(model.count) }, 1, -1)
	m.Check("share: no more than all", Of(&model.share), func() float64 { return min(.5, model.share) }, -1, 0)
	if model != usual {
		t.Errorf("the constants are %+v", model)
	}
}

// TestCheckOfVariables: a constant may be a variable by itself.
func TestCheckOfVariables(t *testing.T) {
	wait, factor := time.Second, 1.5
	Check(t, "wait: later", &wait, func() float64 { return wait.Seconds() }, -1, 1)
	CheckFactor(t, "factor: more", &factor, func() float64 { return factor - 1 }, -1, 1)
	if wait != time.Second || factor != 1.5 {
		t.Errorf("the constants are %v and %v", wait, factor)
	}
}

// TestSign: a change below the least is none.
func TestSign(t *testing.T) {
	m := New(t, new(struct{}), .25)
	for change, want := range map[float64]int{-1: -1, -.25: -1, -.24: 0, 0: 0, .24: 0, .25: 1, 2: 1} {
		if got := m.sign(change); got != want {
			t.Errorf("a change of %v has the sign %d, want %d", change, got, want)
		}
	}
}
