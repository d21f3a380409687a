package http

import (
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/upstream/byname"
)

// pool reaches one endpoint from one loop: it gives each attempt a connection. It has at most as many connections as the
// service has requests in flight, besides those of logins, which close, and idle ones that the server may close just now.
type pool struct {
	shard    *shard.Shard
	service  *service.Service
	endpoint *service.Endpoint
	name     string // that the endpoint must prove to each connection; "" without TLS
	open     int    // connections, those being dialled included
	dials    dials
	idle     idleConns
	keeping  keeping
	retired  bool // the endpoint has left the service

	// waiting has the attempts that wait for a connection to become free, or for a dial
	// to be possible. While it has any, at least one connection is dialled or in use.
	waiting  race.Queue
	arrivals uint64        // attempts that were sent
	freed    time.Duration // when a connection was last free
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
	p.dials.init(p)
	p.idle.init(p)
	return p
}

func (p *pool) Send(a *race.Attempt) {
	if a.Outgoing().Codec() != protocol.CodecHTTP {
		a.Fail(fault.NotConvertible)
		return
	}
	p.arrivals++
	a.Carry(p, p.arrivals)
	if c := p.idle.top(); c != nil {
		if c.idleFor = p.shard.Loop.Now() - c.idleSince; p.suits(c, a) || !p.dials.may() {
			p.idle.pop()
			c.begin(a)
			return
		}
	}
	if !p.dials.may() {
		p.wait(a)
		return
	}
	p.dials.start(a)
}

// suits reports whether a should be sent on c, an idle connection. A login should not: it can't be sent
// twice, so it takes a new connection.
func (p *pool) suits(c *conn, a *race.Attempt) bool {
	req := a.Outgoing()
	return !req.LogsIn() && (c.idleFor <= p.keeping.kept || req.Repeatable())
}

// wait queues a in the order of arrival. An attempt whose dial was refused is near the head:
// only such attempts are before it.
func (p *pool) wait(a *race.Attempt) {
	a.Carry(p, a.ID())
	p.waiting.InsertByID(a, p.shard.Loop.Now())
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
func (p *pool) Unused() bool { return p.open == p.idle.len() }

func (p *pool) Largest() (held, each int, h shard.Holder) { return 0, 0, nil }

func (p *pool) Retire() {
	p.retired = true
	p.idle.closeAll()
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
	p.idle.push(c)
}
