package link

import (
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
)

var (
	_ race.StartUpstream = (*upstream)(nil)
	_ race.StartCarrier  = (*calls)(nil)
)

// TellsStart implements race.StartUpstream.
func (u *upstream) TellsStart() bool { return u.cur != nil && u.cur.calls.TellsStart() }

// TellsStart implements race.StartCarrier.
func (cs *calls) TellsStart() bool { return cs.starts }

// AskStart implements race.StartCarrier.
func (cs *calls) AskStart(a *race.Attempt) {
	cs.Writer.Start(a.ID())
	cs.Schedule(cs.all.Len() == 1)
}

// Withdraw implements race.StartCarrier.
func (cs *calls) Withdraw(a *race.Attempt) {
	if cs.Writer.Unsent(a.ID()) {
		cs.abandon(a)
		a.Fail(fault.NoSlot)
		cs.finishDrain()
		return
	}
	cs.Writer.Withdraw(a.ID())
	cs.Schedule(cs.all.Len() == 1)
}
