package reactor

import (
	"net"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// writeSocket writes b to the socket. Bytes that the kernel does not take are given to gnet,
// which buffers them and writes them later. An error closes the connection.
//
// gnet's own write costs 0.5 of 8 µs more: write(2) does checks for files, and the Go runtime
// is told of a system call that may block. It is not told of rawSend. The garbage collector
// can't stop this thread before rawSend returns, and all loops wait for that. Copying 4 MiB
// takes 2 ms, so gnet writes long input.
func (c *conn) writeSocket(b []byte) error {
	if c.gc == nil {
		return net.ErrClosed
	}
	if len(b) <= maxRawSend && c.gc.OutboundBuffered() == 0 {
		n, errno := rawSend(c.gc.Fd(), b)
		switch {
		case errno == 0:
			b = b[n:]
		case errno != unix.EAGAIN:
			c.end(errno)
			return errno
		}
	}
	if len(b) == 0 {
		return nil
	}
	_, err := c.gc.Write(b) // an error has called gnet's OnClose, and so onGnetClose
	return err
}

// maxRawSend is the largest input for rawSend, which takes about 50 µs for it.
const maxRawSend = 64 << 10

// rawSend calls send(2) without waiting, and without raising a signal. b must not be empty.
func rawSend(fd int, b []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	runtime.KeepAlive(b)
	return int(n), errno
}
