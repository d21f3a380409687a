//go:build darwin || freebsd || linux

// Package gnet has a kernel.Poller on the poller of gnet v2, which waits by epoll on Linux, and by kqueue elsewhere. gnet's
// poller has no timeout, and does not say where a batch of events ends. Both are events of a Poller's own descriptors:
//
//   - The first event of a turn makes wakeFD ready. The kernel reports it after what is ready already, and the turn ends.
//   - timerFD ends the wait. It may do so when no timer of the loop is due: it is not set back for a timer that is disarmed.
//
// All loops that share a listening socket are told of a connection. The build tag poll_opt of gnet is not supported.
package gnet

import (
	"errors"
	"time"

	gneterrors "github.com/panjf2000/gnet/v2/pkg/errors"
	"github.com/panjf2000/gnet/v2/pkg/netpoll"

	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// Poller is a kernel.Poller.
type Poller struct {
	poller *netpoll.Poller
	ownFDs
	ending bool          // wakeFD is ready for the end of the turn
	due    time.Duration // when timerFD becomes ready, by the loop's clock; in the past if it is not set

	turns  kernel.Turns // of Run
	inTurn bool
	events int // of the turn in progress
}

// Open returns a Poller that watches nothing. Its owner must Close it.
func Open() (*Poller, error) {
	poller, err := netpoll.OpenPoller()
	if err != nil {
		return nil, err
	}
	p := &Poller{poller: poller}
	if err := p.openOwn(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Close implements kernel.Poller.
func (p *Poller) Close() error { return errors.Join(p.closeOwn(), p.poller.Close()) }

// Add implements kernel.Poller.
func (p *Poller) Add(fd int, e kernel.Events) error {
	at := &netpoll.PollAttachment{FD: fd}
	if e&kernel.Output != 0 {
		return p.poller.AddWrite(at, true)
	}
	return p.poller.AddRead(at, true)
}

// Run implements kernel.Poller.
func (p *Poller) Run(t kernel.Turns) {
	p.turns = t
	p.Wake()
	if err := p.poller.Polling(p.onEvent); !errors.Is(err, gneterrors.ErrEngineShutdown) {
		panic("gnet: polling: " + err.Error())
	}
}

// onEvent is called for each descriptor that is ready. ErrEngineShutdown ends the polling.
func (p *Poller) onEvent(fd int, event netpoll.IOEvent, flags netpoll.IOFlags) error {
	if !p.inTurn {
		p.inTurn, p.events = true, 0
		p.turns.BeginTurn()
	}
	switch fd {
	case p.wakeFD:
		p.ending = false
		p.drainWakeFD()
		return p.endTurn()
	case p.timerFD:
		return p.endTurn()
	}
	p.turns.OnEvents(fd, events(event, flags))
	if p.events++; p.events == kernel.MaxReady {
		return p.endTurn()
	}
	p.requestEnd()
	return nil
}

// requestEnd has a turn end soon.
func (p *Poller) requestEnd() {
	if !p.ending {
		p.ending = true
		p.Wake()
	}
}

func (p *Poller) endTurn() error {
	p.inTurn = false
	w := p.turns.EndTurn()
	limit := min(w.Limit, time.Hour) // which fits the seconds of a system of 32 bits
	switch at := w.Now + limit; {
	case w.Stop:
		return gneterrors.ErrEngineShutdown
	case w.Limit == 0:
		p.requestEnd()
	case w.Limit > 0 && (at < p.due || p.due <= w.Now):
		p.due = at
		p.setTimerFD(limit)
	}
	return nil
}
