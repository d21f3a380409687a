package replica

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// bindToDevice limits a socket to one network interface.
func bindToDevice(device string) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) (err error) {
		if e := c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), device) }); e != nil {
			return e
		}
		return err
	}
}
