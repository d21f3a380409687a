package proxy

import (
	"slices"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/config"
)

// dubboUpstream is the Dubbo upstream of one endpoint on one loop: one
// multiplexed connection, dialled on first use and again when it is lost.
type dubboUpstream struct {
	*dubboConnector
	svc           *service
	target        *endpoint
	serialization byte         // of calls that came as HTTP, and of heartbeats
	cur           *dubboClient // takes new attempts; nil before the first, and after a loss
	leaving       bool         // the provider said that it goes down, and not yet that it is back
	gone          bool         // the endpoint left the service
}

// dubboConnector makes the Dubbo connections of one loop.
type dubboConnector struct {
	w    *shard
	pool *pool
	call dubbo.Call // scratch memory: the call that is being converted
}

func newDubboConnector(w *shard, p *pool) connector { return &dubboConnector{w: w, pool: p} }

func (d *dubboConnector) upstream(s *service, target *endpoint) upstream {
	u := &dubboUpstream{dubboConnector: d, svc: s, target: target, serialization: dubbo.Hessian2}
	if s.cfg.Serialization == config.SerializationFastjson {
		u.serialization = dubbo.Fastjson
	}
	return u
}

func (u *dubboUpstream) send(a *attempt) {
	if u.cur == nil {
		u.cur = dialDubbo(u)
	}
	u.cur.send(a)
}

func (u *dubboUpstream) retire() {
	u.gone = true
	if u.cur != nil {
		u.cur.finish()
	}
}

func (u *dubboUpstream) connections() int {
	if u.cur == nil {
		return 0
	}
	return 1
}

func (u *dubboUpstream) largest() (held, each int, h holder) { return 0, 0, nil }

// dubboState is where a connection to a provider stands.
//
//	dialing ─▶ open ─▶ closed
//	dialing ─▶ proving ─▶ open
//	dialing, proving ─▶ closed
type dubboState uint8

const (
	dubboDialing dubboState = iota
	dubboProving            // it leads to a provider that was leaving: calls wait until that has answered a heartbeat
	dubboOpen
	dubboClosed
)

// dubboClient is one connection to a Dubbo provider. It carries up to maxStreams
// calls at a time, which are answered in any order. What one turn brings leaves in
// one write.
type dubboClient struct {
	up       *dubboUpstream
	w        *shard
	conn     Conn
	state    dubboState
	draining bool // the provider goes down: takes no more calls, and closes with the last one

	calls    dubboTable
	queue    []int64 // ids of calls that have not left, and of withdrawn ones among them
	settled  []stood // during a flush: calls to be answered here, which nothing else ends
	flushing bool

	out      Flush
	stuffed  Timer // the peer takes less than it is sent
	outbound outbound

	reader dubboReader
	held   int // bytes in reader counted against limits.buffered

	beat  Timer
	heard bool // something arrived since the last beat
	asked bool // a heartbeat of ours is out
}

// stood is a call that the connection answers in the provider's place: one that
// wants no answer, or one that could not be made, and why.
type stood struct {
	a   *attempt
	why *Failure
}

// Service implements Destined.
func (c *dubboClient) Service() string { return c.up.svc.cfg.Name }

func dialDubbo(u *dubboUpstream) *dubboClient {
	c := &dubboClient{up: u, w: u.w, calls: newDubboTable()}
	c.reader.buffers = &c.w.buffers
	c.out.Do = c.flush
	c.stuffed.Fire = c.flush
	c.beat.Fire = c.onBeat
	c.outbound.init(c.w)
	c.w.loop.Dial(u.target.lb.Addr, u.svc.cfg.ConnectTimeout, c)
	return c
}

func (c *dubboClient) OnOpen(conn Conn) {
	c.conn, c.outbound.conn = conn, conn
	c.w.loop.After(dubboBeat, &c.beat)
	if c.up.leaving {
		c.state = dubboProving
		c.ask()
		return
	}
	c.state = dubboOpen
	c.flush()
}

// proven: the provider that was leaving is back. One that is going down still
// accepts connections, and closes them without a word.
func (c *dubboClient) proven() {
	if c.state == dubboProving {
		c.state = dubboOpen
		c.up.leaving = c.draining // it may have said so again meanwhile
		c.w.loop.Defer(&c.out)
	}
}

func (c *dubboClient) OnData(b []byte) {
	if c.state == dubboClosed {
		return
	}
	c.heard = true
	if err := c.reader.feed(b, c); err != nil {
		c.w.log.Warn("connection closed: malformed input", "peer", c.conn.RemoteAddr(), "error", err)
		c.close(FailMalformed)
		return
	}
	c.account()
	c.finish()
}

func (c *dubboClient) OnClose(err error) {
	if c.conn == nil {
		c.close(c.up.svc.dialFailed(c.up.target.lb.Addr, err))
		return
	}
	c.close(FailReset)
}

