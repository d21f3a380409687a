package linkconn

import (
	"time"

	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/shard"
)

const (
	// keepaliveInterval is the time between two checks of the peer. After one interval
	// of silence the link sends a PING, after two it closes.
	keepaliveInterval = 10 * time.Second

	idleTimeout = 60 * time.Second // a link that carries nothing for so long closes
)

// maxControl is the highest number of bytes of control frames that may wait to be sent. The frames that end
// all streams of a link, 4096, take 30 KiB: a peer that lets 30 times as many wait reads nothing.
const maxControl = 1 << 20

// writeSize is the number of bytes from which on a write takes no further frame: two frames of link.MaxFrame fill it, half
// of link.MaxWindow. To a peer that takes frames of 16 KiB a write has at most eight. The peer gives back credit for a write
// while the next one is under way.
const writeSize = 112 << 10

// Conn is the part of a link that both ends share: the codec on a connection, the flush at
// the end of the turn, the grant of credit, and the keepalive.
type Conn struct {
	Shard          *shard.Shard
	Transport      loop.Conn
	state          State
	Reader         *link.Reader
	Writer         *link.Writer
	flush          loop.Flush
	Outbound       shard.Outbound
	creditTimer    loop.Timer // armed while DATA waits for the peer's credit
	expiryTimer    loop.Timer // armed while a message or frame is incomplete
	drainTimer     loop.Timer // armed by LimitDrain
	keepaliveTimer loop.Timer
	heard          bool          // bytes arrived since the last keepalive
	pinged         bool          // a PING has no response yet
	idle           time.Duration // how long the link has carried nothing
	Account        shard.TableAccount
	batch          int   // messages since the last write
	InputError     error // why the input is malformed
	handler        Handler
}

// Handler is what differs between the two ends.
type Handler interface {
	// InFlight returns the number of requests on the link.
	InFlight() int
	// BeforeFlush is called before each flush, and may add frames to it.
	BeforeFlush()
	// OnFlushed is called after each flush at the end of a turn, and after each flush that the peer has made room for.
	OnFlushed()
	// OnLost is called when the peer was silent or slow for too long.
	OnLost()
	// OnIdle is called when the link has carried nothing for idleTimeout, and then after
	// each keepaliveInterval until the link closes.
	OnIdle()
}

// Limits returns what either end allows the peer. full reports whether the reassembly of a message may not begin.
func Limits(w *shard.Shard, full func(id uint64) bool) link.ReaderLimits {
	return link.ReaderLimits{
		Message: w.MessageLimits.Message,
		// The other sidecar took the message within these limits, and added to it.
		Header: w.MessageLimits.Header + addedBytes, Headers: w.MessageLimits.Headers + addedHeaders,
		Buffers: &w.Buffers, Scratch: &w.Decoded, Full: full,
	}
}

// Init prepares the end that h is of. r calls h.
func (c *Conn) Init(w *shard.Shard, r *link.Reader, h Handler) {
	c.Shard, c.Reader, c.handler = w, r, h
	c.Writer = link.NewWriter()
	c.flush.Do = c.flushLate
	c.keepaliveTimer.Fire = c.onKeepalive
	c.expiryTimer.Fire = c.onExpiry
	c.creditTimer.Fire = c.onNoCredit
	c.drainTimer.Fire = c.onDrainLimit
	c.Outbound.Init(w)
}

// Attach gives the link its connection, which has opened.
func (c *Conn) Attach(conn loop.Conn) {
	c.Transport, c.Outbound.Conn = conn, conn
	c.Shard.Loop.After(keepaliveInterval, &c.keepaliveTimer)
}

// Establish opens the link for requests: the peer's preface has arrived.
func (c *Conn) Establish(version uint8, peer link.Settings) {
	c.state.become(Open)
	c.Writer.Open(version, peer)
}

// StartDraining ends the acceptance of new requests: a GOAWAY was sent or received, or the
// dialler needs the link no more.
func (c *Conn) StartDraining() { c.state.become(Draining) }

// LimitDrain closes the link after timeouts.drain, if it has not closed before.
func (c *Conn) LimitDrain() {
	if c.state != Closed && !c.drainTimer.Armed() {
		c.Shard.Loop.After(c.Shard.Config.Timeouts.Drain, &c.drainTimer)
	}
}

func (c *Conn) onDrainLimit() {
	c.Shard.Log.Warn("link closed: requests in flight with a peer that is no longer accepted, timeouts.drain passed",
		"peer", c.Transport.RemoteAddr())
	c.handler.OnLost()
}

// Room implements loop.Roomy.
func (c *Conn) Room() []byte { return c.Reader.Room() }

// Receive feeds the codec, and gives back the credit of all that it took. It reports whether the link may stay open.
func (c *Conn) Receive(b []byte) bool {
	c.heard = true
	c.Shard.Stats.LinkBytesIn += uint64(len(b))
	if err := c.Reader.Feed(b); err != nil {
		c.InputError = err
		c.Shard.Log.Warn("link closed: malformed input", "peer", c.Transport.RemoteAddr(), "error", err)
		return false
	}
	if c.state == Closed {
		return true
	}
	if n := c.Reader.TakeConsumed(); n > 0 {
		c.Writer.Credit(n)
	}
	c.Recount()
	if c.Writer.Control() > maxControl {
		c.Shard.Log.Warn("link closed: the peer reads too slowly, too many control frames wait", "peer", c.Transport.RemoteAddr())
		return false
	}
	if c.Writer.Ready() {
		c.Shard.Loop.Defer(&c.flush)
	}
	if !c.expiryTimer.Armed() && c.Reader.Midway() {
		c.onExpiry() // the first time for what has just begun to arrive
	}
	return true
}

