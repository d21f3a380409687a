package backlogtest

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
)

// TestAwait: Await counts the connections that wait at a TCP socket. It takes a Unix socket, too.
func TestAwait(t *testing.T) {
	for network, addr := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		ln := must.ListenOn(t, network, addr)
		raw, err := ln.(syscall.Conn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		for n := range 3 {
			if err := raw.Control(func(fd uintptr) { Await(t, int(fd), n) }); err != nil {
				t.Fatal(err)
			}
			must.Dial(t, network, ln.Addr().String())
		}
	}
}