func (c *dubboClient) send(a *attempt) {
	if c.calls.n == maxStreams {
		a.failed(FailFull)
		return
	}
	id := c.calls.add(a)
	a.carry(c, uint64(id))
	c.enqueue(id)
	if c.calls.n == 1 && !c.flushing {
		c.flush() // a lone call waits for nothing
		return
	}
	c.w.loop.Defer(&c.out)
}

// enqueue has a call leave with the next flush. To a provider that does not read
// there is none for long, so those that were withdrawn meanwhile are taken out
// when they are half of all that can be.
func (c *dubboClient) enqueue(id int64) {
	if len(c.queue) == 2*maxStreams {
		c.queue = slices.DeleteFunc(c.queue, func(id int64) bool { return c.calls.find(id) == nil })
	}
	c.queue = append(c.queue, id)
}

// forget takes a out of the table; what still comes for it is skipped.
func (c *dubboClient) forget(a *attempt) {
	c.calls.remove(int64(a.id()))
	a.drop()
}

// cancel implements carrier. It leaves a call with the application if that may have
// it: Dubbo can't take one back, so its answer is awaited and dropped.
func (c *dubboClient) cancel(a *attempt) (lingers bool) {
	if c.calls.find(int64(a.id())).sent {
		return true
	}
	c.abort(a)
	return false
}

// abort implements carrier. The connection carries other calls; an answer that still
// comes is for nobody.
func (c *dubboClient) abort(a *attempt) {
	c.forget(a)
	c.finish()
}

// buffered implements carrier: what is here of a response is the reader's.
func (c *dubboClient) buffered(*attempt) int { return 0 }

// onBeat runs every dubboBeat while the connection is open.
func (c *dubboClient) onBeat() {
	switch {
	case c.heard:
		c.asked = false
	case c.asked:
		c.w.log.Warn("connection closed: the provider is silent", "peer", c.conn.RemoteAddr())
		c.close(FailReset)
		return
	default:
		c.ask()
	}
	c.heard = false
	c.w.loop.After(dubboBeat, &c.beat)
}

// ask sends a heartbeat.
func (c *dubboClient) ask() {
	c.asked = true
	c.outbound.write(dubbo.AppendHeartbeat(c.w.scratch[:0], c.up.serialization, 0))
	c.outbound.watch()
}

// detach makes the next attempt dial anew.
func (c *dubboClient) detach() {
	if c.up.cur == c {
		c.up.cur = nil
	}
}

// finish closes a connection that is not to stay once nothing is out on it.
func (c *dubboClient) finish() {
	if (c.draining || c.up.gone) && c.conn != nil && c.calls.n == 0 {
		c.close(nil)
	}
}

// account keeps limits.buffered up to date with what is being received.
func (c *dubboClient) account() {
	if held := c.reader.held(); held != c.held {
		c.w.charge(held - c.held)
		c.held = held
	}
}

// close ends the connection and with f all that is out on it. A call that has not
// left counts as not sent, whatever f.
func (c *dubboClient) close(f *Failure) {
	if c.state == dubboClosed {
		return
	}
	c.state = dubboClosed
	c.detach()
	c.reader.close()
	c.account()
	c.outbound.stop()
	c.w.loop.Stop(&c.beat)
	c.w.loop.Stop(&c.stuffed)
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
			a.failed(f)
		} else {
			a.failed(f.unsent())
		}
	}
}

var _ dubboEnd = (*dubboClient)(nil)

// onHeader implements dubboEnd. Answers that nobody waits for any more are
// skipped.
func (c *dubboClient) onHeader(f *dubbo.Frame, length int) (keep bool) {
	if f.Event || f.Request {
		return f.Event && length <= dubboEvent
	}
	call := c.calls.find(f.ID)
	if call == nil || !call.sent || call.a.lingering() {
		return false
	}
	if int64(length) > c.w.httpLimits.Message {
		a := call.a
		c.forget(a)
		a.failed(FailTooLarge)
		return false
	}
	return true
}

// onFrame implements dubboEnd.
func (c *dubboClient) onFrame(f *dubbo.Frame, body *bytebufferpool.ByteBuffer) {
	switch call := c.calls.find(f.ID); {
	case f.Event:
		if body != nil {
			f.Body = body.B
			c.onEvent(f)
		}
	case f.Request || call == nil:
	case call.a.lingering():
		a := call.a
		c.forget(a)
		a.dropped(f.Status != dubbo.StatusPoolExhausted)
	case body != nil:
		c.onAnswer(f, call, body)
		return
	}
	if body != nil {
		c.w.buffers.Put(body)
	}
}

// onEvent answers heartbeats, and stops calling a provider that goes down.
func (c *dubboClient) onEvent(f *dubbo.Frame) {
	switch {
	case !f.Request:
		c.proven()
	case dubbo.ReadOnly(f):
		c.up.leaving = true
		c.draining = true
		c.detach()
	case f.TwoWay && c.conn.Buffered() <= maxOutbound:
		c.outbound.write(dubbo.AppendHeartbeatAnswer(c.w.scratch[:0], f))
		c.outbound.watch()
	}
}