// onExpiry runs four times in timeouts.body, and drops the messages that take the peer longer to send. The Reader takes the
// time 0 for no time, so a nanosecond is added.
func (c *Conn) onExpiry() {
	timeout := c.Shard.Config.Timeouts.Body
	if err := c.Reader.Expire(c.Shard.Loop.Now()+1, timeout); err != nil {
		c.Shard.Log.Warn("link closed: slow peer, timeouts.body passed", "peer", c.Transport.RemoteAddr(), "error", err)
		c.handler.OnLost()
		return
	}
	if c.state == Closed {
		return
	}
	if c.Reader.Midway() {
		c.Shard.Loop.After(timeout/4, &c.expiryTimer)
	}
	if c.Writer.Ready() {
		c.Shard.Loop.Defer(&c.flush)
	}
	c.Recount()
}

// Recount charges the memory that the codec holds to limits.buffered, tables included. Bodies that are being
// sent are charged by their exchange or response.
func (c *Conn) Recount() {
	c.Account.Count(c.Shard, c.Reader.Buffered()+c.Writer.Encoded(), c.Reader.Interned()+c.Writer.Interned())
}

// Schedule sends a message that the Writer was given: at once if alone, with nothing else in
// flight on the link, or once much waits; else with the other messages of the turn, at
// its end.
func (c *Conn) Schedule(alone bool) {
	c.batch++
	if alone || c.Writer.Encoded() >= mux.BatchSize/2 {
		c.Flush()
		return
	}
	c.Shard.Loop.Defer(&c.flush)
}

// Waits reports whether earlier output has not left.
func (c *Conn) Waits() bool { return c.Transport.Buffered() > 0 }

// FlushLater writes the frames of the Writer at the end of the turn.
func (c *Conn) FlushLater() { c.Shard.Loop.Defer(&c.flush) }

// Flush writes the frames of the Writer, as far as the peer reads them.
func (c *Conn) Flush() {
	if c.state == Closed {
		return
	}
	if c.Transport == nil {
		c.Recount()
		return
	}
	c.handler.BeforeFlush()
	for c.Writer.Ready() {
		if c.Transport.Buffered() > mux.MaxOutbound {
			c.Transport.AwaitRoom(mux.MaxOutbound, &c.flush)
			break
		}
		b, parts := c.Writer.Gather(c.Shard.Scratch[:0], c.Shard.Parts[:0], writeSize)
		if len(parts) == 0 {
			break
		}
		c.count(parts)
		c.Outbound.WriteParts(parts)
		c.Writer.Sent()
		c.Shard.KeepScratch(b)
		c.Shard.KeepParts(parts)
	}
	c.Recount()
	c.Outbound.Watch()
	c.watchCredit()
}

// flushLate is Flush for output that has waited.
func (c *Conn) flushLate() {
	c.Flush()
	c.handler.OnFlushed()
}

// count counts a write of parts, and the messages since the write before.
func (c *Conn) count(parts [][]byte) {
	s := &c.Shard.Stats
	s.LinkFlushes++
	for _, b := range parts {
		s.LinkBytesOut += uint64(len(b))
	}
	if c.batch > 0 {
		s.LinkBatches.Observe(c.batch)
		c.batch = 0
	}
}

// watchCredit gives a peer timeouts.write to grant credit for DATA that waits, as Outbound
// does to read what was written. The DATA stays in memory meanwhile.
func (c *Conn) watchCredit() {
	starved, armed := c.Writer.Starved(), c.creditTimer.Armed()
	switch {
	case starved && !armed:
		c.Shard.Loop.After(c.Shard.Config.Timeouts.Write, &c.creditTimer)
	case !starved && armed:
		c.Shard.Loop.Stop(&c.creditTimer)
	}
}

// onNoCredit closes the link of a peer that has granted no credit in time.
func (c *Conn) onNoCredit() {
	if !c.Writer.Starved() {
		return // the requests or responses that waited were cancelled
	}
	c.Shard.Log.Warn("link closed: the peer grants no credit, timeouts.write passed", "peer", c.Transport.RemoteAddr())
	c.Shard.Stats.WriteTimeouts++
	c.handler.OnLost()
}

// onKeepalive runs every keepaliveInterval until the link closes.
func (c *Conn) onKeepalive() {
	// Messages in reassembly and those that are not sent may be in neither end's table.
	busy := c.handler.InFlight() > 0 || c.Reader.Buffered() > 0 || c.Writer.Queued() > 0
	switch {
	case c.heard:
		c.pinged = false
	case c.state == Opening, c.pinged && busy:
		c.handler.OnLost()
		return
	case busy:
		c.pinged = true
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
	c.Shard.Loop.After(keepaliveInterval, &c.keepaliveTimer)
}

// OnPing implements link.Handler.
func (c *Conn) OnPing(n uint64) {
	c.Writer.Pong(n)
}

// OnPong implements link.Handler. Receive has noted that the peer is alive.
func (c *Conn) OnPong(uint64) {}

// OnCredit implements link.Handler.
func (c *Conn) OnCredit(n uint32) {
	c.Shard.Loop.Stop(&c.creditTimer)
	c.Writer.Granted(n)
	c.watchCredit() // so little may not end the wait
}

// Stop closes the codec and stops all timers. The caller closes the connection.
func (c *Conn) Stop() {
	c.state.become(Closed)
	c.Reader.Close()
	c.Writer.Close()
	c.Outbound.Stop()
	c.Shard.Loop.Stop(&c.keepaliveTimer)
	c.Shard.Loop.Stop(&c.expiryTimer)
	c.Shard.Loop.Stop(&c.creditTimer)
	c.Shard.Loop.Stop(&c.drainTimer)
	c.Account.Count(c.Shard, 0, 0)
}
