package reactor

import (
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// descriptor is a socket on a loop: its file descriptor, and the output that the kernel has not taken.
type descriptor struct {
	loop *eventLoop
	fd   int  // -1 means none: from close on the system may give the number to another socket
	unix bool // a Unix socket: a read stops at descriptors that the peer passes

	out output

	awaits awaited
}

// awaited is what the owner of a descriptor awaits before it writes more.
type awaited struct {
	left int         // most bytes of output that may be left then
	then *loop.Flush // deferred then; nil means that nothing is awaited
}

// watcher receives the events of a descriptor.
type watcher interface{ onEvents(e kernel.Events) }

// watch makes the loop report the events of d to w.
func (d *descriptor) watch(w watcher, e kernel.Events) error {
	if err := d.loop.poller.Add(d.fd, e); err != nil {
		return err
	}
	d.loop.setWatcher(d.fd, w)
	return nil
}

// rewatch watches for input, and for room if there is output. What the descriptor is ready for is
// reported anew.
func (d *descriptor) rewatch() error {
	e := kernel.Input
	if d.buffered() > 0 {
		e |= kernel.Output
	}
	return d.loop.poller.Change(d.fd, e)
}

// buffered returns how many bytes of output the kernel has not taken.
func (d *descriptor) buffered() int { return d.out.len }

// write sends b, and keeps a copy of what the kernel does not take, until onWritable. b may be empty.
func (d *descriptor) write(b []byte) syscall.Errno {
	if d.buffered() == 0 && len(b) > 0 {
		n, errno := d.send(b)
		if b = b[n:]; errno != 0 || len(b) == 0 {
			return errno
		}
	}
	return d.keep(b)
}

// writeParts is write of all parts in a row. It changes the elements of parts.
func (d *descriptor) writeParts(parts [][]byte) (errno syscall.Errno) {
	if d.buffered() == 0 {
		parts, errno = d.sendParts(parts)
	}
	for i := 0; i < len(parts) && errno == 0; i++ {
		errno = d.keep(parts[i])
	}
	return errno
}

// keep keeps a copy of b until onWritable.
func (d *descriptor) keep(b []byte) syscall.Errno {
	first := d.buffered() == 0
	d.out.add(d.loop, b)
	if first && len(b) > 0 {
		if err := d.rewatch(); err != nil {
			return unix.ENOMEM
		}
	}
	return 0
}

// onWritable sends what write has kept.
func (d *descriptor) onWritable() syscall.Errno {
	if d.buffered() == 0 {
		return 0
	}
	for d.buffered() > 0 {
		n, errno := d.sendKept()
		switch {
		case errno == unix.EAGAIN:
			return 0
		case errno == unix.EINTR:
			continue
		case errno != 0:
			return errno
		}
		d.out.remove(d.loop, n)
	}
	if err := d.rewatch(); err != nil {
		return unix.ENOMEM
	}
	return 0
}

// sendKept sends the beginning of what write has kept, and returns how many bytes the kernel has taken.
func (d *descriptor) sendKept() (n int, _ syscall.Errno) {
	var parts [kernel.MaxParts][]byte
	return kernel.SendParts(d.fd, d.out.parts(parts[:0], len(parts)))
}

// checkRoom defers what awaits room. It is called after onWritable.
func (d *descriptor) checkRoom() {
	if f := d.awaits.then; f != nil && d.buffered() <= d.awaits.left {
		d.awaits.then = nil
		d.loop.Defer(f)
	}
}

// send sends as much of b as the kernel takes.
func (d *descriptor) send(b []byte) (n int, _ syscall.Errno) {
	for {
		n, errno := kernel.Send(d.fd, b)
		switch errno {
		case 0:
			return n, 0
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return 0, 0
		}
		return 0, errno
	}
}

// sendParts sends as much of parts as the kernel takes, and returns the rest.
func (d *descriptor) sendParts(parts [][]byte) (rest [][]byte, _ syscall.Errno) {
	for {
		for len(parts) > 0 && len(parts[0]) == 0 {
			parts = parts[1:]
		}
		if len(parts) == 0 {
			return nil, 0
		}
		n, errno := kernel.SendParts(d.fd, parts)
		switch {
		case errno == unix.EAGAIN:
			return parts, 0
		case errno == unix.EINTR:
			continue
		case errno != 0:
			return nil, errno
		}
		for n > 0 {
			k := min(n, len(parts[0]))
			if parts[0] = parts[0][k:]; len(parts[0]) == 0 {
				parts = parts[1:]
			}
			n -= k
		}
	}
}

// shutdown ends the output. It fails if the peer has closed the connection.
func (d *descriptor) shutdown() error { return unix.Shutdown(d.fd, unix.SHUT_WR) }

// close closes the socket: with a reset if output is left, since a truncated response must not look
// complete. Unix sockets have no reset.
func (d *descriptor) close() {
	if d.fd < 0 {
		return
	}
	if left := d.buffered(); left > 0 {
		_ = unix.SetsockoptLinger(d.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		d.out.remove(d.loop, left)
	}
	d.loop.setWatcher(d.fd, nil)
	_ = unix.Close(d.fd)
	d.fd = -1
}

// leave takes the socket, which has no output left, off the loop. On an error it is still there.
func (d *descriptor) leave() (rawConn, error) {
	nc, err := kernel.Conn(d.fd)
	if err != nil {
		return nil, err
	}
	raw, ok := nc.(rawConn)
	if !ok {
		err = fmt.Errorf("a %T", nc)
	} else {
		err = d.loop.poller.Remove(d.fd) // it would watch the socket for as long as nc is open
	}
	if err != nil {
		_ = nc.Close()
		return nil, err
	}
	d.close()
	return raw, nil
}

// takeFrom makes the socket of nc, which it closes, d's.
func (d *descriptor) takeFrom(nc net.Conn) error {
	defer nc.Close()
	from, ok := nc.(syscall.Conn)
	if !ok {
		return fmt.Errorf("a %T", nc)
	}
	var err error
	_, d.unix = nc.(*net.UnixConn)
	d.fd, err = kernel.Duplicate(from)
	return err
}
