//go:build darwin || freebsd || linux

// Package gnet has a kernel.Poller on the poller of gnet v2, which waits by epoll on Linux, and by kqueue elsewhere. gnet's
// poller has no timeout, and does not say where a batch of events ends. Both are events here:
//
//   - The first event of a turn rings a bell, a descriptor that is reported after what is ready already. Then the turn ends.
//   - An alarm ends the wait, perhaps when no timer is due any more: it is not set back when a timer is disarmed.
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
	signals
	rung bool          // by the loop, and not reported yet
	due  time.Duration // when the alarm goes off, by the loop's clock; in the past if it is not set

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
	if err := p.openSignals(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Close implements kernel.Poller.
func (p *Poller) Close() error { return errors.Join(p.closeSignals(), p.poller.Close()) }

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
	case p.bell:
		p.rung = false
		p.heard()
		return p.endTurn()
	case p.alarm:
		return p.endTurn()
	}
	p.turns.OnEvents(fd, events(event, flags))
	if p.events++; p.events == kernel.MaxReady {
		return p.endTurn()
	}
	p.ring()
	return nil
}

// ring has the bell reported, once.
func (p *Poller) ring() {
	if !p.rung {
		p.rung = true
		p.Wake()
	}
}

func (p *Poller) endTurn() error {
	p.inTurn = false
	w := p.turns.EndTurn()
	switch at := w.Now + w.Limit; {
	case w.Stop:
		return gneterrors.ErrEngineShutdown
	case w.Limit == 0:
		p.ring()
	case w.Limit > 0 && (at < p.due || p.due <= w.Now):
		p.due = at
		p.setAlarm(w.Limit)
	}
	return nil
}
