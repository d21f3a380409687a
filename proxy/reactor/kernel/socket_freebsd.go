package kernel

import (
	"errors"

	"golang.org/x/sys/unix"
)

// KeepAliveTime is the option for the time of silence before the first keep-alive probe.
const KeepAliveTime = unix.TCP_KEEPIDLE

// Requests of ioctl(2), of sys/filio.h: bytes that can be read, and bytes that were written and not acknowledged.
const (
	fionread  = 0x4004667f
	fionwrite = 0x40046677
)

// Unacknowledged returns how many bytes were written and not acknowledged.
func Unacknowledged(fd int) (int, error) { return unix.IoctlGetInt(fd, fionwrite) }

// Unsent returns Unacknowledged: the system does not count bytes on their way.
func Unsent(fd int) (int, error) { return Unacknowledged(fd) }

// Unread returns how many bytes were received and not read.
func Unread(fd int) (int, error) { return unix.IoctlGetInt(fd, fionread) }

// TCPCounters returns an error: package unix has no call for the counters of this system.
func TCPCounters(int) (Counters, error) { return Counters{}, errors.ErrUnsupported }
