package replica

import "golang.org/x/sys/unix"

// bindToDevice makes a socket receive from one network interface only.
func bindToDevice(fd int, device string) error { return unix.BindToDevice(fd, device) }
