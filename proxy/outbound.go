package proxy

import "time"

// outbound is the sending side of a connection, of which the session or upstream
// that owns the connection has one. It counts what the peer has not taken yet
// against limits.buffered, and closes a connection of which the peer takes
// nothing for timeouts.write.
type outbound struct {
	shard *shard
	conn  Conn
	timer Timer // armed while something is left to send

	wrote   int           // bytes given to conn since nothing was left
	taken   int           // of these, what the peer took by the last look
	counted int           // bytes that the ledger knows of
	since   time.Duration // when the peer last took something, by the looks
}

// outboundLook is how often a connection with something left to send is looked
// at: there is no event when it has left. A peer's slowness shows, and its
// memory is counted, to within that.
const outboundLook = 200 * time.Millisecond

func (o *outbound) init(s *shard) {
	o.shard = s
	o.timer.Fire = o.look
}

// write sends b.
func (o *outbound) write(b []byte) {
	o.wrote += len(b)
	o.conn.Write(b)
}

// watch is called once after a few writes.
func (o *outbound) watch() {
	switch {
	case o.timer.Armed():
		o.count(o.conn.Buffered())
	case o.conn.Buffered() > 0:
		o.taken, o.since = 0, o.shard.loop.Now()
		o.look()
	default:
		o.wrote = 0
	}
}

// look settles the count, and closes the connection if its peer is stuck.
func (o *outbound) look() {
	left := o.conn.Buffered()
	o.count(left)
	if left == 0 {
		o.wrote = 0
		return
	}
	now, patience := o.shard.loop.Now(), o.shard.cfg.Timeouts.Write
	if taken := o.wrote - left; taken > o.taken {
		o.taken, o.since = taken, now
	}
	if now-o.since >= patience {
		o.shard.stats.WriteTimeouts++
		o.conn.Close()
		return
	}
	o.shard.loop.After(min(outboundLook, patience-(now-o.since)), &o.timer)
}

func (o *outbound) count(left int) {
	o.shard.charge(left - o.counted)
	o.counted = left
}

// stop is called when the connection is closed.
func (o *outbound) stop() {
	o.shard.loop.Stop(&o.timer)
	o.count(0)
}
