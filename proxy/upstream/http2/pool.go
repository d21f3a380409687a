package http2

import (
	"math"
	"slices"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/upstream/byname"
)

// maxConns bounds the connections of a pool. Requests beyond what these carry wait: see expire.
const maxConns = 128

// pool reaches one endpoint from one loop. A request goes to the oldest connection that has room
// for it, so that those in excess reach their idle timeout.
type pool struct {
	shard    *shard.Shard
	service  *service.Service
	endpoint *service.Endpoint
	free     *freeCalls
	name     string  // that the endpoint must prove to each connection; "" without TLS
	conns    []*conn // those that are open, and neither draining nor closed, oldest first
	draining []*conn // those that drain
	open     int     // connections, those being dialled and those that drain included
	dials    dials
	retired  bool // the endpoint has left the service
	sweeper  loop.Timer

	waiting  race.Queue    // attempts that wait for room, or for a dial to be possible
	queued   int           // their number
	arrivals uint64        // attempts that were sent
	freed    time.Duration // when a connection last had room
	expiry   loop.Timer    // armed while attempts or streams wait

	tunnels []*tunnel // streams that wait likewise, the oldest first
}

// NewConnector returns the Connector of HTTP/2 connections on a loop.
func NewConnector() service.Connector {
	free := new(freeCalls)
	return race.ConnectBy(func(s *service.Service, e *service.Endpoint) race.Upstream {
		if s.Config.TLS.Enabled() {
			return newSecure(s, e, free)
		}
		return newPool(s, e, free, "")
	})
}

var _ byname.Pool = (*pool)(nil)

func newPool(s *service.Service, e *service.Endpoint, free *freeCalls, name string) *pool {
	p := &pool{shard: s.Shard, service: s, endpoint: e, free: free, name: name}
	p.sweeper.Fire = p.sweep
	p.dials.again.Fire = p.dialAgain
	p.expiry.Fire = p.expire
	return p
}

// Send implements race.Upstream.
func (p *pool) Send(a *race.Attempt) {
	switch {
	case a.Outgoing().Codec() != protocol.CodecHTTP:
		a.Fail(fault.NotConvertible)
		return
	case a.Outgoing().LogsIn(): // all requests share the connections
		a.Fail(fault.ConnectionLogin)
		return
	case string(a.Outgoing().Request().Method) == "CONNECT": // no message to forward
		a.Fail(fault.BadRequest)
		return
	case p.queued == 0:
		if c := p.roomy(); c != nil {
			c.begin(a)
			return
		}
	}
	p.arrivals++
	a.Carry(p, p.arrivals)
	p.wait(a)
	p.dialMore()
}

// roomy returns the oldest connection with room for another stream, or nil.
func (p *pool) roomy() *conn {
	for _, c := range p.conns {
		if c.room() {
			return c
		}
	}
	return nil
}

// wait queues a in the order of arrival.
func (p *pool) wait(a *race.Attempt) {
	p.queued++
	p.waiting.InsertByID(a, p.shard.Loop.Now())
	p.watchWaiting()
}

func (p *pool) watchWaiting() {
	if !p.expiry.Armed() {
		p.shard.Loop.After(p.service.Config.ConnectTimeout, &p.expiry)
	}
}

// expire fails what has waited for connect_timeout: another endpoint may have room. Without another,
// attempts wait until their deadline. A dial has that bound itself, so nothing expires while one is
// under way.
func (p *pool) expire() {
	now, timeout := p.shard.Loop.Now(), p.service.Config.ConnectTimeout
	for p.queued > 0 && p.dials.n == 0 && !p.service.Alone() && p.waiting.Since()+timeout <= now {
		p.pop().Fail(fault.StreamLimit)
	}
	for len(p.tunnels) > 0 && p.dials.n == 0 && p.tunnels[0].waits+timeout <= now {
		p.tunnels[0].failDial(fault.StreamLimit)
	}
	oldest := time.Duration(math.MaxInt64)
	if p.queued > 0 {
		oldest = p.waiting.Since()
	}
	if len(p.tunnels) > 0 {
		oldest = min(oldest, p.tunnels[0].waits)
	}
	if oldest < math.MaxInt64 && !p.expiry.Armed() {
		p.shard.Loop.After(max(oldest+timeout-now, timeout/8), &p.expiry)
	}
}

