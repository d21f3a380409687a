package downstream

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/sim"
)

type idleSession struct {
	session
	SessionNode
	closed *int
}

func (s *idleSession) node() *SessionNode { return &s.SessionNode }
func (s *idleSession) CloseIdle()         { *s.closed++ }

// Reclaimable says which of the embedded ones is meant.
func (s *idleSession) Reclaimable() int { return s.SessionNode.Reclaimable() }

// TestShorterIdleTimeout: when timeouts.idle becomes shorter, all sessions that have waited for
// too long close, but few of them in one turn.
func TestShorterIdleTimeout(t *testing.T) {
	const count = 300
	w := sim.New(1)
	cfg := &config.Config{Timeouts: config.Timeouts{Idle: time.Hour}}
	loop := w.Loop("a")
	h := &Host{Shard: &shard.Shard{Loop: loop, Config: cfg, Process: new(shard.Process)}}
	closed, before, most := 0, 0, 0
	add := func() {
		s := &idleSession{closed: &closed}
		h.Add(s)
		h.StartIdle(&s.SessionNode)
	}
	loop.Do(func() {
		for range count {
			add()
		}
	})
	w.Run(time.Minute)
	cfg.Timeouts.Idle = time.Second
	w.OnTurn(func(*sim.Loop, int, int) {
		most = max(most, closed-before)
		before = closed
	})
	loop.Do(add)
	w.Run(100 * time.Millisecond)
	if closed != count || most > maxIdleClosed {
		t.Errorf("%d of %d sessions were closed, %d in one turn", closed, count, most)
	}
	w.Run(time.Second)
	if closed != count+1 {
		t.Error("the last session is open")
	}
}

// TestIdleFor: timeouts.idle runs from the last start of a session, if nothing stops it.
func TestIdleFor(t *testing.T) {
	w := sim.New(1)
	loop := w.Loop("a")
	h := &Host{Shard: &shard.Shard{Loop: loop, Config: &config.Config{Timeouts: config.Timeouts{Idle: 10 * time.Second}}, Process: new(shard.Process)}}
	var closed [3]int
	var all [3]*idleSession
	on := func(f func(s *idleSession), which ...int) {
		loop.Do(func() {
			for _, i := range which {
				f(all[i])
			}
		})
	}
	start, stop := func(s *idleSession) { h.StartIdle(&s.SessionNode) }, func(s *idleSession) { h.StopIdle(&s.SessionNode) }
	check := func(what string, want ...time.Duration) {
		t.Helper()
		loop.Do(func() {
			for i, s := range all {
				if d := h.IdleFor(&s.SessionNode).Round(100 * time.Millisecond); d != want[i] {
					t.Errorf("%s: session %d has been idle for %v, want %v", what, i, d, want[i])
				}
			}
		})
	}
	for i := range all {
		all[i] = &idleSession{closed: &closed[i]}
		loop.Do(func() { h.Add(all[i]) })
	}
	loop.Do(func() {
		for i, s := range all {
			if d := h.IdleFor(&s.SessionNode); d != 0 {
				t.Errorf("session %d has been idle for %v before the start", i, d)
			}
		}
	})
	on(stop, 0, 1, 2)
	on(start, 0, 1, 2)
	w.Run(4 * time.Second)
	check("started", 4*time.Second, 4*time.Second, 4*time.Second)
	on(start, 0)
	on(stop, 1)
	check("one started anew, one stopped", 0, 0, 4*time.Second)
	w.Run(6*time.Second - 10*time.Millisecond)
	if closed != [3]int{} {
		t.Errorf("closed %v before the time", closed)
	}
	w.Run(20 * time.Millisecond)
	if closed != [3]int{2: 1} {
		t.Errorf("closed %v after ten seconds", closed)
	}
	check("one closed", 6*time.Second, 0, 0)
	w.Run(4 * time.Second)
	if closed != [3]int{1, 0, 1} {
		t.Errorf("closed %v in the end", closed)
	}
	on(start, 1)
	w.Run(11 * time.Second)
	if closed != [3]int{1, 1, 1} {
		t.Errorf("closed %v after the next start", closed)
	}
	on(start, 0, 2)
	on(func(s *idleSession) { h.Remove(s) }, 2)
	check("one removed", 0, 0, 0)
	w.Run(11 * time.Second)
	if closed != [3]int{2, 1, 1} {
		t.Errorf("closed %v after the removal", closed)
	}
}

// TestIdleTime: a session closes when its time is over, and not before.
func TestIdleTime(t *testing.T) {
	const idle = 10 * time.Second
	w, closed := sim.New(1), 0
	loop := w.Loop("a")
	h := &Host{Shard: &shard.Shard{Loop: loop, Config: &config.Config{Timeouts: config.Timeouts{Idle: idle}}, Process: new(shard.Process)}}
	loop.Do(func() {
		s := &idleSession{closed: &closed}
		h.Add(s)
		h.StartIdle(&s.SessionNode)
	})
	if w.Run(idle - 1); closed != 0 {
		t.Errorf("closed %d times before the time", closed)
	}
	if w.Run(1); closed != 1 {
		t.Errorf("closed %d times at the time", closed)
	}
}
