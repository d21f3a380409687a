package proxy

import (
	"time"

	"github.com/remora-proxy/remora/protocol/link"
)

// The time constants of a link.
const (
	// linkBeat is how often a link looks whether its peer is alive: after one
	// beat of silence it asks, after two it gives the link up.
	linkBeat = 10 * time.Second

	// linkIdle closes a link that has carried nothing for so long.
	linkIdle = 60 * time.Second
)

const (
	// linkControl is how many bytes of control frames may wait besides. Those
	// that end 4096 streams take 30 KiB.
	linkControl = 1 << 20
)

// linkState is where either end of a link stands.
//
//	opening ──preface──▶ open ──GOAWAY said or heard──▶ draining ──last request over──▶ closed
//	   └───────────────────┴──── peer lost, silent or malformed ────┴─────────────────────▲
//
// On the way to closed, drain and idled take the long way round by GOAWAY, lost
// and close the short one; shut releases what the codec holds.
type linkState uint8

const (
	linkOpening  linkState = iota // the peer's preface is not here yet
	linkOpen                      // takes new requests
	linkDraining                  // GOAWAY was said or heard: serves what it carries
	linkClosed
)

// linkConn is what both ends of a link have in common: the codec on a
// connection, the flush at the end of the turn, the grant of credit, and the
// watch over a peer that went silent.
type linkConn struct {
	shard    *shard
	conn     Conn
	state    linkState
	r        *link.Reader
	w        *link.Writer
	out      Flush
	stuffed  Timer // the peer takes less than it is sent
	outbound outbound
	starving Timer // armed while DATA waits for the peer's credit
	expiry   Timer // armed while a message or frame is here in part
	beat     Timer
	heard    bool // something arrived since the last beat
	asked    bool // a PING is out
	idle     time.Duration
	held     int   // bytes in the codec, counted against limits.buffered
	batch    int   // messages since the last write
	broken   error // what Feed returned
	end      linkEnd
}

// linkEnd is what differs between the two ends.
type linkEnd interface {
	link.Handler
	// carried is the number of requests on the link.
	carried() int
	// prepare is called before each flush.
	prepare()
	// lost is called when the peer is silent or slow for too long.
	lost()
	// idled is called when the link has carried nothing for linkIdle, every
	// linkBeat until it is closed.
	idled()
}

// init prepares either end. full tells when no reassembly is to begin; nil: never.
func (c *linkConn) init(w *shard, role link.Role, end linkEnd, full func() bool) {
	c.shard, c.end = w, end
	limits := link.ReaderLimits{
		Message: w.httpLimits.Message,
		// What the other sidecar took in within these limits has grown.
		Header: w.httpLimits.Header + addedBytes, Headers: w.httpLimits.Headers + addedHeaders,
		Buffers: &w.buffers, Full: full,
	}
	c.r = link.NewReader(role, linkSettings(w.shared), limits)
	c.w = link.NewWriter()
	c.out.Do = c.flush
	c.stuffed.Fire = c.flush
	c.beat.Fire = c.onBeat
	c.expiry.Fire = c.expire
	c.starving.Fire = c.starved
	c.outbound.init(w)
}

func (c *linkConn) opened(conn Conn) {
	c.conn, c.outbound.conn = conn, conn
	c.shard.loop.After(linkBeat, &c.beat)
}

// feed hands input to the codec, grants credit for what it took, and tells
// whether the link is still good.
func (c *linkConn) feed(b []byte) bool {
	c.heard = true
	c.shard.stats.LinkBytesIn += uint64(len(b))
	if err := c.r.Feed(b, c.end); err != nil {
		c.broken = err
		c.shard.log.Warn("link closed: malformed input", "peer", c.conn.RemoteAddr(), "error", err)
		return false
	}
	if c.state == linkClosed {
		return true
	}
	if n := c.r.Consumed(); n > 0 {
		c.w.Credit(n)
	}
	c.account()
	if c.w.Control() > linkControl {
		c.shard.log.Warn("link closed: the peer asks for more than it reads", "peer", c.conn.RemoteAddr())
		return false
	}
	if c.w.Ready() {
		c.shard.loop.Defer(&c.out)
	}
	if !c.expiry.Armed() && c.r.Midway() {
		c.expire()
	}
	return true
}

