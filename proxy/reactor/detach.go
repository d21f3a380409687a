package reactor

import (
	"fmt"
	"net"
	"os"

	"github.com/remora-proxy/remora/proxy/loop"
)

// Detach implements loop.Conn. gnet can't give a descriptor away, so the Socket
// gets a duplicate and gnet closes its own, which ends nothing: the connection
// lives as long as one descriptor does. Every event consumes all input (see
// handler.OnTraffic), so gnet holds none of it back; what TLS has of it goes
// along with the Socket.
func (c *conn) Detach() (loop.Socket, error) {
	if c.state != connOpen {
		return nil, loop.ErrDetachClosed
	}
	if c.gc.OutboundBuffered() > 0 {
		return nil, loop.ErrDetachBuffered
	}
	nc, err := c.duplicate()
	if err != nil {
		return nil, err
	}
	c.loop.eng.count.detached.Add(1)
	s := c.leave(nc)
	c.end(nil)
	return s, nil
}

// leave makes nc the connection's own, off the loop. It keeps its place.
func (c *conn) leave(nc *net.TCPConn) loop.Socket {
	e, at := c.loop.eng, c.place
	c.place = place{}
	if c.secure == nil {
		s := &plainSocket{TCPConn: nc}
		s.outside.begin(e, at)
		return s
	}
	s := &secureSocket{Conn: c.secure.leave(nc), raw: nc}
	s.outside.begin(e, at)
	return s
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

// Room is for a listener whose connections never come to a loop. The function it
// returns takes a place among the accepted connections for one from remote, if
// MaxConnections, MaxPerSource and max, which bounds those of the room (0: nothing
// more), leave one; it returns what gives the place back, once, or nil. Any
// goroutine may call these.
func (e *Engine) Reserver(max int) (reserve func(remote net.Addr) (release func())) {
	in := &room{max: int64(max)}
	return func(remote net.Addr) (release func()) {
		at, ok := e.places.take(remote, in)
		if !ok {
			return nil
		}
		o := &outside{}
		o.begin(e, at)
		return func() { o.end() }
	}
}
