package http

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/sim"
)

// TestMeanConnect: the first connect is the mean, and each later one changes that by an eighth. A connection is free when it opens.
func TestMeanConnect(t *testing.T) {
	w := sim.New(1)
	l := w.Loop("a")
	p := &pool{shard: &shard.Shard{Loop: l}}
	p.dials.init(p)
	w.Run(time.Second)
	l.Do(func() {
		for _, c := range []struct{ took, mean time.Duration }{{80, 80}, {80, 80}, {160, 90}, {10, 80}, {0, 70}} {
			p.dials.underway++
			p.dials.onOpened(&conn{idleSince: l.Now() - c.took*time.Millisecond})
			if p.dials.mean != c.mean*time.Millisecond || p.freed != l.Now() || p.dials.underway != 0 {
				t.Errorf("a connect of %d ms: the mean is %v, %d are under way, free since %v", c.took, p.dials.mean, p.dials.underway, p.freed)
			}
		}
	})
}
