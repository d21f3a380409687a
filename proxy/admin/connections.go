package admin

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
)

// connLimit has the open connections. Each takes a descriptor, which the listeners need too, and
// some 20 KiB. One more than max closes the one that has waited longest for a request, so probes
// are served while others hold connections open. If all have a request, it closes the new one.
type connLimit struct {
	max int // limits.admin_connections

	mu      sync.Mutex
	waiting list.List                  // of net.Conn without a request, the longest first
	place   map[net.Conn]*list.Element // in waiting; nil for one with a request
}

type connectionKey struct{}

// bound limits the connections of a server that has its handler, to max.
func (c *connLimit) bound(s *http.Server, max int) {
	c.max = max
	c.place = make(map[net.Conn]*list.Element)
	s.ConnState = c.changed
	s.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, nc)
	}
	next := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if nc, ok := r.Context().Value(connectionKey{}).(net.Conn); ok {
			c.busy(nc, true)
			defer c.busy(nc, false)
		}
		next.ServeHTTP(w, r)
	})
}

func (c *connLimit) changed(nc net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.place[nc] = c.waiting.PushBack(nc)
		if len(c.place) > c.max {
			victim := c.waiting.Front().Value.(net.Conn)
			c.forget(victim)
			victim.Close()
		}
	case http.StateClosed, http.StateHijacked:
		c.forget(nc)
	}
}

// busy says that nc has a request, or no longer.
func (c *connLimit) busy(nc net.Conn, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, open := c.place[nc]
	switch {
	case !open:
	case is && at != nil:
		c.waiting.Remove(at)
		c.place[nc] = nil
	case !is && at == nil:
		c.place[nc] = c.waiting.PushBack(nc)
	}
}

func (c *connLimit) forget(nc net.Conn) {
	if at := c.place[nc]; at != nil {
		c.waiting.Remove(at)
	}
	delete(c.place, nc)
}
