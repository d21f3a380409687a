package http2

import (
	"time"

	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
)

// maxDials is the highest number of dials to one endpoint at a time.
const maxDials = 16

// A pool waits for minBackoff after the driver has refused a dial for want of room. Each
// further refusal doubles the pause, up to maxBackoff.
const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = 80 * time.Millisecond
)

// dials are the connections of a pool that are not open yet.
type dials struct {
	n     int // under way, until the endpoint's SETTINGS
	limit int // streams that the endpoint last allowed on a connection; 0 means unknown

	// pause is 0 unless the driver has refused a dial and accepted none since. Until then only
	// again dials.
	pause time.Duration
	again loop.Timer
}

// dialMore dials as many connections as waiting requests need. Until the endpoint has told its
// limit, one is enough.
func (p *pool) dialMore() {
	d := &p.dials
	for d.n < maxDials && p.open < maxConns && (d.pause == 0 || p.open == 0) {
		waiting, room := p.queued+len(p.tunnels), d.n*max(1, d.limit)
		if waiting <= room || d.limit == 0 && d.n > 0 {
			return
		}
		p.dial()
	}
}

func (p *pool) dial() {
	p.open++
	p.dials.n++
	p.shard.Loop.Dial(p.endpoint.LB.Addr, p.service.Config.ConnectTimeout, newConn(p))
}

// onDialed is called when a connection has become open.
func (p *pool) onDialed(c *conn) {
	p.dials.n--
	p.dials.pause = 0
	p.conns = append(p.conns, c)
	p.onRoom(c)
	p.dialMore()
}

// onDialFailed is called when a dial has failed with f. The requests up to newest have waited since it
// began. If no other connection is there or under way, all of them fail with f; otherwise one does, as
// do those for which there was no room for connect_timeout. If the driver had no room for the dial,
// which says nothing about the endpoint, they wait for another connection, if there is one.
func (p *pool) onDialFailed(f *fault.Failure, newest uint64) {
	p.dials.n--
	alone := len(p.conns) == 0 && p.dials.n == 0
	if f == fault.DialLimit && !alone {
		p.pauseDials()
		return
	}
	p.dials.pause = 0
	p.fail(f, newest, alone)
	limit := p.shard.Loop.Now() - p.service.Config.ConnectTimeout
	for p.freed <= limit && p.queued > 0 && p.waiting.Since() <= limit {
		p.pop().Fail(fault.Connect)
	}
	for p.freed <= limit && len(p.tunnels) > 0 && p.tunnels[0].waits <= limit {
		p.tunnels[0].failDial(fault.Connect)
	}
	p.dialMore()
}

// fail fails waiting requests up to newest, all or one. A retry may queue again, and has a later
// id.
func (p *pool) fail(f *fault.Failure, newest uint64, all bool) {
	for p.queued > 0 && p.waiting.First().ID() <= newest {
		p.pop().Fail(f)
		if !all {
			return
		}
	}
	tunnels := p.tunnels
	p.tunnels = nil
	for i, t := range tunnels {
		if !all && i > 0 {
			p.tunnels = append(tunnels[i:], p.tunnels...)
			return
		}
		t.failDial(f)
	}
}

// pauseDials arms the timer of the next dial after the driver has refused one.
func (p *pool) pauseDials() {
	d := &p.dials
	d.pause = max(d.pause, minBackoff)
	if !d.again.Armed() {
		p.shard.Loop.After(d.pause, &d.again)
		d.pause = min(2*d.pause, maxBackoff)
	}
}

// dialAgain dials once, to test for room in the driver.
func (p *pool) dialAgain() {
	switch {
	case p.queued == 0 && len(p.tunnels) == 0:
		p.dials.pause = 0
	case p.dials.pause > 0 && p.open < maxConns:
		p.dial()
	}
}
