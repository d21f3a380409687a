package reactor

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

func TestDestination(t *testing.T) {
	of := func(shares ...float64) (loops []loopUse) {
		for _, s := range shares {
			loops = append(loops, loopUse{s, 100})
		}
		return loops
	}
	full, room := of(0.2, 0.1), of(0.2, 0.1)
	full[0].connections, room[0].connections = maxGathered, maxGathered-1
	cases := []struct {
		name     string
		loops    []loopUse
		from, to int
		part     float64
	}{
		{"one loop", of(1), 0, 0, 0},
		{"another one has more to do", of(0.1, 0.2), 0, 1, 1},
		{"another one has less to do", of(0.1, 0.2), 1, 1, 0},
		{"of the same, to the first", of(0.2, 0.2), 1, 0, 1},
		{"of the same, not from the first", of(0.2, 0.2), 0, 0, 0},
		{"just enough for one", of(0.5, 0.2), 1, 0, 1},
		{"too much for one", of(0.5, 0.21), 1, 1, 0},
		{"to the one with most to do", of(0.5, 0.3, 0.2), 2, 0, 1},
		{"to the first of those with most to do", of(0.2, 0.3, 0.1, 0.3), 2, 1, 1},
		{"to the one with room", of(0.6, 0.3, 0.2), 2, 1, 1},
		{"one connection less than too many", room, 1, 0, 1},
		{"too many connections", full, 1, 1, 0},
		{"too busy", of(1, 0.5, 0), 0, 2, 0.5},
		{"too busy, to the first of the same", of(1, 0, 0), 0, 1, 0.5},
		{"others are as busy", of(0.95, 0.95, 0.8), 0, 0, 0},
		{"busy enough", of(tooBusy, 0.3), 0, 0, 0},
		{"just too busy", of(0.875, 0.25), 0, 1, 0.3125 / 0.875},
		{"little to gain", of(0.875, 0.875-leastGain), 0, 0, 0},
	}
	for _, c := range cases {
		to, part := destination(c.loops, c.from)
		if part != c.part || part > 0 && to != c.to {
			t.Errorf("%s: %v of the connections to loop %d, want %v to %d", c.name, part, to, c.part, c.to)
		}
	}
}

// TestBalance: loops that move connections in turn come to rest, with as few loops as can do the
// work, or with none that is too busy while another one is not.
func TestBalance(t *testing.T) {
	const each = 0.01 // of a loop, for each connection with input
	for _, c := range []struct {
		name   string
		active []int
		busy   int // loops with connections at the end
	}{
		{"little to do", []int{10, 10, 10, 10}, 1},
		{"a loop for each", []int{40, 40}, 2},
		{"two for four", []int{34, 34, 34, 34}, 2},
		{"all on one", []int{160, 0, 0, 0}, 2},
		{"all but one", []int{95, 95, 95, 95, 95, 95, 95, 5}, 8},
		{"more than all can do", []int{300, 10, 10}, 3},
	} {
		loops := c.active
		last := 0
		for turn := range 400 {
			from := turn % len(loops)
			uses := make([]loopUse, len(loops))
			for i, n := range loops {
				uses[i] = loopUse{min(1, each*float64(n)), 3*n + 200}
			}
			to, part := destination(uses, from)
			if n := int(part * float64(loops[from])); n > 0 {
				loops[from] -= n
				loops[to] += n
				last = turn
			}
		}
		busy := 0
		for _, n := range loops {
			if n > 0 {
				busy++
			}
		}
		if least, most := slices.Min(loops), slices.Max(loops); busy != c.busy || last > 300 || float64(most)*each > tooBusy && float64(most-least)*each > leastGain+each && busy < len(loops) {
			t.Errorf("%s: %d connections, the last moved in turn %d", c.name, loops, last)
		}
	}
}

// TestUse: a loop that has no time to wait is busy all the time, but for what lies between two turns. One
// without a turn is unused.
func TestUse(t *testing.T) {
	e := start(t, Options{})
	l := e.loops[0]
	var spin loop.Flush
	spinning := true
	spin.Do = func() {
		if spinning {
			l.Defer(&spin)
		}
	}
	on(t, l, func() { l.Defer(&spin) })
	measured := func() time.Duration { return time.Duration(l.use.measured.Load()) }
	eventually(t, func() error {
		if share := l.use.at(measured(), l.waiting.Load()).share; share <= 0 || share > 1 {
			return fmt.Errorf("a loop that is always busy uses %v", share)
		}
		return nil
	})
	on(t, l, func() { spinning = false })
	eventually(t, func() error {
		if share := l.use.at(measured()+staleUse+1, l.waiting.Load()).share; share != 0 {
			return fmt.Errorf("a loop that waits uses %v", share)
		}
		return nil
	})
	release := holdLoop(l)
	if share := l.use.at(measured()+staleUse+1, l.waiting.Load()).share; share != 1 {
		t.Errorf("in a turn of %v it uses %v", staleUse, share)
	}
	close(release)
}

