package shard

import (
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// Outbound is the sending side of a connection. It belongs to the session or upstream
// that owns the connection. It counts unsent output against limits.buffered, and
// closes the connection if the peer takes no output for timeouts.write.
type Outbound struct {
	shard *Shard
	Conn  loop.Conn  // set by the owner before the first Write
	timer loop.Timer // armed while output is left to send

	wrote   int           // bytes written since no output was left
	taken   int           // of these, bytes that the peer had taken at the last check
	Counted int           // bytes that are counted against limits.buffered
	since   time.Duration // when a check last found that the peer had taken bytes
}

// checkInterval is how often unsent output is checked: a loop has no event for sent
// output. The write timeout and the count of memory are late by that much at most.
const checkInterval = 200 * time.Millisecond

// Init prepares o for a connection of s.
func (o *Outbound) Init(s *Shard) {
	o.shard = s
	o.timer.Fire = o.check
}

// Write sends b. The owner calls Watch after its last Write of a callback.
func (o *Outbound) Write(b []byte) {
	o.wrote += len(b)
	o.Conn.Write(b)
}

// Watch counts the output that is left to send and starts the checks of it.
func (o *Outbound) Watch() {
	switch {
	case o.timer.Armed():
		o.shard.Recount(&o.Counted, o.Conn.Buffered())
	case o.Conn.Buffered() > 0:
		o.taken, o.since = 0, o.shard.Loop.Now()
		o.check()
	default:
		o.wrote = 0
	}
}

// check updates the count, and closes the connection if the write timeout has passed.
func (o *Outbound) check() {
	left := o.Conn.Buffered()
	o.shard.Recount(&o.Counted, left)
	if left == 0 {
		o.wrote = 0
		return
	}
	now, timeout := o.shard.Loop.Now(), o.shard.Config.Timeouts.Write
	if taken := o.wrote - left; taken > o.taken {
		o.taken, o.since = taken, now
	}
	if now-o.since >= timeout {
		o.shard.Stats.WriteTimeouts++
		o.Conn.Close()
		return
	}
	o.shard.Loop.After(min(checkInterval, timeout-(now-o.since)), &o.timer)
}

// Stop ends the checks and releases the count, when the connection is closed.
func (o *Outbound) Stop() {
	o.shard.Loop.Stop(&o.timer)
	o.shard.Recount(&o.Counted, 0)
}
