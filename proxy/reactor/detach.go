package reactor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"github.com/remora-proxy/remora/proxy"
)

// detached is a connection that has left its loop, on a descriptor of its own.
type detached struct {
	*net.TCPConn
	eng    *Engine
	place  place
	closed atomic.Bool
}

// NetConn is the connection itself, for deadlines and for splice.
func (s *detached) NetConn() net.Conn { return s.TCPConn }

// Close closes the connection and gives its place back, once.
func (s *detached) Close() error {
	if s.closed.Swap(true) {
		return net.ErrClosed
	}
	s.eng.count.outside.Add(-1)
	s.place.leave()
	return s.TCPConn.Close()
}

// errDetachTLS refuses to hand out a socket whose bytes are encrypted.
var errDetachTLS = errors.New("reactor: detach: a connection with TLS stays on its loop")

// Detach implements proxy.Conn. gnet can't give a descriptor away, so the Socket
// gets a duplicate and gnet closes its own, which ends nothing: the connection
// lives as long as one descriptor does. Every event consumes all input (see
// handler.OnTraffic), so gnet holds none of it back.
func (c *conn) Detach() (proxy.Socket, error) {
	if c.state != connOpen {
		return nil, proxy.ErrDetachClosed
	}
	if c.secure != nil {
		return nil, errDetachTLS
	}
	if c.gc.OutboundBuffered() > 0 {
		return nil, proxy.ErrDetachBuffered
	}
	nc, err := c.duplicate()
	if err != nil {
		return nil, err
	}
	s := &detached{TCPConn: nc, eng: c.loop.eng, place: c.place}
	c.place = place{} // it is the Socket's now
	c.loop.eng.count.outside.Add(1)
	c.loop.eng.count.detached.Add(1)
	c.end(nil)
	return s, nil
}

// duplicate makes a connection of package net on the same socket.
func (c *conn) duplicate() (*net.TCPConn, error) {
	fd, err := c.gc.Dup()
	if err != nil {
		return nil, fmt.Errorf("reactor: detach: %w", err)
	}
	f := os.NewFile(uintptr(fd), "")
	nc, err := net.FileConn(f) // duplicates once more
	_ = f.Close()
	if err != nil {
		return nil, fmt.Errorf("reactor: detach: %w", err)
	}
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		_ = nc.Close()
		return nil, fmt.Errorf("reactor: detach: a %T", nc)
	}
	return tcp, nil
}

// Reserve takes a place among the accepted connections for one from remote that
// never comes to a loop, if MaxConnections and MaxPerSource leave one. It returns
// what gives the place back, once, or nil if there is none. Any goroutine may call
// either.
func (e *Engine) Reserve(remote net.Addr) (release func()) {
	at, ok := e.places.take(remote)
	if !ok {
		return nil
	}
	e.count.outside.Add(1)
	return sync.OnceFunc(func() {
		e.count.outside.Add(-1)
		at.leave()
	})
}