// expire gives up what takes its peer longer than timeouts.body to send, to
// within half of that: it looks four times in that time.
func (c *linkConn) expire() {
	patience := c.shard.cfg.Timeouts.Body
	if err := c.r.Expire(c.shard.loop.Now()+1, patience, c.end); err != nil {
		c.shard.log.Warn("link closed: slow peer", "peer", c.conn.RemoteAddr(), "error", err)
		c.end.lost()
		return
	}
	if c.state == linkClosed {
		return
	}
	if c.r.Midway() {
		c.shard.loop.After(patience/4, &c.expiry)
	}
	if c.w.Ready() {
		c.shard.loop.Defer(&c.out)
	}
	c.account()
}

// account keeps limits.buffered up to date with what the codec holds. Bodies that
// are being sent are not the codec's: the exchange or the answer counts them.
func (c *linkConn) account() {
	if held := c.r.Buffered() + c.w.Encoded(); held != c.held {
		c.shard.charge(held - c.held)
		c.held = held
	}
}

// schedule sees to it that a message given to the Writer leaves: at once when nothing
// else is in flight on the link, so that a lone request waits for nothing; else
// at the end of the turn, together with what else the turn brings.
func (c *linkConn) schedule(alone bool) {
	c.batch++
	if alone {
		c.flush()
		return
	}
	c.shard.loop.Defer(&c.out)
}

func (c *linkConn) flush() {
	if c.state == linkClosed {
		return
	}
	if c.conn == nil {
		c.account()
		return
	}
	c.end.prepare()
	for c.w.Ready() {
		if c.conn.Buffered() > maxOutbound {
			c.shard.loop.After(retryWrite, &c.stuffed)
			break
		}
		b := c.w.Append(c.shard.scratch[:0], batchSize)
		if len(b) == 0 {
			break
		}
		c.outbound.write(b)
		c.shard.keepScratch(b)
		c.count(len(b))
	}
	c.account()
	c.outbound.watch()
	c.watchCredit()
}

// count counts a write of n bytes, the first after a few messages with these.
func (c *linkConn) count(n int) {
	s := &c.shard.stats
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
func (c *linkConn) watchCredit() {
	starved, armed := c.w.Starved(), c.starving.Armed()
	switch {
	case starved && !armed:
		c.shard.loop.After(c.shard.cfg.Timeouts.Write, &c.starving)
	case !starved && armed:
		c.shard.loop.Stop(&c.starving)
	}
}

func (c *linkConn) starved() {
	if !c.w.Starved() {
		return // what waited was withdrawn
	}
	c.shard.log.Warn("link closed: the peer gives no credit", "peer", c.conn.RemoteAddr())
	c.shard.stats.WriteTimeouts++
	c.end.lost()
}

// onBeat runs every linkBeat while the link is open.
func (c *linkConn) onBeat() {
	// What is in reassembly or has not left is no request of either end's table.
	busy := c.end.carried() > 0 || c.r.Buffered() > 0 || c.w.Queued() > 0
	switch {
	case c.heard:
		c.asked = false
	case c.state == linkOpening, c.asked && busy:
		c.end.lost()
		return
	case busy:
		c.asked = true
		c.w.Ping(1)
		c.flush()
	}
	if busy {
		c.idle = 0
	} else if c.idle += linkBeat; c.idle > linkIdle {
		if c.end.idled(); c.state == linkClosed {
			return
		}
	}
	c.heard = false
	c.w.Trim()
	c.shard.loop.After(linkBeat, &c.beat)
}

// OnPing, OnPong and OnCredit are the same for both ends.
func (c *linkConn) OnPing(n uint64) {
	c.w.Pong(n)
}

func (c *linkConn) OnPong(uint64) {}

func (c *linkConn) OnCredit(n uint32) {
	c.shard.loop.Stop(&c.starving)
	c.w.Granted(n)
}

// shut releases everything; the connection is the caller's to close.
func (c *linkConn) shut() {
	c.state = linkClosed
	c.r.Close()
	c.w.Close()
	c.outbound.stop()
	c.shard.loop.Stop(&c.beat)
	c.shard.loop.Stop(&c.expiry)
	c.shard.loop.Stop(&c.stuffed)
	c.shard.loop.Stop(&c.starving)
	c.shard.charge(-c.held)
	c.held = 0
}
