package http

import (
	"slices"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
)

// maxDials is how many connections to one endpoint are dialled at a time. The
// driver dials about as many at once, over all endpoints: further ones would wait
// there, each for its own, while others become free.
const maxDials = 128

// minBackoff is how long after the driver has refused a dial, for want of room, an
// endpoint's pool tries another; as long as that is in vain it waits for twice as long
// each time, up to maxBackoff.
const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = 80 * time.Millisecond
)

// pool is the HTTP upstream of one endpoint on one loop: a stack of idle
// connections, the latest used on top, so that a surplus grows old and goes.
// There are at most as many connections as the service has requests in flight.
type pool struct {
	shard     *shard.Shard
	responses *exchange.Pool

	service  *exchange.Service
	endpoint *exchange.Endpoint
	idle     []*conn
	open     int // those that are being dialled too
	dialing  int
	retired  bool
	sweeper  loop.Timer

	// waiting are attempts that take the next connection that is free or can be
	// dialled. While there are any, one at least is being dialled or in use.
	waiting  exchange.Queue
	arrivals uint64        // how many attempts have come
	freed    time.Duration // when one was last free

	// backoff is not 0 when the driver has refused a dial, and has not taken one since.
	// While there are connections that may become free, the pool dials by again alone,
	// for one attempt at a time; again is armed, or has such a dial under way, and is
	// armed for backoff when that is refused.
	backoff time.Duration
	again   loop.Timer
}

func (p *pool) Send(a *exchange.Attempt) {
	if a.Codec() != protocol.CodecHTTP {
		a.Failed(fault.NotConvertible)
		return
	}
	p.arrivals++
	a.Carry(p, p.arrivals)
	if n := len(p.idle); n > 0 {
		c := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		c.begin(a)
		return
	}
	if !p.mayDial() {
		p.wait(a)
		return
	}
	p.dial(a)
}

func (p *pool) dial(a *exchange.Attempt) {
	c := &conn{pool: p, shard: p.shard, current: a}
	c.outbound.Init(c.shard)
	c.pause.Fire = c.handOff
	a.Carry(c, a.ID())
	p.open++
	p.dialing++
	p.shard.Loop.Dial(p.endpoint.LB.Addr, p.service.Config.ConnectTimeout, c)
}

// mayDial tells whether a dial is to be tried, but by dialAgain.
func (p *pool) mayDial() bool {
	return p.dialing < maxDials && (p.backoff == 0 || p.open <= p.dialing)
}

// wait puts a among those that wait, by when it came. Ahead of it are only some that
// were dialled for as well, and refused before it.
func (p *pool) wait(a *exchange.Attempt) {
	a.Carry(p, a.ID())
	p.waiting.InsertByID(a, p.shard.Loop.Now())
}

// onDialRefused: the driver has no room for a dial; the attempt that it was for (nil: none)
// has its place back.
func (p *pool) onDialRefused(a *exchange.Attempt) {
	p.backoff = max(p.backoff, minBackoff)
	if !p.again.Armed() {
		p.shard.Loop.After(p.backoff, &p.again)
		p.backoff = min(2*p.backoff, maxBackoff)
	}
	switch {
	case a == nil:
	case len(p.idle) > 0: // one has become free since the dial
		p.Send(a)
	default:
		p.wait(a)
	}
}

// dialAgain dials for the attempt that has waited longest, to see whether there is
// room now.
func (p *pool) dialAgain() {
	if p.waiting.Empty() {
		p.backoff = 0
	}
	if p.backoff > 0 {
		p.dial(p.waiting.Pop())
	}
}

// onOpened: a dial has become a connection.
func (p *pool) onOpened() {
	p.backoff = 0
	p.dialing--
	p.freed = p.shard.Loop.Now()
}

// dialNext dials for those that wait, as many as there is room for.
func (p *pool) dialNext() {
	for !p.waiting.Empty() && p.mayDial() {
		p.dial(p.waiting.Pop())
	}
}

// expire: a dial has failed. Where no connection was free for as long as one may
// take, neither will those that wait as long get one.
func (p *pool) expire() {
	long := p.shard.Loop.Now() - p.service.Config.ConnectTimeout
	for p.freed <= long && !p.waiting.Empty() && p.waiting.Since() <= long {
		p.waiting.Pop().Failed(fault.Connect)
	}
}

// Cancel implements carrier for what waits for a connection.
func (p *pool) Cancel(a *exchange.Attempt) (lingers bool) {
	p.Abort(a)
	return false
}

// Abort implements carrier.
func (p *pool) Abort(a *exchange.Attempt) {
	p.waiting.Remove(a)
	a.Release()
}

// Buffered implements carrier: a request counts itself.
func (p *pool) Buffered(*exchange.Attempt) int { return 0 }

func (p *pool) Connections() int { return p.open }

func (p *pool) Largest() (held, each int, h exchange.Holder) { return 0, 0, nil }

func (p *pool) Retire() {
	p.retired = true
	p.shard.Loop.Stop(&p.sweeper)
	for _, c := range p.idle {
		c.transport.Close()
	}
	p.idle = nil
}

// put makes c available again: to who waits, else to who comes.
func (p *pool) put(c *conn) {
	p.freed = p.shard.Loop.Now()
	if a := p.waiting.Pop(); a != nil {
		c.begin(a)
		return
	}
	if p.retired {
		c.close()
		return
	}
	c.idleSince, c.reused = p.freed, true
	p.idle = append(p.idle, c)
	if !p.sweeper.Armed() {
		p.shard.Loop.After(p.service.Config.IdleTimeout, &p.sweeper)
	}
}

// remove takes a connection that closed while idle off the stack.
func (p *pool) remove(c *conn) {
	for i, other := range p.idle {
		if other == c {
			p.idle = slices.Delete(p.idle, i, i+1)
			return
		}
	}
}

// A burst leaves connections that are all idle for too long in the same moment, and to
// close hundreds in one turn would hold up what is under way. So no more than sweepMost
// are closed at a time, the next sweepPause later.
const (
	sweepMost  = 8
	sweepPause = 2 * time.Millisecond
)

// sweep closes connections that were idle for idle_timeout. But for pauses between
// many of them it runs a few times per timeout at most, whatever the traffic.
func (p *pool) sweep() {
	now, timeout := p.shard.Loop.Now(), p.service.Config.IdleTimeout
	gone := 0
	for gone < min(len(p.idle), sweepMost) && now-p.idle[gone].idleSince >= timeout {
		p.idle[gone].close()
		gone++
	}
	p.idle = slices.Delete(p.idle, 0, gone)
	switch {
	case len(p.idle) == 0:
	case gone == sweepMost:
		p.shard.Loop.After(sweepPause, &p.sweeper)
	default:
		p.shard.Loop.After(max(p.idle[0].idleSince+timeout-now, timeout/8), &p.sweeper)
	}
}
