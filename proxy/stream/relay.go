package stream

import (
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// flushTime is how long the other direction of a broken stream may go on with
// what the kernel still holds of it.
const flushTime = time.Second

// relay copies both ways until both have ended, and closes both connections. Of
// each connection's bytes it holds none: io.Copy between two TCP connections is
// splice, within the kernel, so a reader that stops stalls its sender through
// the two kernels' buffers. With TLS on one it holds a buffer for each direction.
//
// An end of file is passed on as one, and the other direction goes on. An error
// ends both with a reset.
func (t *tunnel) relay() (in, out int64) {
	watch := t.watch()
	defer watch.stop()
	back := make(chan int64, 1)
	go func() { back <- t.copy(t.down, t.up) }()
	in = t.copy(t.up, t.down)
	out = <-back
	if t.torn.Load() {
		t.cut()
	}
	_ = t.down.Close()
	_ = t.up.Close()
	return in, out
}

// copy passes on what src sends, and its end.
func (t *tunnel) copy(dst, src conn) (n int64) {
	n, err := io.Copy(dst, src)
	if err == nil {
		err = dst.CloseWrite()
	}
	switch {
	case err == nil:
	case dead(src):
		t.cut()
	default:
		// dst is gone. What it sent before is still to be passed on, and its
		// end is met by the other direction.
		t.broken()
	}
	return n
}

// broken makes the stream end in a reset, soon.
func (t *tunnel) broken() {
	t.torn.Store(true)
	until := time.Now().Add(t.srv.flush)
	_ = t.down.SetDeadline(until)
	_ = t.up.SetDeadline(until)
}

// dead tells whether the connection was reset: no state is left of it but the
// descriptor.
func dead(c conn) bool {
	info, err := tcpInfo(c)
	return err != nil || info.State == tcpClose
}

// tcpClose is TCP_CLOSE of linux/tcp_states.h.
const tcpClose = 7

// tcpInfo asks the kernel how the connection is.
func tcpInfo(c conn) (info *unix.TCPInfo, err error) {
	sc, err := raw(c).SyscallConn()
	if err != nil {
		return nil, err
	}
	var failed error
	err = sc.Control(func(fd uintptr) {
		info, failed = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	if err == nil {
		err = failed
	}
	return info, err
}
