package replica

import (
	"net"
	"syscall"
)

// peer is the client's end of a connection.
type peer struct {
	nc  net.Conn
	raw syscall.RawConn // of nc
}

// alive reports whether the client has not closed the connection, as far as the kernel knows.
// Bytes that nobody has read hide the end behind them.
func (p *peer) alive() (open bool) {
	err := p.raw.Control(func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		open = n > 0 || err == syscall.EAGAIN || err == syscall.EINTR
	})
	return open && err == nil
}

// write reports whether the connection is still open.
func (p *peer) write(b []byte) bool {
	_, err := p.nc.Write(b)
	return err == nil
}
