package reactor

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"

	"github.com/panjf2000/gnet/v2"

	"github.com/remora-proxy/remora/proxy/loop"
)

// Detach implements loop.Conn. gnet can't release a descriptor, so the Socket gets a duplicate
// and gnet closes its own. The connection stays open as long as one descriptor does. Every
// event consumes all input (see handler.OnTraffic), so gnet has none left; input that TLS
// holds goes with the Socket.
func (c *conn) Detach() (loop.Socket, error) {
	if c.state != connOpen {
		return nil, loop.ErrDetachClosed
	}
	if c.gc.OutboundBuffered() > 0 {
		return nil, loop.ErrDetachBuffered
	}
	nc, err := duplicate(c.gc)
	if err != nil {
		return nil, fmt.Errorf("reactor: detach: %w", err)
	}
	c.loop.eng.count.detached.Add(1)
	s := c.toSocket(nc)
	c.end(nil)
	return s, nil
}

// toSocket returns a Socket on nc, which takes over the reservation of c.
func (c *conn) toSocket(nc rawConn) loop.Socket {
	var over *tls.Conn
	if c.secure != nil {
		over = c.secure.detach(nc)
	}
	at := c.reservation
	at.becomeStream()
	c.reservation = reservation{}
	return c.loop.eng.newSocket(nc, over, at, c.peer)
}

// duplicate returns the connection of gc on a descriptor of its own.
func duplicate(gc gnet.Conn) (rawConn, error) {
	fd, err := gc.Dup()
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "")
	nc, err := net.FileConn(f) // duplicates once more
	_ = f.Close()
	if err != nil {
		return nil, err
	}
	raw, ok := nc.(rawConn)
	if !ok {
		_ = nc.Close()
		return nil, fmt.Errorf("a %T", nc)
	}
	return raw, nil
}
