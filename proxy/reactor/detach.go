package reactor

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"

	"github.com/remora-proxy/remora/proxy/loop"
)

// Detach implements loop.Conn. Every event passes on all that it has read, so the socket has all
// other input, except for what TLS holds, which goes with the Socket.
func (c *conn) Detach() (loop.Socket, error) {
	if c.state != connOpen {
		return nil, loop.ErrDetachClosed
	}
	if c.Buffered() > 0 {
		return nil, loop.ErrDetachBuffered
	}
	nc, err := c.leave()
	if err != nil {
		return nil, fmt.Errorf("reactor: detach: %w", err)
	}
	c.loop.reactor.count.detached.Add(1)
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
	return newSocket(&c.loop.reactor.connections, nc, over, at, c.peerAddr())
}

// peerAddr returns who the peer is. Package net has no address for a connection that was reset
// meanwhile. nil means the address of a dialled connection.
func (c *conn) peerAddr() net.Addr {
	if c.peer != nil || c.listener == nil {
		return c.peer
	}
	at, _ := netip.ParseAddrPort(c.remote)
	return net.TCPAddrFromAddrPort(at)
}
