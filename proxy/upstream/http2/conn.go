package http2

import (
	"slices"
	"time"

	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/shard"
)

// conn is a connection to an endpoint: it lives from the dial to the close, and writes what the codec has to send. Each
// request on it is a call.
type conn struct {
	pool      *pool
	shard     *shard.Shard
	transport loop.Conn
	state     connState
	h2        http2.Conn
	options   http2.Options

	calls     []*call // requests in flight, those that linger included
	heard     bool    // something was heard since the connection was last idle
	feeding   bool    // the codec is decoding
	freed     bool    // a request is over, and its room has no use yet
	idleSince time.Duration

	out      loop.Flush
	outbound shard.Outbound
	outputs  uint64 // how often the codec was asked for output
	account  shard.TableAccount

	handshake handshake
	withdrawn withdrawn
	partial   partial
	keepalive keepalive

	unsent     int        // requests of which something waits to be sent
	starvation loop.Timer // armed while requests wait for the endpoint's window
	drainLimit loop.Timer // armed once the endpoint is not trusted any more
}

var (
	_ loop.Named      = (*conn)(nil)
	_ loop.Negotiated = (*conn)(nil)
	_ loop.Verified   = (*conn)(nil)
)

func newConn(p *pool) *conn {
	c := &conn{pool: p, shard: p.shard}
	c.options = http2.Options{Buffers: &p.shard.Buffers, Limits: *p.shard.MessageLimits, Window: mux.StreamWindow}
	c.h2.InitClient(&c.options, events{c})
	c.handshake.init(c)
	c.outbound.Init(c.shard)
	c.out.Do = c.flush
	c.starvation.Fire = c.onStarved
	c.drainLimit.Fire = func() { c.close(fault.Reset) }
	c.keepalive.timer.Fire = c.onKeepalive
	return c
}

// ServiceKey implements loop.Destined.
func (c *conn) ServiceKey() string { return c.pool.service.Shared.Key }

// ServerName implements loop.Named.
func (c *conn) ServerName() string { return c.pool.name }

// ALPN implements loop.Negotiated.
func (c *conn) ALPN() string { return "h2" }

// busy reports whether the connection carries a request, or one lingers on it.
func (c *conn) busy() bool { return len(c.calls) > 0 }

// room reports whether another request may be sent.
func (c *conn) room() bool {
	return c.state == open && len(c.calls) < streamLimit && c.h2.MayOpen() > 0
}

// OnOpen implements loop.Receiver.
func (c *conn) OnOpen(conn loop.Conn) {
	c.transport, c.outbound.Conn = conn, conn
	c.handshake.onConnected()
}

// OnData implements loop.Receiver.
func (c *conn) OnData(b []byte) {
	c.heard, c.keepalive.heard = true, true
	c.h2.Advance(c.shard.Loop.Now())
	c.feeding = true
	err := c.h2.Feed(b)
	c.feeding = false
	switch {
	case c.state == greeting && err != nil:
		c.handshake.fail(notHTTP2(b, err))
		return
	case err != nil:
		c.shard.Log.Warn("connection closed: malformed input", "peer", c.transport.RemoteAddr(), "error", err)
		c.farewell()
		c.close(fault.Reset)
		return
	}
	c.partial.check()
	c.reuse()
	if c.state == closed {
		return
	}
	c.recount()
	if c.h2.Ready() {
		c.shard.Loop.Defer(&c.out)
	}
}

// OnClose implements loop.Receiver.
func (c *conn) OnClose(err error) {
	c.pool.open--
	switch c.state {
	case dialing, greeting:
		c.handshake.onClose(err)
	case open, draining:
		c.end(fault.Reset, err != nil && !c.heard && c.idleSince > 0)
	}
	c.pool.dialMore()
}

// schedule sends what the codec has: at once if it is alone on the connection, otherwise with all
// that the turn brings.
func (c *conn) schedule(alone bool) {
	if alone && !c.feeding {
		c.flush()
		return
	}
	c.shard.Loop.Defer(&c.out)
}

