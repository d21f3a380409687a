package http

import (
	"slices"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/upstream/byname"
)

// maxDials is the highest number of dials to one endpoint at a time. The driver has about as
// many under way over all endpoints. A further dial would wait there for its own connection,
// although others become free.
const maxDials = 128

// A pool waits for minBackoff after the driver has refused a dial for want of room. Each
// further refusal doubles the pause, up to maxBackoff.
const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = 80 * time.Millisecond
)

// pool reaches one endpoint from one loop. Its idle connections are a stack with the last used
// on top, so that those in excess reach their idle timeout. It has at most as many connections
// as the service has requests in flight, besides those of logins, which close, and idle ones that
// the server may close just now.
type pool struct {
	shard    *shard.Shard
	service  *service.Service
	endpoint *service.Endpoint
	name     string // that the endpoint must prove to each connection; "" without TLS
	idle     []*conn
	open     int // connections, those being dialled included
	dialing  int
	keeping  keeping
	connect  time.Duration // mean time of a connect; 0 means unknown
	retired  bool          // the endpoint has left the service
	sweeper  loop.Timer

	// waiting has the attempts that wait for a connection to become free, or for a dial
	// to be possible. While it has any, at least one connection is dialled or in use.
	waiting  race.Queue
	arrivals uint64        // attempts that were sent
	freed    time.Duration // when a connection was last free

	// backoff is 0 unless the driver has refused a dial and accepted none since. Until
	// then, and while connections may become free, only retryDial dials, for one attempt
	// at a time. It is armed, or its dial is under way; a refusal arms it for backoff.
	backoff   time.Duration
	retryDial loop.Timer
}

// NewConnector returns the Connector of HTTP connections on a loop.
func NewConnector() service.Connector {
	return race.ConnectBy(func(s *service.Service, e *service.Endpoint) race.Upstream {
		if s.Config.TLS.Enabled() {
			return byname.New(s, e, func(name string) byname.Pool { return newPool(s, e, name) })
		}
		return newPool(s, e, "")
	})
}

func newPool(s *service.Service, e *service.Endpoint, name string) *pool {
	p := &pool{shard: s.Shard, service: s, endpoint: e, name: name, keeping: keeping{firstKept}}
	p.sweeper.Fire = p.sweep
	p.retryDial.Fire = p.dialAgain
	return p
}

func (p *pool) Send(a *race.Attempt) {
	if a.Outgoing().Codec() != protocol.CodecHTTP {
		a.Fail(fault.NotConvertible)
		return
	}
	p.arrivals++
	a.Carry(p, p.arrivals)
	if n := len(p.idle); n > 0 {
		c := p.idle[n-1]
		if c.idleFor = p.shard.Loop.Now() - c.idleSince; p.suits(c, a) || !p.mayDial() {
			p.idle[n-1] = nil
			p.idle = p.idle[:n-1]
			c.begin(a)
			return
		}
	}
	if !p.mayDial() {
		p.wait(a)
		return
	}
	p.dial(a)
}

// suits reports whether a should be sent on c, an idle connection. A login should not: it can't be sent
// twice, so it takes a new connection.
func (p *pool) suits(c *conn, a *race.Attempt) bool {
	req := a.Outgoing()
	return !req.LogsIn() && (c.idleFor <= p.keeping.kept || req.Repeatable())
}

// dial opens a connection for a, or for any attempt if a is nil.
func (p *pool) dial(a *race.Attempt) {
	c := &conn{pool: p, shard: p.shard, current: a}
	c.outbound.Init(c.shard)
	c.pause.Fire, c.room.Do = c.becomeStream, c.leave
	if a != nil {
		a.Carry(c, a.ID())
	}
	p.open++
	p.dialing++
	c.idleSince = p.shard.Loop.Now()
	p.shard.Loop.Dial(p.endpoint.LB.Addr, p.service.Config.ConnectTimeout, c)
}

// mayDial reports whether a dial may start outside of dialAgain.
func (p *pool) mayDial() bool {
	return p.dialing < maxDials && (p.backoff == 0 || p.open <= p.dialing)
}

// wait queues a in the order of arrival. An attempt whose dial was refused is near the head:
// only such attempts are before it.
func (p *pool) wait(a *race.Attempt) {
	a.Carry(p, a.ID())
	p.waiting.InsertByID(a, p.shard.Loop.Now())
}

