// Package backlogtest waits, in tests, for connections that no program has accepted yet. It is test support; no command may
// import it.
package backlogtest

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/internal/eventually"
)

// Await waits until n connections wait at the listening socket fd. The kernel tells a client that it is connected before
// it queues the connection for the listener. A Unix socket's connections wait there when connect(2) returns.
func Await(t testing.TB, fd, n int) {
	t.Helper()
	eventually.Nil(t, "connections to wait at a listener", func() error {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == unix.EOPNOTSUPP {
			return nil // a Unix socket
		}
		if err != nil {
			return err
		}
		if queued := int(info.Unacked); queued != n { // of a listener, Unacked is the length of the queue (Linux, tcp_get_info)
			return fmt.Errorf("%d wait, want %d", queued, n)
		}
		return nil
	})
}