// flush writes the frames of the codec, as far as the endpoint reads them.
func (c *conn) flush() {
	if c.state == closed {
		return
	}
	for c.h2.Ready() {
		if c.transport.Buffered() > mux.MaxOutbound {
			c.transport.AwaitRoom(mux.MaxOutbound, &c.out)
			break
		}
		c.outputs++
		c.outbound.Write(c.h2.Output(mux.BatchSize))
	}
	c.outbound.Watch()
	c.recount()
	if c.unsent > 0 && !c.starvation.Armed() {
		c.shard.Loop.After(c.shard.Config.Timeouts.Write, &c.starvation)
	}
	c.reuse()
}

// recount charges the memory of the codec to limits.buffered.
func (c *conn) recount() { c.account.Count(c.shard, c.h2.Encoded(), c.h2.Interned()) }

// onStarved abandons requests of which the endpoint has accepted nothing since the last time: its
// window is closed for timeouts.write.
func (c *conn) onStarved() {
	for _, s := range slices.Clone(c.calls) {
		if s.c != c || s.st == nil || s.attempt == nil {
			continue // it ended with another, and may have a new request
		}
		if left := s.st.Unsent(); left != s.left || left == 0 {
			s.left = left
			continue
		}
		c.shard.Stats.WriteTimeouts++
		c.shard.Log.Warn("request withdrawn: the endpoint opens no window for it, timeouts.write passed", "peer", c.transport.RemoteAddr())
		s.drop(fault.Reset)
	}
	if c.unsent > 0 {
		c.shard.Loop.After(c.shard.Config.Timeouts.Write, &c.starvation)
	}
}

// OnUntrusted implements loop.Verified. Requests in flight get their responses.
func (c *conn) OnUntrusted() {
	switch c.state {
	case greeting:
		c.handshake.fail(errUntrusted)
	case open, draining:
		c.drain()
		if c.state != closed {
			c.shard.Loop.After(c.shard.Config.Timeouts.Drain, &c.drainLimit)
		}
	}
}

// drain closes the connection once it carries nothing.
func (c *conn) drain() {
	if c.state == open {
		c.state.become(draining)
		c.pool.drain(c)
	}
	c.finishDrain()
}

func (c *conn) finishDrain() {
	if c.state != draining || c.busy() {
		return
	}
	if c.feeding {
		c.freed = true
		return
	}
	c.farewell()
	c.close(nil)
}

// farewell sends a GOAWAY, behind all other frames. An endpoint that does not read gets nothing more: requests that wait in the
// codec count as unsent.
func (c *conn) farewell() {
	if c.transport.Buffered() > mux.MaxOutbound {
		return
	}
	c.h2.GoAway(http2.NoError)
	c.outputs++
	c.outbound.Write(c.h2.Output(mux.BatchSize))
}

// close closes the connection, and fails with f the requests in flight on it. A request of which
// no byte was sent counts as unsent, whatever f says.
func (c *conn) close(f *fault.Failure) {
	if c.state != closed {
		c.end(f, false)
	}
}

// end is close for a connection that is not closed. If it is stale, the endpoint has closed it after it was idle, and
// nothing was heard since: the endpoint probably closed it for that. Then a request is sent once more, if that is safe
// (RFC 9112 section 9.3.1).
func (c *conn) end(f *fault.Failure, stale bool) {
	c.pool.remove(c)
	c.state.become(closed)
	c.h2.Close()
	c.account.Count(c.shard, 0, 0)
	c.outbound.Stop()
	c.handshake.stop()
	for _, t := range []*loop.Timer{&c.starvation, &c.drainLimit, &c.keepalive.timer} {
		c.shard.Loop.Stop(t)
	}
	if c.transport != nil {
		if f == nil {
			c.transport.Drain()
		} else {
			c.transport.Close()
		}
	}
	for len(c.calls) > 0 {
		s := c.calls[0]
		s.st = nil
		f := f
		if s.born == c.outputs {
			f = f.AsUnsent()
		}
		switch a := s.attempt; {
		case a == nil:
			s.flow.fail(f)
		case s.born == c.outputs:
			s.fail(f)
		case stale && s.response == nil && a.PayReplay():
			s.detach()
			a.Replay()
			c.pool.Send(a)
		default:
			s.fail(f)
		}
	}
}
