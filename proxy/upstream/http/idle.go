package http

import (
	"slices"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// idleConns are the idle connections of a pool: a stack with the last used on top, so that those in excess reach
// idle_timeout, after which it closes them.
type idleConns struct {
	*pool
	stack   []*conn
	sweeper loop.Timer
}

func (i *idleConns) init(p *pool) {
	i.pool = p
	i.sweeper.Fire = i.sweep
}

func (i *idleConns) len() int { return len(i.stack) }

// top returns the connection that was used last, or nil.
func (i *idleConns) top() *conn {
	if n := len(i.stack); n > 0 {
		return i.stack[n-1]
	}
	return nil
}

// pop removes the top.
func (i *idleConns) pop() {
	last := len(i.stack) - 1
	i.stack[last] = nil
	i.stack = i.stack[:last]
}

// push adds c, which is idle from now on.
func (i *idleConns) push(c *conn) {
	i.stack = append(i.stack, c)
	if !i.sweeper.Armed() {
		i.shard.Loop.After(i.service.Config.IdleTimeout, &i.sweeper)
	}
}

// remove removes a connection that has closed.
func (i *idleConns) remove(c *conn) {
	if at := slices.Index(i.stack, c); at >= 0 {
		i.stack = slices.Delete(i.stack, at, at+1)
	}
}

// closeAll closes all.
func (i *idleConns) closeAll() {
	i.shard.Loop.Stop(&i.sweeper)
	for _, c := range i.stack {
		c.transport.Close()
	}
	i.stack = nil
}

// After a burst many connections reach idle_timeout together. Closing hundreds in one turn
// would delay requests in flight: sweep closes at most maxSweep, and the next after sweepPause.
const (
	maxSweep   = 8
	sweepPause = 2 * time.Millisecond
)

// sweep closes connections that were idle for idle_timeout. Besides the pauses between many of
// them, it runs at most eight times per timeout, whatever the traffic.
func (i *idleConns) sweep() {
	now, timeout := i.shard.Loop.Now(), i.service.Config.IdleTimeout
	swept := 0
	for swept < min(len(i.stack), maxSweep) && now-i.stack[swept].idleSince >= timeout {
		i.stack[swept].close()
		swept++
		i.keeping.outlived(timeout)
	}
	i.stack = slices.Delete(i.stack, 0, swept)
	switch {
	case len(i.stack) == 0:
	case swept == maxSweep:
		i.shard.Loop.After(sweepPause, &i.sweeper)
	default:
		i.shard.Loop.After(max(i.stack[0].idleSince+timeout-now, timeout/8), &i.sweeper)
	}
}
