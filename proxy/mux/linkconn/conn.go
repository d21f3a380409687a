package linkconn

import (
	"time"

	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/shard"
)

// The time constants of a link.
const (
	// keepaliveInterval is how often a link looks whether its peer is alive: after one
	// beat of silence it asks, after two it gives the link up.
	keepaliveInterval = 10 * time.Second

	// idleTimeout closes a link that has carried nothing for so long.
	idleTimeout = 60 * time.Second
)

const (
	// maxControl is how many bytes of control frames may wait besides. Those
	// that end 4096 streams take 30 KiB.
	maxControl = 1 << 20
)

// Conn is what both ends of a link have in common: the codec on a
// connection, the flush at the end of the turn, the grant of credit, and the
// watch over a peer that went silent.
type Conn struct {
	Shard       *shard.Shard
	Transport   loop.Conn
	state       State
	Reader      *link.Reader
	Writer      *link.Writer
	out         loop.Flush
	retryWrite  loop.Timer // the peer takes less than it is sent
	Outbound    shard.Outbound
	creditTimer loop.Timer // armed while DATA waits for the peer's credit
	expiry      loop.Timer // armed while a message or frame is here in part
	beat        loop.Timer
	heard       bool // something arrived since the last beat
	asked       bool // a PING is out
	idle        time.Duration
	Held        int   // bytes in the codec, counted against limits.buffered
	batch       int   // messages since the last write
	Broken      error // what Feed returned
	handler     Handler
}

// Handler is what differs between the two ends.
type Handler interface {
	link.Handler
	// InFlight is the number of requests on the link.
	InFlight() int
	// BeforeFlush is called before each flush.
	BeforeFlush()
	// OnLost is called when the peer is silent or slow for too long.
	OnLost()
	// OnIdle is called when the link has carried nothing for idleTimeout, every
	// keepaliveInterval until it is closed.
	OnIdle()
}

// Init prepares either end. full tells when no reassembly is to begin; nil: never.
func (c *Conn) Init(w *shard.Shard, role link.Role, end Handler, full func() bool) {
	c.Shard, c.handler = w, end
	limits := link.ReaderLimits{
		Message: w.MessageLimits.Message,
		// What the other sidecar took in within these limits has grown.
		Header: w.MessageLimits.Header + addedBytes, Headers: w.MessageLimits.Headers + addedHeaders,
		Buffers: &w.Buffers, Full: full,
	}
	c.Reader = link.NewReader(role, Settings(w.Process), limits)
	c.Writer = link.NewWriter()
	c.out.Do = c.Flush
	c.retryWrite.Fire = c.Flush
	c.beat.Fire = c.onBeat
	c.expiry.Fire = c.expire
	c.creditTimer.Fire = c.starved
	c.Outbound.Init(w)
}

func (c *Conn) Opened(conn loop.Conn) {
	c.Transport, c.Outbound.Conn = conn, conn
	c.Shard.Loop.After(keepaliveInterval, &c.beat)
}

// Establish opens the link for requests: the peer's preface has arrived.
func (c *Conn) Establish(version uint8, peer link.Settings) {
	c.state.become(Open)
	c.Writer.Open(version, peer)
}

// StartDraining ends the acceptance of new requests: a GOAWAY was sent or received, or the
// dialler needs the link no more.
func (c *Conn) StartDraining() { c.state.become(Draining) }

// Receive hands input to the codec, grants credit for what it took, and tells
// whether the link is still good.
func (c *Conn) Receive(b []byte) bool {
	c.heard = true
	c.Shard.Stats.LinkBytesIn += uint64(len(b))
	if err := c.Reader.Feed(b, c.handler); err != nil {
		c.Broken = err
		c.Shard.Log.Warn("link closed: malformed input", "peer", c.Transport.RemoteAddr(), "error", err)
		return false
	}
	if c.state == Closed {
		return true
	}
	if n := c.Reader.Consumed(); n > 0 {
		c.Writer.Credit(n)
	}
	c.Account()
	if c.Writer.Control() > maxControl {
		c.Shard.Log.Warn("link closed: the peer asks for more than it reads", "peer", c.Transport.RemoteAddr())
		return false
	}
	if c.Writer.Ready() {
		c.Shard.Loop.Defer(&c.out)
	}
	if !c.expiry.Armed() && c.Reader.Midway() {
		c.expire()
	}
	return true
}

