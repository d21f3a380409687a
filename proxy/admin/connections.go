package admin

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"github.com/remora-proxy/remora/proxy/fair"
	"github.com/remora-proxy/remora/proxy/fair/share"
)

// connLimit has the open connections. Each takes a descriptor, which the listeners need too, and
// some 20 KiB. So that health checks are answered during a flood of connections:
//
//   - One more than max closes the connection that has waited longest for a request, of the
//     source that has most of them. If all connections have a request, it closes the new one.
//   - A quarter of max is reserved for sources that have checked the health before, because a
//     flood may come from more sources than there are places.
type connLimit struct {
	checkers fair.Known // sources of requests for /healthz and /readyz

	mu       sync.Mutex
	open     map[net.Conn]*connection
	reserved pool // for checkers
	shared   pool // for all
}

// connection is an open connection. connLimit.mu guards it.
type connection struct {
	source  netip.Addr
	pool    *pool
	waiting *fair.Place // nil while the connection has a request
}

// pool divides its places among connections without a request. A connection with a request
// takes one place out of the pool: nobody may take it.
type pool struct {
	max     int
	busy    int // connections with a request
	waiting *fair.Table
}

func newPool(max int) pool { return pool{max: max, waiting: fair.NewTable(max)} }

// setBusy adds n to the connections with a request.
func (p *pool) setBusy(n int) {
	p.busy += n
	p.waiting.Resize(p.max - p.busy)
}

type connectionKey struct{}

// bound limits the connections of a server that has its handler, to max.
func (c *connLimit) bound(s *http.Server, max int) {
	reserve := max / 4
	c.reserved, c.shared = newPool(reserve), newPool(max-reserve)
	c.shared.waiting.Turnover = true
	c.open = make(map[net.Conn]*connection)
	s.ConnState = c.changed
	s.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, nc)
	}
	next := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if nc, ok := r.Context().Value(connectionKey{}).(net.Conn); ok {
			if isHealthCheck(r) {
				c.checkers.Add(fair.SourceOf(nc.RemoteAddr()))
			}
			c.busy(nc, true)
			defer c.busy(nc, false)
		}
		next.ServeHTTP(w, r)
	})
}

func (c *connLimit) changed(nc net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		c.admit(nc)
	case http.StateClosed, http.StateHijacked:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.forget(nc)
	}
}

// admit gives a place to a new connection, or closes it.
func (c *connLimit) admit(nc net.Conn) {
	source := fair.SourceOf(nc.RemoteAddr())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.checkers.Has(source) && c.wait(nc, &connection{source: source, pool: &c.reserved}) {
		return
	}
	if !c.wait(nc, &connection{source: source, pool: &c.shared}) {
		nc.Close()
	}
}

// wait gives a place in its pool to a connection without a request, and reports whether there
// is one. The caller has locked mu.
func (c *connLimit) wait(nc net.Conn, at *connection) bool {
	at.waiting = at.pool.waiting.Take(share.Source{Peer: at.source}, func() { // within another call of wait
		delete(c.open, nc)
		nc.Close()
	})
	if at.waiting == nil {
		return false
	}
	c.open[nc] = at
	return true
}

// busy says that nc has a request, or no longer.
func (c *connLimit) busy(nc net.Conn, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.open[nc]
	switch {
	case at == nil:
	case is && at.waiting != nil:
		at.waiting.Release()
		at.waiting = nil
		at.pool.setBusy(1)
	case !is && at.waiting == nil:
		at.pool.setBusy(-1)
		c.wait(nc, at) // in the place that the request had: none has to give way
	}
}

func (c *connLimit) forget(nc net.Conn) {
	at := c.open[nc]
	if at == nil {
		return
	}
	delete(c.open, nc)
	if at.waiting == nil {
		at.pool.setBusy(-1)
	}
	at.waiting.Release()
}

// count returns the number of open connections.
func (c *connLimit) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}