// TestDecide: a loop decides in its own time to which loop its connections move, for one window.
func TestDecide(t *testing.T) {
	const now = 10 * moveTurn // of the first of two loops
	for _, c := range []struct {
		name        string
		at          time.Duration
		own, other  float64 // shares
		alone, ends bool
		want        float64 // the part that moves; 0 for none
	}{
		{name: "to a loop with more to do", at: now, own: 0.1, other: 0.2, want: 1},
		{name: "at the end of its time", at: now + moveTurn - 1, own: 0.1, other: 0.2, want: 1},
		{name: "in the time of the other loop", at: now + moveTurn, own: 0.1, other: 0.2},
		{name: "in the last moment of the other loop", at: now - 1, own: 0.1, other: 0.2},
		{name: "half of what is too much", at: now, own: 1, other: 0.5, want: 0.25},
		{name: "nothing to gain", at: now, own: 0.2, other: 0.1},
		{name: "one loop", at: now, own: 0.1, alone: true},
		{name: "the reactor stops", at: now, own: 0.1, other: 0.2, ends: true},
	} {
		loops := []*eventLoop{{index: 0}, {index: 1}}
		for i, share := range []float64{c.own, c.other} {
			u := &loops[i].use
			u.since = c.at - useWindow
			u.measure(c.at, time.Duration(share*float64(useWindow)), 5)
			if use := u.at(c.at+staleUse, true); use.share != share || use.connections != 5 || u.at(c.at+staleUse+1, true).share != 0 || u.at(c.at+staleUse+1, false).share != 1 {
				t.Errorf("%s: the use is %+v, want %v", c.name, use, share)
			}
		}
		m := &moving{of: loops[0], all: loops, to: loops[1], window: 7, debt: 5, left: 3}
		if c.alone {
			m.all = loops[:1]
		}
		if c.ends {
			m.stop()
		}
		for range 2 { // the second time is as the first
			m.debt, m.left = 5, 3
			m.decide(c.at)
		}
		if m.window != 9 || (m.to != nil) != (c.want > 0) {
			t.Errorf("%s: to %p in window %d", c.name, m.to, m.window)
		}
		if c.want > 0 && (m.to != loops[1] || m.part != c.want || m.until != c.at+useWindow || m.debt != 0 || m.left != maxGathered) {
			t.Errorf("%s: %v of the connections until %s, debt %v, at most %d", c.name, m.part, m.until, m.debt, m.left)
		}
		loops[0].now = c.at + useWindow - 1
		other := &conn{} // not from a listener
		if m.to != nil && (m.move(other) || m.to == nil) {
			t.Errorf("%s: the window has ended early", c.name)
		}
		loops[0].now++
		if m.to != nil && (m.move(other) || m.to != nil) {
			t.Errorf("%s: the window has not ended", c.name)
		}
	}
}

// TestLoopFor: an accepted connection stays on its loop, unless another loop has fewer connections by an eighth.
func TestLoopFor(t *testing.T) {
	for _, c := range []struct {
		loads    []int64
		on, want int // -1 for no loop
	}{
		{[]int64{0, 0, 0}, 2, 2},
		{[]int64{1, 0, 0}, 0, 1},
		{[]int64{9, 8, 9}, 0, 0},
		{[]int64{10, 8, 9}, 0, 1},
		{[]int64{10, 9, 8}, 0, 2},
		{[]int64{18, 16, 17}, 0, 0},
		{[]int64{19, 17, 18}, 0, 0},
		{[]int64{3, 2, 2}, -1, 1},
		{[]int64{2, 2, 2}, -1, 0},
		{[]int64{2, 2, 1}, -1, 2},
	} {
		l := &Listener{}
		for i, n := range c.loads {
			l.loops = append(l.loops, &eventLoop{index: i})
			l.loops[i].load.Store(n)
		}
		var on *eventLoop
		if c.on >= 0 {
			on = l.loops[c.on]
		}
		if got := l.loopFor(on); got.index != c.want {
			t.Errorf("loads %d, on %d: loop %d, want %d", c.loads, c.on, got.index, c.want)
		}
	}
}

// TestUseOfLastWindow: the use of a loop is what it did in the last window alone.
func TestUseOfLastWindow(t *testing.T) {
	var u useMeter
	busy := time.Duration(0)
	for i, share := range []float64{0.5, 0.25, 1, 0} {
		now := time.Duration(i+1) * useWindow
		if u.isDue(now-1) || !u.isDue(now) {
			t.Errorf("window %d does not end after its time", i)
		}
		busy += time.Duration(share * float64(useWindow))
		u.measure(now, busy, i)
		if use := u.at(now, false); use.share != share || use.connections != i {
			t.Errorf("in window %d the use is %+v, want %v", i, use, share)
		}
	}
}
