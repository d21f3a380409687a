package shard

import "github.com/remora-proxy/remora/proxy/config"

// Tables counts the memory of the interning tables of a loop's links and connections of HTTP/2. It is
// a part of limits.buffered.
type Tables struct {
	bytes int
	limit int // idle connections close at it
	next  int // the same, or higher while the tables of busy ones exceed it
}

// configure sets the limit: half of limits.buffered for all loops, so that tables leave room
// for messages.
func (t *Tables) configure(lim *config.Limits, loops int) {
	t.limit = max(int(lim.Buffered/2)/loops, chargeStep)
	t.next = t.limit
}

func (t *Tables) add(n int) {
	if t.bytes += n; t.bytes < t.limit {
		t.next = t.limit
	}
}

// Bytes returns the memory of all tables.
func (t *Tables) Bytes() int { return t.bytes }

// Full reports whether idle connections must close.
func (t *Tables) Full() bool { return t.bytes >= t.next }

// Over reports whether another idle connection must close. A quarter of the memory is released at
// once, so that it is seldom necessary.
func (t *Tables) Over() bool { return t.bytes > t.limit/4*3 }

// Reclaimed ends the closing of idle connections. The tables of busy ones may still be over the
// limit. Then Full is true again after some growth.
func (t *Tables) Reclaimed() { t.next = max(t.limit, t.bytes+chargeStep) }
