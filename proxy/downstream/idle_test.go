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
func (s *idleSession) Reclaimable() int   { return 0 }

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
