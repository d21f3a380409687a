package proxy

import (
	"slices"
	"time"

	"github.com/remora-proxy/remora/protocol"
)

// httpDials is how many connections to one endpoint are dialled at a time. The
// driver dials about as many at once, over all endpoints: further ones would wait
// there, each for its own, while others become free.
const httpDials = 128

// httpDialAgain is how long after the driver has refused a dial, for want of room, an
// endpoint's pool tries another; as long as that is in vain it waits for twice as long
// each time, up to httpDialAgainMost.
const (
	httpDialAgain     = 20 * time.Millisecond
	httpDialAgainMost = 80 * time.Millisecond
)

// httpPool is the HTTP upstream of one endpoint on one loop: a stack of idle
// connections, the latest used on top, so that a surplus grows old and goes.
// There are at most as many connections as the service has requests in flight.
type httpPool struct {
	w         *shard
	responses *pool

	svc     *service
	target  *endpoint
	idle    []*httpUpstream
	open    int // those that are being dialled too
	dialing int
	retired bool
	sweeper Timer

	// waiting are attempts that take the next connection that is free or can be
	// dialled. While there are any, one at least is being dialled or in use.
	waiting waitList
	came    uint64        // how many attempts have come
	freed   time.Duration // when one was last free

	// backoff is not 0 when the driver has refused a dial, and has not taken one since.
	// While there are connections that may become free, the pool dials by again alone,
	// for one attempt at a time; again is armed, or has such a dial under way, and is
	// armed for backoff when that is refused.
	backoff time.Duration
	again   Timer
}

// httpConnector makes the HTTP pools of one loop.
type httpConnector struct {
	w    *shard
	pool *pool
}

func newHTTPConnector(w *shard, p *pool) connector { return httpConnector{w, p} }

func (h httpConnector) upstream(s *service, target *endpoint) upstream {
	p := &httpPool{w: h.w, responses: h.pool, svc: s, target: target}
	p.sweeper.Fire = p.sweep
	p.again.Fire = p.dialAgain
	return p
}

func (p *httpPool) send(a *attempt) {
	if a.codec() != protocol.CodecHTTP {
		a.failed(FailNotConvertible)
		return
	}
	p.came++
	a.carry(p, p.came)
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

func (p *httpPool) dial(a *attempt) {
	c := &httpUpstream{pool: p, w: p.w, a: a}
	c.outbound.init(c.w)
	c.pause.Fire = c.leave
	a.carry(c, a.id())
	p.open++
	p.dialing++
	p.w.loop.Dial(p.target.lb.Addr, p.svc.cfg.ConnectTimeout, c)
}

// mayDial tells whether a dial is to be tried, but by dialAgain.
func (p *httpPool) mayDial() bool {
	return p.dialing < httpDials && (p.backoff == 0 || p.open <= p.dialing)
}

// wait puts a among those that wait, by when it came. Ahead of it are only some that
// were dialled for as well, and refused before it.
func (p *httpPool) wait(a *attempt) {
	a.carry(p, a.id())
	p.waiting.insertByID(a, p.w.loop.Now())
}

// refused: the driver has no room for a dial; the attempt that it was for (nil: none)
// has its place back.
func (p *httpPool) refused(a *attempt) {
	p.backoff = max(p.backoff, httpDialAgain)
	if !p.again.Armed() {
		p.w.loop.After(p.backoff, &p.again)
		p.backoff = min(2*p.backoff, httpDialAgainMost)
	}
	switch {
	case a == nil:
	case len(p.idle) > 0: // one has become free since the dial
		p.send(a)
	default:
		p.wait(a)
	}
}

// dialAgain dials for the attempt that has waited longest, to see whether there is
// room now.
func (p *httpPool) dialAgain() {
	if p.waiting.empty() {
		p.backoff = 0
	}
	if p.backoff > 0 {
		p.dial(p.waiting.pop())
	}
}

// opened: a dial has become a connection.
func (p *httpPool) opened() {
	p.backoff = 0
	p.dialing--
	p.freed = p.w.loop.Now()
}

// dialNext dials for those that wait, as many as there is room for.
func (p *httpPool) dialNext() {
	for !p.waiting.empty() && p.mayDial() {
		p.dial(p.waiting.pop())
	}
}

// expire: a dial has failed. Where no connection was free for as long as one may
// take, neither will those that wait as long get one.
func (p *httpPool) expire() {
	long := p.w.loop.Now() - p.svc.cfg.ConnectTimeout
	for p.freed <= long && !p.waiting.empty() && p.waiting.since() <= long {
		p.waiting.pop().failed(FailConnect)
	}
}

// cancel implements carrier for what waits for a connection.
func (p *httpPool) cancel(a *attempt) (lingers bool) {
	p.abort(a)
	return false
}

// abort implements carrier.
func (p *httpPool) abort(a *attempt) {
	p.waiting.remove(a)
	a.drop()
}

// buffered implements carrier: a request counts itself.
func (p *httpPool) buffered(*attempt) int { return 0 }

// cancel implements carrier. It leaves the request with the application if that may
// have it: its answer is awaited and dropped, so that the connection stays and the
// application's work stays counted.
func (c *httpUpstream) cancel(*attempt) (lingers bool) {
	if c.state != upstreamDialing {
		return true
	}
	c.release()
	return false
}

// abort implements carrier. It closes the connection: there is no other way to take a
// request back.
func (c *httpUpstream) abort(*attempt) {
	c.release()
	if c.state != upstreamDialing {
		c.close()
	}
}

// buffered implements carrier.
func (c *httpUpstream) buffered(*attempt) int {
	n := c.outbound.counted
	if c.ans != nil {
		n += c.ans.held
	}
	return n
}

func (p *httpPool) connections() int { return p.open }

func (p *httpPool) largest() (held, each int, h holder) { return 0, 0, nil }

func (p *httpPool) retire() {
	p.retired = true
	p.w.loop.Stop(&p.sweeper)
	for _, c := range p.idle {
		c.conn.Close()
	}
	p.idle = nil
}

// put makes c available again: to who waits, else to who comes.
func (p *httpPool) put(c *httpUpstream) {
	p.freed = p.w.loop.Now()
	if a := p.waiting.pop(); a != nil {
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
		p.w.loop.After(p.svc.cfg.IdleTimeout, &p.sweeper)
	}
}

// remove takes a connection that closed while idle off the stack.
func (p *httpPool) remove(c *httpUpstream) {
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
func (p *httpPool) sweep() {
	now, timeout := p.w.loop.Now(), p.svc.cfg.IdleTimeout
	gone := 0
	for gone < min(len(p.idle), sweepMost) && now-p.idle[gone].idleSince >= timeout {
		p.idle[gone].close()
		gone++
	}
	p.idle = slices.Delete(p.idle, 0, gone)
	switch {
	case len(p.idle) == 0:
	case gone == sweepMost:
		p.w.loop.After(sweepPause, &p.sweeper)
	default:
		p.w.loop.After(max(p.idle[0].idleSince+timeout-now, timeout/8), &p.sweeper)
	}
}