// pop returns the attempt that has waited longest, or nil.
func (p *pool) pop() *race.Attempt {
	a := p.waiting.Pop()
	if a != nil {
		p.queued--
	}
	return a
}

// Cancel implements race.Carrier for attempts that wait.
func (p *pool) Cancel(a *race.Attempt) (lingers bool) {
	p.Abort(a)
	return false
}

// Abort implements race.Carrier.
func (p *pool) Abort(a *race.Attempt) {
	p.queued--
	p.waiting.Remove(a)
	a.Detach()
}

// Buffered implements race.Carrier. The exchange counts the memory of its request.
func (p *pool) Buffered(*race.Attempt) int { return 0 }

// Connections implements race.Upstream.
func (p *pool) Connections() int { return p.open }

// Unused implements byname.Pool.
func (p *pool) Unused() bool {
	return p.queued == 0 && len(p.tunnels) == 0 && p.open == len(p.conns) && !slices.ContainsFunc(p.conns, (*conn).busy)
}

// Retire implements race.Upstream.
func (p *pool) Retire() {
	p.retired = true
	p.shard.Loop.Stop(&p.sweeper)
	for _, c := range slices.Clone(p.conns) {
		if !c.busy() {
			c.drain()
		}
	}
}

// onRoom is called when c may have room for another stream: waiting requests get it, or it
// is idle.
func (p *pool) onRoom(c *conn) {
	p.freed = p.shard.Loop.Now()
	for p.queued > 0 && c.room() {
		c.begin(p.pop())
	}
	for len(p.tunnels) > 0 && c.room() {
		t := p.tunnels[0]
		p.tunnels = slices.Delete(p.tunnels, 0, 1)
		t.onRoom(c)
	}
	if c.state != open || c.busy() {
		return
	}
	if p.retired {
		c.drain()
		return
	}
	c.idleSince = p.freed
	if !p.sweeper.Armed() {
		p.shard.Loop.After(p.service.Config.IdleTimeout, &p.sweeper)
	}
}

// drain takes c out of those that get requests.
func (p *pool) drain(c *conn) {
	p.remove(c)
	p.draining = append(p.draining, c)
}

// remove takes out c, which closes.
func (p *pool) remove(c *conn) {
	for _, list := range []*[]*conn{&p.conns, &p.draining} {
		if i := slices.Index(*list, c); i >= 0 {
			*list = slices.Delete(*list, i, i+1)
		}
	}
}

// After a burst many connections reach idle_timeout together. sweep closes at most maxSweep in a
// turn, and the next after sweepPause.
const (
	maxSweep   = 8
	sweepPause = 2 * time.Millisecond
)

// sweep closes connections that were idle for idle_timeout. Besides the pauses between many of
// them, it runs at most eight times per timeout, whatever the traffic.
func (p *pool) sweep() {
	now, timeout := p.shard.Loop.Now(), p.service.Config.IdleTimeout
	swept, next := 0, time.Duration(math.MaxInt64)
	for _, c := range slices.Clone(p.conns) {
		switch left := c.idleSince + timeout - now; {
		case c.busy():
		case left <= 0 && swept < maxSweep:
			swept++
			c.drain()
		default:
			next = min(next, left)
		}
	}
	switch {
	case next == math.MaxInt64:
	case swept == maxSweep:
		p.shard.Loop.After(sweepPause, &p.sweeper)
	default:
		p.shard.Loop.After(max(next, timeout/8), &p.sweeper)
	}
}

// Largest implements race.Upstream.
func (p *pool) Largest() (held, each int, h shard.Holder) {
	for _, list := range [][]*conn{p.conns, p.draining} {
		for _, c := range list {
			if n := c.memory(); n > held {
				held, each, h = n, n/max(1, len(c.calls)), c
			}
		}
	}
	return held, each, h
}

// streamLimit bounds the streams of one connection, whatever the endpoint allows.
const streamLimit = mux.MaxStreams
