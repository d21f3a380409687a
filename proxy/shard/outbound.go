package shard

import (
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// Outbound is the sending side of a connection, of which the session or upstream
// that owns the connection has one. It counts what the peer has not taken yet
// against limits.buffered, and closes a connection of which the peer takes
// nothing for timeouts.write.
type Outbound struct {
	shard *Shard
	Conn  loop.Conn
	timer loop.Timer // armed while something is left to send

	wrote   int           // bytes given to conn since nothing was left
	taken   int           // of these, what the peer took by the last look
	Counted int           // bytes that the ledger knows of
	since   time.Duration // when the peer last took something, by the looks
}

// outboundLook is how often a connection with something left to send is looked
// at: there is no event when it has left. A peer's slowness shows, and its
// memory is counted, to within that.
const outboundLook = 200 * time.Millisecond

func (o *Outbound) Init(s *Shard) {
	o.shard = s
	o.timer.Fire = o.look
}

// Write sends b.
func (o *Outbound) Write(b []byte) {
	o.wrote += len(b)
	o.Conn.Write(b)
}

// Watch is called once after a few writes.
func (o *Outbound) Watch() {
	switch {
	case o.timer.Armed():
		o.count(o.Conn.Buffered())
	case o.Conn.Buffered() > 0:
		o.taken, o.since = 0, o.shard.Loop.Now()
		o.look()
	default:
		o.wrote = 0
	}
}

// look settles the count, and closes the connection if its peer is stuck.
func (o *Outbound) look() {
	left := o.Conn.Buffered()
	o.count(left)
	if left == 0 {
		o.wrote = 0
		return
	}
	now, patience := o.shard.Loop.Now(), o.shard.Config.Timeouts.Write
	if taken := o.wrote - left; taken > o.taken {
		o.taken, o.since = taken, now
	}
	if now-o.since >= patience {
		o.shard.Stats.WriteTimeouts++
		o.Conn.Close()
		return
	}
	o.shard.Loop.After(min(outboundLook, patience-(now-o.since)), &o.timer)
}

func (o *Outbound) count(left int) {
	o.shard.Charge(left - o.Counted)
	o.Counted = left
}

// Stop is called when the connection is closed.
func (o *Outbound) Stop() {
	o.shard.Loop.Stop(&o.timer)
	o.count(0)
}
