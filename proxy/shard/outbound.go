package shard

import (
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// Outbound is the sending side of a connection. It belongs to the session or upstream
// that owns the connection. It counts unsent output against limits.buffered, and
// closes the connection if the peer takes no output for timeouts.write.
type Outbound struct {
	shard   *Shard
	Conn    loop.Conn // set by the owner before the first Write
	backlog *backlog  // nil if no output is left to send, as with most connections
}

// backlog is the output of a connection that is left to send.
type backlog struct {
	outbound *Outbound     // nil in the free list
	index    int           // in backlogs.all
	offered  int           // bytes given to the connection: left at first, or written since
	accepted int           // of offered, bytes that the peer had taken at the last check
	counted  int           // bytes that are counted against limits.buffered
	since    time.Duration // when a check last found that the peer had taken bytes
}

// backlogs has the backlogs of a shard. They share one timer: with one for each, thousands of peers that do
// not read would keep the loop awake.
type backlogs struct {
	all   []*backlog
	timer loop.Timer // armed while all is not empty; after the end of the last backlog it fires once more
	free  FreeList[*backlog]
}

// checkInterval is how often unsent output is checked, and how late the count of memory and the write timeout
// may be.
const checkInterval = 200 * time.Millisecond

// Init prepares o for a connection of s.
func (o *Outbound) Init(s *Shard) { o.shard = s }

// Write sends b. The owner calls Watch after its last Write of a callback.
func (o *Outbound) Write(b []byte) {
	if o.backlog != nil {
		o.backlog.offered += len(b)
	}
	o.Conn.Write(b)
}

// WriteBoth sends head and then body, without a copy of both in a row.
func (o *Outbound) WriteBoth(head, body []byte) {
	parts := append(o.shard.Parts[:0], head, body)
	o.WriteParts(parts)
	o.shard.KeepParts(parts)
}

// WriteParts sends all parts in a row, with few system calls. It may change the elements of parts.
func (o *Outbound) WriteParts(parts [][]byte) {
	if len(parts) == 1 {
		o.Write(parts[0])
		return
	}
	if o.backlog != nil {
		for _, b := range parts {
			o.backlog.offered += len(b)
		}
	}
	o.Conn.WriteParts(parts)
}

// Counted returns the bytes that are counted against limits.buffered.
func (o *Outbound) Counted() int {
	if o.backlog == nil {
		return 0
	}
	return o.backlog.counted
}

// Watch counts the output that is left to send and starts the checks of it.
func (o *Outbound) Watch() {
	left := o.Conn.Buffered()
	switch {
	case o.backlog != nil:
		o.shard.Recount(&o.backlog.counted, left)
	case left > 0:
		o.backlog = o.shard.addBacklog(o, left)
	}
}

func (s *Shard) addBacklog(o *Outbound, left int) *backlog {
	b, ok := s.backlogs.free.Take()
	if !ok {
		b = new(backlog)
	}
	*b = backlog{outbound: o, index: len(s.backlogs.all), offered: left, since: s.Loop.Now()}
	s.backlogs.all = append(s.backlogs.all, b)
	s.Recount(&b.counted, left)
	if !s.backlogs.timer.Armed() {
		s.checkBacklogs()
	}
	return b
}

// checkBacklogs checks all backlogs, and arms the timer before, as a check may panic.
func (s *Shard) checkBacklogs() {
	if len(s.backlogs.all) > 0 {
		s.Loop.After(min(checkInterval, s.Config.Timeouts.Write), &s.backlogs.timer)
	}
	for i := len(s.backlogs.all) - 1; i >= 0; i-- { // check may take the backlog out
		s.backlogs.all[i].check()
	}
}

// check updates the count, and closes the connection if the write timeout has passed.
func (b *backlog) check() {
	conn, shard := b.outbound.Conn, b.outbound.shard
	left, now := conn.Buffered(), shard.Loop.Now()
	if left == 0 {
		b.outbound.Stop()
		return
	}
	shard.Recount(&b.counted, left)
	if taken := b.offered - left; taken > b.accepted {
		b.accepted, b.since = taken, now
	}
	if now-b.since >= shard.Config.Timeouts.Write {
		shard.Stats.WriteTimeouts++
		conn.Close()
	}
}

// Stop ends the checks and releases the count, when all is sent or the connection is closed.
func (o *Outbound) Stop() {
	b := o.backlog
	if b == nil {
		return
	}
	s := o.shard
	s.Recount(&b.counted, 0)
	o.backlog, b.outbound = nil, nil
	last := len(s.backlogs.all) - 1
	moved := s.backlogs.all[last]
	moved.index = b.index
	s.backlogs.all[b.index], s.backlogs.all[last] = moved, nil
	s.backlogs.all = s.backlogs.all[:last]
	s.backlogs.free.Put(b)
}
