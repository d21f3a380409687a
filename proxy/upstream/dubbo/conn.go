package dubbo

import (
	"slices"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
)

// keepaliveInterval is the time between two checks of the provider. After one interval of
// silence the connection sends a heartbeat, after two it closes.
const keepaliveInterval = 15 * time.Second

// client is a connection to a Dubbo provider. It carries up to MaxStreams calls at a time, with
// responses in any order. The calls of one turn are sent in one write.
type client struct {
	up    *upstream
	shard *shard.Shard
	conn  loop.Conn
	state clientState

	calls    table
	queue    []int64      // ids of calls that were not sent, some of them cancelled
	local    []localReply // calls that get a local response at the end of flush
	flushing bool         // flush is running

	out      loop.Flush
	outbound shard.Outbound // write timeout

	reader  dubbo.FrameReader
	account shard.Account

	keepalive loop.Timer
	heard     bool // bytes arrived since the last keepalive
	pinged    bool // a heartbeat has no response yet
}

// localReply is a one-way call, or a request that could not be converted: it gets no response.
type localReply struct {
	a   *race.Attempt
	why *fault.Failure // why it could not be converted; nil for a one-way call
}

func (c *client) ServiceKey() string { return c.up.service.Shared.Key }

func dialDubbo(u *upstream) *client {
	u.open++
	c := &client{up: u, shard: u.service.Shard, calls: newTable()}
	c.reader.Buffers = &c.shard.Buffers
	c.out.Do = c.flush
	c.keepalive.Fire = c.onKeepalive
	c.outbound.Init(c.shard)
	c.shard.Loop.Dial(u.endpoint.LB.Addr, u.service.Config.ConnectTimeout, c)
	return c
}

func (c *client) OnOpen(conn loop.Conn) {
	c.conn, c.outbound.Conn = conn, conn
	c.shard.Loop.After(keepaliveInterval, &c.keepalive)
	if c.up.leaving {
		c.state.become(probing)
		c.sendHeartbeat()
		return
	}
	c.state.become(open)
	c.flush()
}

// onProbeAnswered is called when the provider has responded to a heartbeat: it is back if it was
// leaving. A provider that shuts down accepts connections, but closes them without a response.
func (c *client) onProbeAnswered() {
	switch c.state {
	case probing:
		c.state.become(open)
		c.up.leaving = false
	case probingLeaving:
		c.state.become(leaving)
		c.up.leaving = true // a newer connection may have cleared it meanwhile
	default:
		return
	}
	c.shard.Loop.Defer(&c.out)
}

func (c *client) OnData(b []byte) {
	c.heard = true
	if err := c.reader.Feed(b, c); err != nil {
		c.shard.Log.Warn("connection closed: malformed input", "peer", c.conn.RemoteAddr(), "error", err)
		c.close(fault.Malformed)
		return
	}
	c.recount()
	c.closeIfDone()
}

func (c *client) OnClose(err error) {
	if c.conn == nil {
		c.close(c.up.service.DialFailed(c.up.endpoint.LB.Addr, err))
		return
	}
	c.close(fault.Reset)
}

// send queues a's call, or fails a when too many are in flight.
func (c *client) send(a *race.Attempt) {
	if c.calls.n == mux.MaxStreams {
		a.Fail(fault.StreamLimit)
		return
	}
	id := c.calls.add(a)
	a.Carry(c, uint64(id))
	c.enqueue(id)
	if c.calls.n == 1 && !c.flushing {
		c.flush() // no other call of this turn can share the write
		return
	}
	c.shard.Loop.Defer(&c.out)
}

// enqueue queues a call for the next flush. A provider that does not read delays it, so cancelled
// calls are removed from the queue when it is twice as long as there can be calls.
func (c *client) enqueue(id int64) {
	if len(c.queue) == 2*mux.MaxStreams {
		c.queue = slices.DeleteFunc(c.queue, func(id int64) bool { return c.calls.find(id) == nil })
	}
	c.queue = append(c.queue, id)
}

// forget removes a from the table. A response that still arrives for it is skipped.
func (c *client) forget(a *race.Attempt) {
	c.calls.remove(int64(a.ID()))
	a.Detach()
}

// Cancel implements race.Carrier. A call that was sent lingers: Dubbo can't take it back, so
// its response is awaited and dropped.
func (c *client) Cancel(a *race.Attempt) (lingers bool) {
	if c.calls.find(int64(a.ID())).sent {
		return true
	}
	c.Abort(a)
	return false
}

