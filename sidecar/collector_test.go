package sidecar

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
)

// TestPercent: only a sidecar with much live heap has less garbage than live heap.
func TestPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: usualPercent, muchLive - 1: usualPercent, muchLive: lowPercent, 1 << 30: lowPercent} {
		if got := percentOf(live); got != want {
			t.Errorf("%d bytes: %d, want %d", live, got, want)
		}
	}
}

// TestPace: while collections are frequent, there are fewer, within a bound of garbage. What is frequent does not depend on how many
// fewer there are.
func TestPace(t *testing.T) {
	const rare, often = 300 * time.Millisecond, 100 * time.Millisecond
	for _, c := range []struct {
		name  string
		every time.Duration // a collection at usualPercent
		live  uint64
		want  int
	}{
		{"rare", rare, 1 << 20, usualPercent},
		{"rare and large", rare, muchLive, lowPercent},
		{"never", time.Hour, 1 << 20, usualPercent},
		{"frequent", often, 1 << 20, 400},
		{"frequent, at the bound", often, busyGarbage / 4, 400},
		{"frequent, above the bound", often, busyGarbage/4 + 1, 200},
		{"frequent, above half the bound", often, busyGarbage/2 + 1, usualPercent},
		{"frequent and large", often, muchLive, lowPercent},
	} {
		p := &pace{since: time.Unix(0, 0), percent: usualPercent}
		now := p.since
		var count uint64
		for range 100 {
			count++
			now = now.Add(c.every * time.Duration(p.percent) / usualPercent)
			p.percent = p.collected(now, count, c.live)
		}
		if p.percent != c.want {
			t.Errorf("%s: %d%%, want %d%%", c.name, p.percent, c.want)
		}
		now = now.Add(time.Minute)
		if got := p.collected(now, count+1, c.live); got != percentOf(c.live) {
			t.Errorf("%s, and then quiet: %d%%", c.name, got)
		}
	}
}

// TestPaceStart: a sidecar that has started collects as usual again.
func TestPaceStart(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(usualPercent)
	defer debug.SetGCPercent(before)
	ended, end := context.WithCancel(t.Context())
	defer end()
	_, live := collections()
	for _, c := range []struct {
		name string
		set  func()
		want int
	}{
		{"start", PaceStart, lowPercent},
		{"serving", func() { paceCollector(ended) }, percentOf(live)},
	} {
		c.set()
		got := debug.SetGCPercent(-1) // no collection comes in between
		debug.SetGCPercent(got)
		if got != c.want {
			t.Errorf("%s: %d%%, want %d%%", c.name, got, c.want)
		}
	}
}

// TestAfterCollections: collections are told, until the end.
func TestAfterCollections(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	told := make(chan struct{}, 100)
	afterCollections(ended, func() { told <- struct{}{} })
	for range 3 {
		eventually.True(t, "a collection is told", func() bool {
			runtime.GC()
			return len(told) > 0
		})
		<-told
	}
	end()
	for range 20 {
		runtime.GC()
	}
	if n := len(told); n > 1 { // one may have been on its way
		t.Errorf("%d collections were told after the end", n)
	}
}
