package link

import (
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
)

var (
	_ race.StartUpstream = (*upstream)(nil)
	_ race.StartCarrier  = (*client)(nil)
)

// TellsStart implements race.StartUpstream.
func (u *upstream) TellsStart() bool { return u.cur != nil && u.cur.starts }

// TellsStart implements race.StartCarrier.
func (c *client) TellsStart() bool { return c.starts }

// AskStart implements race.StartCarrier.
func (c *client) AskStart(a *race.Attempt) {
	c.Writer.Start(a.ID())
	c.Schedule(c.streams.Len() == 1)
}

// Withdraw implements race.StartCarrier.
func (c *client) Withdraw(a *race.Attempt) {
	if c.Writer.Unsent(a.ID()) {
		c.abandon(a)
		a.Fail(fault.NoSlot)
		c.finishDrain()
		return
	}
	c.Writer.Withdraw(a.ID())
	c.Schedule(c.streams.Len() == 1)
}