// Abort implements race.Carrier. The connection stays open; a late response is dropped.
func (c *client) Abort(a *race.Attempt) {
	c.forget(a)
	c.closeIfDone()
}

// Renew implements race.Renewer.
func (c *client) Renew() {
	if c.state == open {
		c.state.become(leaving)
		c.detach()
	}
}

// Buffered implements race.Carrier. The reader counts the bytes of incomplete responses.
func (c *client) Buffered(*race.Attempt) int { return 0 }

// onKeepalive runs every keepaliveInterval until the connection closes.
func (c *client) onKeepalive() {
	switch {
	case c.heard:
		c.pinged = false
	case c.pinged:
		c.shard.Log.Warn("connection closed: the provider did not respond to a heartbeat", "peer", c.conn.RemoteAddr())
		c.close(fault.Reset)
		return
	default:
		c.sendHeartbeat()
	}
	c.heard = false
	c.shard.Loop.After(keepaliveInterval, &c.keepalive)
}

func (c *client) sendHeartbeat() {
	c.pinged = true
	c.outbound.Write(dubbo.AppendHeartbeat(c.shard.Scratch[:0], c.up.serialization, 0))
	c.outbound.Watch()
}

// detach makes the next attempt dial a new connection.
func (c *client) detach() {
	if c.up.cur == c {
		c.up.cur = nil
	}
}

// closeIfDone closes the connection if it has no call, and takes no new ones.
func (c *client) closeIfDone() {
	if (c.state.ends() || c.up.gone) && c.state != dialing && c.calls.n == 0 {
		c.close(nil)
	}
}

// recount charges the memory of an incomplete frame to limits.buffered.
func (c *client) recount() { c.account.Count(c.shard, c.reader.Held()) }

// close closes the connection, and fails with f the calls in flight on it. A call that was not
// sent counts as unsent, whatever f says.
func (c *client) close(f *fault.Failure) {
	if c.state == closed {
		return
	}
	c.state.become(closed)
	c.up.open--
	c.detach()
	c.reader.Close()
	c.recount()
	c.outbound.Stop()
	c.shard.Loop.Stop(&c.keepalive)
	if c.conn != nil {
		c.conn.Close()
	}
	for i := range c.calls.calls {
		call := &c.calls.calls[i]
		a := call.a
		if a == nil {
			continue
		}
		c.forget(a)
		if call.sent {
			a.Fail(f)
		} else {
			a.Fail(f.AsUnsent())
		}
	}
}

var _ dubbo.FrameHandler = (*client)(nil)

// OnHeader implements dubbo.FrameHandler. It skips responses for which no attempt waits.
func (c *client) OnHeader(f *dubbo.Frame, length int) (keep bool) {
	if f.Event || f.Request {
		return f.Event && length <= dubbo.MaxEvent
	}
	call := c.calls.find(f.ID)
	if call == nil || !call.sent || call.a.Lingering() {
		return false
	}
	if int64(length) > c.shard.MessageLimits.Message {
		a := call.a
		c.forget(a)
		a.Fail(fault.ResponseTooLarge)
		return false
	}
	return true
}

func (c *client) OnFrame(f *dubbo.Frame, body *bytebufferpool.ByteBuffer) {
	switch call := c.calls.find(f.ID); {
	case f.Event:
		if body != nil {
			f.Body = body.B
			c.onEvent(f)
		}
	case f.Request || call == nil:
	case call.a.Lingering():
		a := call.a
		c.forget(a)
		a.Finish(f.Status != dubbo.StatusPoolExhausted)
	case body != nil:
		c.onResponse(f, call, body)
		return
	}
	c.shard.Buffers.Release(&body)
}

// onEvent responds to heartbeats, and reads those events that change the state.
func (c *client) onEvent(f *dubbo.Frame) {
	switch {
	case !f.Request:
		c.onProbeAnswered()
	case dubbo.ReadOnly(f):
		c.onReadOnly()
	case f.TwoWay && c.conn.Buffered() <= mux.MaxOutbound:
		c.outbound.Write(dubbo.AppendHeartbeatAnswer(c.shard.Scratch[:0], f))
		c.outbound.Watch()
	}
}

// onReadOnly stops calling a provider that is leaving.
func (c *client) onReadOnly() {
	c.up.leaving = true
	c.detach()
	switch c.state {
	case probing:
		c.state.become(probingLeaving)
	case open:
		c.state.become(leaving)
	}
}
