package reactor

import (
	"testing"

	"github.com/remora-proxy/remora/proxy/loop"
)

// TestRest: a long wait is a rest, and a short one after it does not change that.
func TestRest(t *testing.T) {
	l := start(t, Options{}).loops[0]
	roused := make(chan bool, 2)
	fire := func() { roused <- l.roused == l.now }
	on(t, l, func() { l.After(2*restAfter, &loop.Timer{Fire: fire}) })
	if !recv(t, roused, "the timer") {
		t.Error("a long wait is no rest")
	}
	on(t, l, func() {
		l.turned, l.roused = l.now, l.now
		before := l.roused
		l.now += restAfter / 2
		if l.turn(0); l.roused != before {
			t.Error("a short wait is a rest")
		}
	})
}
