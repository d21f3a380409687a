package dubbo

import (
	"slices"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/shard"
)

// keepaliveInterval is how often a connection to a provider looks whether its peer is
// alive: after one beat of silence it asks, after two it gives up.
const keepaliveInterval = 15 * time.Second

// client is one connection to a Dubbo provider. It carries up to MaxStreams
// calls at a time, which are answered in any order. What one turn brings leaves in
// one write.
type client struct {
	up    *upstream
	shard *shard.Shard
	conn  loop.Conn
	state clientState

	calls    table
	queue    []int64      // ids of calls that have not left, and of withdrawn ones among them
	settled  []localReply // during a flush: calls to be answered here, which nothing else ends
	flushing bool

	out        loop.Flush
	retryWrite loop.Timer // the peer takes less than it is sent
	outbound   shard.Outbound

	reader dubbo.FrameReader
	held   int // bytes in reader counted against limits.buffered

	beat  loop.Timer
	heard bool // something arrived since the last beat
	asked bool // a heartbeat of ours is out
}

// localReply is a call that the connection answers in the provider's place: one that
// wants no answer, or one that could not be made, and why.
type localReply struct {
	a   *exchange.Attempt
	why *fault.Failure
}

// Service implements Destined.
func (c *client) Service() string { return c.up.service.Config.Name }

func dialDubbo(u *upstream) *client {
	c := &client{up: u, shard: u.shard, calls: newTable()}
	c.reader.Buffers = &c.shard.Buffers
	c.out.Do = c.flush
	c.retryWrite.Fire = c.flush
	c.beat.Fire = c.onBeat
	c.outbound.Init(c.shard)
	c.shard.Loop.Dial(u.endpoint.LB.Addr, u.service.Config.ConnectTimeout, c)
	return c
}

func (c *client) OnOpen(conn loop.Conn) {
	c.conn, c.outbound.Conn = conn, conn
	c.shard.Loop.After(keepaliveInterval, &c.beat)
	if c.up.leaving {
		c.state.become(probing)
		c.ask()
		return
	}
	c.state.become(open)
	c.flush()
}

// onProbeAnswered: the provider that was leaving is back. One that is going down still
// accepts connections, and closes them without a word.
func (c *client) onProbeAnswered() {
	switch c.state {
	case probing:
		c.state.become(open)
		c.up.leaving = false
	case probingLeaving:
		c.state.become(leaving)
		c.up.leaving = true // a newer connection may have found it back meanwhile
	default:
		return
	}
	c.shard.Loop.Defer(&c.out)
}

func (c *client) OnData(b []byte) {
	if c.state == closed {
		return
	}
	c.heard = true
	if err := c.reader.Feed(b, c); err != nil {
		c.shard.Log.Warn("connection closed: malformed input", "peer", c.conn.RemoteAddr(), "error", err)
		c.close(fault.Malformed)
		return
	}
	c.account()
	c.finish()
}

func (c *client) OnClose(err error) {
	if c.conn == nil {
		c.close(c.up.service.DialFailed(c.up.endpoint.LB.Addr, err))
		return
	}
	c.close(fault.Reset)
}

func (c *client) send(a *exchange.Attempt) {
	if c.calls.n == mux.MaxStreams {
		a.Failed(fault.StreamLimit)
		return
	}
	id := c.calls.add(a)
	a.Carry(c, uint64(id))
	c.enqueue(id)
	if c.calls.n == 1 && !c.flushing {
		c.flush() // a lone call waits for nothing
		return
	}
	c.shard.Loop.Defer(&c.out)
}

// enqueue has a call leave with the next flush. To a provider that does not read
// there is none for long, so those that were withdrawn meanwhile are taken out
// when they are half of all that can be.
func (c *client) enqueue(id int64) {
	if len(c.queue) == 2*mux.MaxStreams {
		c.queue = slices.DeleteFunc(c.queue, func(id int64) bool { return c.calls.find(id) == nil })
	}
	c.queue = append(c.queue, id)
}

// forget takes a out of the table; what still comes for it is skipped.
func (c *client) forget(a *exchange.Attempt) {
	c.calls.remove(int64(a.ID()))
	a.Release()
}

// Cancel implements carrier. It leaves a call with the application if that may have
// it: Dubbo can't take one back, so its answer is awaited and dropped.
func (c *client) Cancel(a *exchange.Attempt) (lingers bool) {
	if c.calls.find(int64(a.ID())).sent {
		return true
	}
	c.Abort(a)
	return false
}

// Abort implements carrier. The connection carries other calls; an answer that still
// comes is for nobody.
func (c *client) Abort(a *exchange.Attempt) {
	c.forget(a)
	c.finish()
}

// Buffered implements carrier: what is here of a response is the reader's.
func (c *client) Buffered(*exchange.Attempt) int { return 0 }

// onBeat runs every keepaliveInterval while the connection is open.
func (c *client) onBeat() {
	switch {
	case c.heard:
		c.asked = false
	case c.asked:
		c.shard.Log.Warn("connection closed: the provider is silent", "peer", c.conn.RemoteAddr())
		c.close(fault.Reset)
		return
	default:
		c.ask()
	}
	c.heard = false
	c.shard.Loop.After(keepaliveInterval, &c.beat)
}

// ask sends a heartbeat.
func (c *client) ask() {
	c.asked = true
	c.outbound.Write(dubbo.AppendHeartbeat(c.shard.Scratch[:0], c.up.serialization, 0))
	c.outbound.Watch()
}

// detach makes the next attempt dial anew.
func (c *client) detach() {
	if c.up.cur == c {
		c.up.cur = nil
	}
}

// finish closes a connection that is not to stay once nothing is out on it.
func (c *client) finish() {
	if (c.state.ends() || c.up.gone) && c.state != dialing && c.calls.n == 0 {
		c.close(nil)
	}
}

// account keeps limits.buffered up to date with what is being received.
func (c *client) account() {
	if held := c.reader.Held(); held != c.held {
		c.shard.Charge(held - c.held)
		c.held = held
	}
}

// close ends the connection and with f all that is out on it. A call that has not
// left counts as not sent, whatever f.
func (c *client) close(f *fault.Failure) {
	if c.state == closed {
		return
	}
	c.state.become(closed)
	c.detach()
	c.reader.Close()
	c.account()
	c.outbound.Stop()
	c.shard.Loop.Stop(&c.beat)
	c.shard.Loop.Stop(&c.retryWrite)
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
			a.Failed(f)
		} else {
			a.Failed(f.AsUnsent())
		}
	}
}

var _ dubbo.FrameHandler = (*client)(nil)

// OnHeader implements FrameHandler. Answers that nobody waits for any more are
// skipped.
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
		a.Failed(fault.ResponseTooLarge)
		return false
	}
	return true
}

// OnFrame implements FrameHandler.
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
		a.Ended(f.Status != dubbo.StatusPoolExhausted)
	case body != nil:
		c.onAnswer(f, call, body)
		return
	}
	if body != nil {
		c.shard.Buffers.Put(body)
	}
}

// onEvent answers heartbeats, and stops calling a provider that goes down.
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