// onDialRefused is called when the driver has no room for a dial. a is the attempt that waited
// for it, or nil; it gets its place in the queue back.
func (p *pool) onDialRefused(a *race.Attempt) {
	p.backoff = max(p.backoff, minBackoff)
	if !p.retryDial.Armed() {
		p.shard.Loop.After(p.backoff, &p.retryDial)
		p.backoff = min(2*p.backoff, maxBackoff)
	}
	switch {
	case a == nil:
	case len(p.idle) > 0: // one became free since the dial
		p.Send(a)
	default:
		p.wait(a)
	}
}

// dialAgain dials for the attempt that has waited longest, to test for room in the driver.
func (p *pool) dialAgain() {
	if p.waiting.Empty() {
		p.backoff = 0
	}
	if p.backoff > 0 {
		p.dial(p.waiting.Pop())
	}
}

func (p *pool) onOpened(c *conn) {
	p.backoff = 0
	p.dialing--
	p.freed = p.shard.Loop.Now()
	took := p.freed - c.idleSince
	if p.connect == 0 {
		p.connect = took
	}
	p.connect += (took - p.connect) / 8
}

// dialNext dials for waiting attempts, as many as possible.
func (p *pool) dialNext() {
	for !p.waiting.Empty() && p.mayDial() {
		p.dial(p.waiting.Pop())
	}
}

// expire is called when a dial has failed. If no connection was free for connect_timeout, it
// fails the attempts that have waited for as long.
func (p *pool) expire() {
	limit := p.shard.Loop.Now() - p.service.Config.ConnectTimeout
	for p.freed <= limit && !p.waiting.Empty() && p.waiting.Since() <= limit {
		p.waiting.Pop().Fail(fault.Connect)
	}
}

// Cancel implements race.Carrier for attempts that wait for a connection.
func (p *pool) Cancel(a *race.Attempt) (lingers bool) {
	p.Abort(a)
	return false
}

func (p *pool) Abort(a *race.Attempt) {
	p.waiting.Remove(a)
	a.Detach()
}

// Buffered implements race.Carrier. The exchange counts the memory of its request.
func (p *pool) Buffered(*race.Attempt) int { return 0 }

func (p *pool) Connections() int { return p.open }

// Unused implements byname.Pool. Requests wait only while a connection is dialled or in use.
func (p *pool) Unused() bool { return p.open == len(p.idle) }

func (p *pool) Largest() (held, each int, h shard.Holder) { return 0, 0, nil }

func (p *pool) Retire() {
	p.retired = true
	p.shard.Loop.Stop(&p.sweeper)
	for _, c := range p.idle {
		c.transport.Close()
	}
	p.idle = nil
}

// put gives c to a waiting attempt, or makes it idle.
func (p *pool) put(c *conn) {
	p.freed = p.shard.Loop.Now()
	if a := p.waiting.Pop(); a != nil {
		c.idleFor = 0
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

// remove removes a connection that closed while idle from the stack.
func (p *pool) remove(c *conn) {
	if i := slices.Index(p.idle, c); i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
	}
}

// After a burst many connections reach idle_timeout together. Closing hundreds in one turn
// would delay requests in flight: sweep closes at most maxSweep, and the next after sweepPause.
const (
	maxSweep   = 8
	sweepPause = 2 * time.Millisecond
)

// sweep closes connections that were idle for idle_timeout. Besides the pauses between many of
// them, it runs at most eight times per timeout, whatever the traffic.
func (p *pool) sweep() {
	now, timeout := p.shard.Loop.Now(), p.service.Config.IdleTimeout
	swept := 0
	for swept < min(len(p.idle), maxSweep) && now-p.idle[swept].idleSince >= timeout {
		p.idle[swept].close()
		swept++
		p.keeping.outlived(timeout)
	}
	p.idle = slices.Delete(p.idle, 0, swept)
	switch {
	case len(p.idle) == 0:
	case swept == maxSweep:
		p.shard.Loop.After(sweepPause, &p.sweeper)
	default:
		p.shard.Loop.After(max(p.idle[0].idleSince+timeout-now, timeout/8), &p.sweeper)
	}
}
