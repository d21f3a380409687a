package http

import (
	"time"

	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
)

// maxDials is the highest number of dials to one endpoint at a time. The reactor has as many under way to one address
// if they have a handshake of TLS or go to a Unix socket. A further dial would wait there for its own connection, although
// others become free.
const maxDials = 128

// A pool waits for minBackoff after the driver has refused a dial for want of room. Each
// further refusal doubles the pause, up to maxBackoff.
const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = 80 * time.Millisecond
)

// dials opens the connections of a pool, as many at a time as it and the driver have room for.
//
// Calls in: start, where may allows it; next, when there may be room. onOpened and onFailed end a dial, and postpone one
// that the driver has refused.
//
// Calls out: a new connection, or the pool, gets the attempt.
type dials struct {
	*pool
	underway int
	mean     time.Duration // of the time of a connect; 0 means unknown

	// backoff is 0 unless the driver has refused a dial and accepted none since. Until
	// then, and while connections may become free, only retry dials, for one attempt
	// at a time. It is armed, or its dial is under way; a refusal arms it for backoff.
	backoff time.Duration
	retry   loop.Timer
}

func (d *dials) init(p *pool) {
	d.pool = p
	d.retry.Fire = d.again
}

// start opens a connection for a, or for any attempt if a is nil.
func (d *dials) start(a *race.Attempt) {
	c := newConn(d.pool, a)
	if a != nil {
		a.Carry(c, a.ID())
	}
	d.open++
	d.underway++
	d.shard.Loop.Dial(d.endpoint.LB.Addr, d.service.Config.ConnectTimeout, c)
}

// may reports whether a dial may start outside of again.
func (d *dials) may() bool {
	return d.underway < maxDials && (d.backoff == 0 || d.open <= d.underway)
}

// next dials for waiting attempts, as many as possible.
func (d *dials) next() {
	for !d.waiting.Empty() && d.may() {
		d.start(d.waiting.Pop())
	}
}

// again dials for the attempt that has waited longest, to test for room in the driver.
func (d *dials) again() {
	if d.waiting.Empty() {
		d.backoff = 0
	}
	if d.backoff > 0 {
		d.start(d.waiting.Pop())
	}
}

// onOpened ends the dial of c, which has opened.
func (d *dials) onOpened(c *conn) {
	d.backoff = 0
	d.underway--
	d.freed = d.shard.Loop.Now()
	took := d.freed - c.idleSince
	if d.mean == 0 {
		d.mean = took
	}
	d.mean += (took - d.mean) / 8
}

// onFailed ends a dial that has failed with f. It reports whether the driver had no room for the dial while connections
// are open, which may become free.
func (d *dials) onFailed(f *fault.Failure) (refused bool) {
	d.underway--
	if f == fault.DialLimit && d.open > d.underway {
		return true
	}
	d.backoff = 0
	return false
}

// postpone waits until the driver may have room again. a is the attempt whose dial it has refused, or nil; it gets its
// place in the queue back.
func (d *dials) postpone(a *race.Attempt) {
	d.backoff = max(d.backoff, minBackoff)
	if !d.retry.Armed() {
		d.shard.Loop.After(d.backoff, &d.retry)
		d.backoff = min(2*d.backoff, maxBackoff)
	}
	switch {
	case a == nil:
	case d.idle.len() > 0: // one became free since the dial
		d.Send(a)
	default:
		d.wait(a)
	}
}
