package kubernetes

import (
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
)

// TestIdleProbe: the kernel asks whether a silent server is there, and gives it up after three questions without a response.
func TestIdleProbe(t *testing.T) {
	l := must.Listen(t)
	c, err := new(access).client(t.Context(), time.Second).Transport.(*http.Transport).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.(*boundConn).Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	const seconds = int(idleProbe / time.Second)
	for _, o := range []struct {
		name                string
		level, option, want int
	}{
		{"it is on", syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
		{"seconds of silence", syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, seconds},
		{"seconds between questions", syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, seconds},
		{"questions", syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, 3},
	} {
		err := raw.Control(func(fd uintptr) {
			if got, err := syscall.GetsockoptInt(int(fd), o.level, o.option); err != nil || got != o.want {
				t.Errorf("%s: %d, %v; want %d", o.name, got, err, o.want)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