// expire gives up what takes its peer longer than timeouts.body to send, to
// within half of that: it looks four times in that time.
func (c *Conn) expire() {
	patience := c.Shard.Config.Timeouts.Body
	if err := c.Reader.Expire(c.Shard.Loop.Now()+1, patience, c.handler); err != nil {
		c.Shard.Log.Warn("link closed: slow peer", "peer", c.Transport.RemoteAddr(), "error", err)
		c.handler.OnLost()
		return
	}
	if c.state == Closed {
		return
	}
	if c.Reader.Midway() {
		c.Shard.Loop.After(patience/4, &c.expiry)
	}
	if c.Writer.Ready() {
		c.Shard.Loop.Defer(&c.out)
	}
	c.Account()
}

// Account keeps limits.buffered up to date with what the codec holds. Bodies that
// are being sent are not the codec's: the exchange or the answer counts them.
func (c *Conn) Account() {
	if held := c.Reader.Buffered() + c.Writer.Encoded(); held != c.Held {
		c.Shard.Charge(held - c.Held)
		c.Held = held
	}
}

// Schedule sees to it that a message given to the Writer leaves: at once when nothing
// else is in flight on the link, so that a lone request waits for nothing; else
// at the end of the turn, together with what else the turn brings.
func (c *Conn) Schedule(alone bool) {
	c.batch++
	if alone {
		c.Flush()
		return
	}
	c.Shard.Loop.Defer(&c.out)
}

func (c *Conn) Flush() {
	if c.state == Closed {
		return
	}
	if c.Transport == nil {
		c.Account()
		return
	}
	c.handler.BeforeFlush()
	for c.Writer.Ready() {
		if c.Transport.Buffered() > mux.MaxOutbound {
			c.Shard.Loop.After(mux.RetryWrite, &c.retryWrite)
			break
		}
		b := c.Writer.Append(c.Shard.Scratch[:0], mux.BatchSize)
		if len(b) == 0 {
			break
		}
		c.Outbound.Write(b)
		c.Shard.KeepScratch(b)
		c.count(len(b))
	}
	c.Account()
	c.Outbound.Watch()
	c.watchCredit()
}

// count counts a write of n bytes, the first after a few messages with these.
func (c *Conn) count(n int) {
	s := &c.Shard.Stats
	s.LinkFlushes++
	s.LinkBytesOut += uint64(n)
	if c.batch > 0 {
		s.LinkBatches.Observe(c.batch)
		c.batch = 0
	}
}

// watchCredit sees to it that a peer which takes frames and gives no credit for
// them has timeouts.write, as one that takes no frames: what waits for it stays
// in memory meanwhile.
func (c *Conn) watchCredit() {
	starved, armed := c.Writer.Starved(), c.creditTimer.Armed()
	switch {
	case starved && !armed:
		c.Shard.Loop.After(c.Shard.Config.Timeouts.Write, &c.creditTimer)
	case !starved && armed:
		c.Shard.Loop.Stop(&c.creditTimer)
	}
}

func (c *Conn) starved() {
	if !c.Writer.Starved() {
		return // what waited was withdrawn
	}
	c.Shard.Log.Warn("link closed: the peer gives no credit", "peer", c.Transport.RemoteAddr())
	c.Shard.Stats.WriteTimeouts++
	c.handler.OnLost()
}

// onBeat runs every keepaliveInterval while the link is open.
func (c *Conn) onBeat() {
	// What is in reassembly or has not left is no request of either end's table.
	busy := c.handler.InFlight() > 0 || c.Reader.Buffered() > 0 || c.Writer.Queued() > 0
	switch {
	case c.heard:
		c.asked = false
	case c.state == Opening, c.asked && busy:
		c.handler.OnLost()
		return
	case busy:
		c.asked = true
		c.Writer.Ping(1)
		c.Flush()
	}
	if busy {
		c.idle = 0
	} else if c.idle += keepaliveInterval; c.idle > idleTimeout {
		if c.handler.OnIdle(); c.state == Closed {
			return
		}
	}
	c.heard = false
	c.Writer.Trim()
	c.Shard.Loop.After(keepaliveInterval, &c.beat)
}

// OnPing, OnPong and OnCredit are the same for both ends.
func (c *Conn) OnPing(n uint64) {
	c.Writer.Pong(n)
}

func (c *Conn) OnPong(uint64) {}

func (c *Conn) OnCredit(n uint32) {
	c.Shard.Loop.Stop(&c.creditTimer)
	c.Writer.Granted(n)
}

// Release releases everything; the connection is the caller's to close.
func (c *Conn) Release() {
	c.state.become(Closed)
	c.Reader.Close()
	c.Writer.Close()
	c.Outbound.Stop()
	c.Shard.Loop.Stop(&c.beat)
	c.Shard.Loop.Stop(&c.expiry)
	c.Shard.Loop.Stop(&c.retryWrite)
	c.Shard.Loop.Stop(&c.creditTimer)
	c.Shard.Charge(-c.Held)
	c.Held = 0
}
