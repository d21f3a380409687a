package link

import (
	"time"

	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/mux/linkconn"
	"github.com/remora-proxy/remora/proxy/service"
)

// probeLost is the time after which a probe without an answer counts as lost, and another may follow: some round trips,
// and less than the time between two requests of a loop that sends probes for each.
const probeLost = 100 * time.Millisecond

// probes is the probes of one link, one at a time.
type probes struct {
	taken bool          // the peer answers probes
	sent  time.Duration // when the one that is on the way was sent; 0 means that none is
}

var _ service.Prober = (*upstream)(nil)

// Probe implements service.Prober.
func (u *upstream) Probe() bool {
	if u.cur == nil {
		u.cur = dialLink(u)
	}
	return u.cur.probe()
}

func (c *client) probe() bool {
	p, now := &c.probes, c.Shard.Loop.Now()
	switch {
	case c.State() != linkconn.Open || !p.taken:
		return false
	case p.sent > 0 && now-p.sent < probeLost:
		return true
	case c.Waits():
		c.up.service.Stats.Probes.Dropped++
		return false
	}
	p.sent = now
	c.up.service.Stats.Probes.Sent++
	c.Writer.Probe()
	c.FlushLater()
	return true
}

// OnAnswer implements link.ResponseHandler. It ignores what nobody has asked for: a peer decides how many frames it sends.
func (c *client) OnAnswer(l link.Load) {
	if c.probes.sent == 0 {
		return
	}
	c.probes.sent = 0
	c.up.service.Probes.Answered(c.up.endpoint.LB, loadOf(l))
}
