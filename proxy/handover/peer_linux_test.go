package handover

import (
	"errors"
	"syscall"
	"testing"
)

// TestDescriptor: a message passes one descriptor.
func TestDescriptor(t *testing.T) {
	for _, c := range []struct {
		rights []byte
		want   int // -1 means none
	}{
		{syscall.UnixRights(7), 7}, {syscall.UnixRights(7, 8), -1}, {syscall.UnixRights(), -1}, {nil, -1},
		{syscall.UnixCredentials(&syscall.Ucred{}), -1}, {syscall.UnixRights(7)[:5], -1},
		{append(syscall.UnixCredentials(&syscall.Ucred{}), syscall.UnixRights(7)...), 7},
	} {
		fd, err := descriptor(c.rights)
		if fd != c.want || (err == nil) != (c.want >= 0) || err != nil && !errors.Is(err, ErrProtocol) {
			t.Errorf("of %x: %d, %v; want %d", c.rights, fd, err, c.want)
		}
	}
}
