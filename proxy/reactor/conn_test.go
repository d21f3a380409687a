package reactor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// accepted opens one connection and returns its ends.
func accepted(t *testing.T, e *Reactor, s *stream) (*conn, *net.TCPConn) {
	t.Helper()
	got := make(chan *conn, 1)
	open := s.open
	s.open = func(c loop.Conn) {
		if open != nil {
			open(c)
		}
		got <- c.(*conn)
	}
	addr := listen(t, e, ListenOptions{}, func() loop.Receiver { return s })
	peer := dial(t, addr)
	return recv(t, got, "the connection"), peer
}

// TestFailedWriteNotReentrant: OnClose is called after the callback in which a write fails.
func TestFailedWriteNotReentrant(t *testing.T) {
	for _, size := range []int{1, 64 << 10, 64<<10 + 1, 1 << 20} {
		failedWrite(t, size)
	}
}

func failedWrite(t *testing.T, size int) {
	e := start(t, Options{})
	var c loop.Conn
	inside := false
	closed := make(chan error, 1)
	hold := make(chan struct{})
	s := &stream{}
	s.data = func([]byte) {
		<-hold
		inside = true
		for range 10 {
			c.Write(make([]byte, size))
		}
		inside = false
		if c.(*conn).err == nil {
			t.Error("no write failed: the test proves nothing")
		}
	}
	s.close = func(err error) {
		if inside {
			t.Error("OnClose within OnData")
		}
		closed <- err
	}
	s.open = func(oc loop.Conn) { c = oc }
	conn, peer := accepted(t, e, s)
	must.Write(t, peer, "x")
	peer.SetLinger(0)
	peer.Close()
	eventually(t, func() error {
		info, err := kernel.TCPCounters(conn.fd)
		if err != nil || info.Closed {
			return err
		}
		return errors.New("the reset has not come")
	})
	close(hold)
	if err := recv(t, closed, "OnClose"); err != syscall.ECONNRESET {
		t.Errorf("OnClose(%v), want %v", err, syscall.ECONNRESET)
	}
}

// TestFailedWriteAfterInput: what a peer had sent before it reset the connection is read, although a write finds the
// reset first. Until then the connection has output left, so nobody takes it for one that can be used again.
func TestFailedWriteAfterInput(t *testing.T) {
	for name, write := range map[string]func(c loop.Conn){
		"Write":      func(c loop.Conn) { c.Write([]byte("x")) },
		"WriteParts": func(c loop.Conn) { c.WriteParts([][]byte{[]byte("x"), []byte("y")}) },
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, Options{})
			got := ""
			closed := make(chan error, 1)
			s := &stream{data: func(b []byte) { got += string(b) }, close: func(err error) { closed <- err }}
			c, peer := accepted(t, e, s)
			on(t, e.loops[0], func() {
				must.Write(t, peer, "response")
				peer.SetLinger(0)
				peer.Close()
				eventually(t, func() error {
					if !kernel.Gone(c.fd) {
						return errors.New("the reset has not come")
					}
					return nil
				})
				write(c)
				write(c)
				if got != "" || c.Buffered() == 0 {
					t.Errorf("within the write: read %q, %d bytes are left to send", got, c.Buffered())
				}
			})
			if err := recv(t, closed, "OnClose"); err != syscall.ECONNRESET {
				t.Errorf("OnClose(%v), want %v", err, syscall.ECONNRESET)
			}
			if got != "response" {
				t.Errorf("read %q", got)
			}
		})
	}
}

// TestFailedWriteEndsWithInput: after a write that failed, an event of input alone ends a connection whose input has ended.
func TestFailedWriteEndsWithInput(t *testing.T) {
	e := start(t, Options{})
	closed := make(chan error, 1)
	c, peer := accepted(t, e, &stream{close: func(err error) { closed <- err }})
	on(t, e.loops[0], func() {
		reset(t, peer, c.fd)
		c.Write([]byte("x"))
		if c.state != connOpen {
			t.Errorf("within the write the state is %d", c.state)
		}
		if c.onEvents(kernel.Input); c.state != connClosed {
			t.Errorf("after the event the state is %d", c.state)
		}
	})
	if err := recv(t, closed, "OnClose"); err != syscall.ECONNRESET {
		t.Errorf("OnClose(%v), want %v", err, syscall.ECONNRESET)
	}
}

// TestClosedConnWritesNothing: another connection may have the descriptor of a closed one.
func TestClosedConnWritesNothing(t *testing.T) {
	e := start(t, Options{})
	l := e.loops[0]
	conns := make(chan *conn, 8)
	addr := listen(t, e, ListenOptions{}, func() loop.Receiver {
		return &stream{open: func(c loop.Conn) { conns <- c.(*conn) }}
	})
	// Several, since a new connection takes a descriptor for its peer too.
	stale := map[int]*conn{}
	for range 8 {
		dial(t, addr)
		c := recv(t, conns, "a connection")
		on(t, l, func() { stale[c.fd] = c })
	}
	var late loop.Flush
	late.Do = func() {
		for _, old := range stale {
			old.Write([]byte("of another"))
		}
	}
	on(t, l, func() {
		for _, old := range stale {
			old.Close()
		}
		late.Do()
		l.Defer(&late)
	})
	reused := 0
	for range 8 {
		peer := dial(t, addr)
		c := recv(t, conns, "another connection")
		on(t, l, func() {
			if old := stale[c.fd]; old != nil {
				reused++
				old.Drain()
				old.Close()
			}
			late.Do()
			l.Defer(&late)
		})
		on(t, l, func() { c.Write([]byte("mine")); c.Drain() })
		if got, err := io.ReadAll(peer); string(got) != "mine" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if reused == 0 {
		t.Error("no descriptor was reused: the test proves nothing")
	}
	if n := e.Stats().Panics; n > 0 {
		t.Errorf("%d panics", n)
	}
}

// TestCauses: OnClose of a failed dial receives the cause.
func TestCauses(t *testing.T) {
	cases := []struct {
		name, addr string
		timeout    time.Duration
		want       string
	}{
		{"refused", refusingAddr(t), waitLimit, "connection refused"},
		{"timed out", blackhole(t), time.Millisecond, "connection timed out"},
		{"no time", blackhole(t), -1, "connection timed out"},
		{"no address", "127.0.0.1", waitLimit, "address 127.0.0.1: missing port in address"},
	}
	e := start(t, Options{})
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			closed := make(chan error, 1)
			var dialled *conn
			on(t, e.loops[0], func() {
				s := &stream{open: func(loop.Conn) { t.Error("OnOpen") }}
				s.close = func(err error) {
					if dialled.dial.timer.Armed() {
						t.Error("the timer of the dial is armed")
					}
					closed <- err
				}
				e.loops[0].Dial(tc.addr, tc.timeout, s)
				if conns := e.loops[0].conns; len(conns) > 0 {
					dialled = conns[0]
				} else { // it has failed
					dialled = e.loops[0].closed[0]
				}
			})
			var op *net.OpError
			err := recv(t, closed, "OnClose")
			if errors.As(err, &op) {
				err = op.Err
			}
			if err == nil || err.Error() != tc.want {
				t.Errorf("OnClose(%v), want %q", err, tc.want)
			}
		})
	}
	if s := e.Stats(); s.DialErrors != int64(len(cases)) || s.Open != 0 {
		t.Errorf("stats %+v", s)
	}
}

// TestCauseOf: the error of a dial is what the system says, in the same form for all ways to dial.
func TestCauseOf(t *testing.T) {
	other, dns := errors.New("another"), &net.DNSError{Err: "no such host"}
	for _, c := range []struct{ err, want error }{
		{fmt.Errorf("read: %w", io.EOF), io.EOF},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, syscall.ECONNREFUSED},
		{fmt.Errorf("handshake: %w", context.DeadlineExceeded), syscall.ETIMEDOUT},
		{os.ErrDeadlineExceeded, syscall.ETIMEDOUT},
		{dns, dns},
		{other, other},
	} {
		if got := cause(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

// TestPanics: a panic in any callback is counted and closes its connection, if it has
// one, with ErrPanic. The loop keeps running.
func TestPanics(t *testing.T) {
	e := start(t, Options{})
	l := e.loops[0]
	boom := func() { panic("boom") }
	closed := make(chan error, 1)
	s := &stream{close: func(err error) { closed <- err }}
	streams := map[string]*stream{
		"open":  {open: func(loop.Conn) { boom() }, close: s.close},
		"data":  {data: func([]byte) { boom() }, close: s.close},
		"close": {open: func(c loop.Conn) { c.Close() }, close: func(err error) { closed <- ErrPanic; boom() }},
		"twice": {data: func([]byte) { boom() }, close: func(err error) { closed <- err; boom() }},
	}
	want := int64(0)
	for name, s := range streams {
		peer := dial(t, listen(t, e, ListenOptions{}, func() loop.Receiver { return s }))
		_, _ = peer.Write([]byte("x"))
		if err := recv(t, closed, name+": OnClose"); err != ErrPanic {
			t.Errorf("%s: OnClose(%v)", name, err)
		}
		if want++; name == "twice" {
			want++
		}
	}
	peer := dial(t, listen(t, e, ListenOptions{}, func() loop.Receiver { boom(); return nil }))
	if _, err := io.Copy(io.Discard, peer); err != nil && !isReset(err) {
		t.Error(err)
	}
	fired := make(chan struct{}, 1)
	on(t, l, func() {
		l.After(0, &loop.Timer{Fire: boom})
		l.Defer(&loop.Flush{Do: boom})
		l.Post(boom)
		l.After(time.Millisecond, &loop.Timer{Fire: func() { fired <- struct{}{} }})
	})
	recv(t, fired, "a timer after the panics")
	want += 4
	on(t, l, func() {
		if s := e.Stats(); s.Panics != want || s.Open != 0 || s.Inbound != 0 {
			t.Errorf("stats %+v, want %d panics", s, want)
		}
	})
}

// TestDialTimeoutAfterConnect: a socket that arrives on the loop after its dial has timed
// out is closed, and OnClose is called once.
func TestDialTimeoutAfterConnect(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			e := start(t, Options{})
			l := e.loops[0]
			addr, prefix := "127.0.0.1:0", ""
			if network == "unix" {
				addr, prefix = unixAddrs(t)[0][len("unix:"):], "unix:"
			}
			ln := must.ListenOn(t, network, addr)
			peers := make(chan net.Conn, 1)
			go func() {
				if c, err := ln.Accept(); err == nil {
					peers <- c
				}
			}()
			closed := make(chan error, 2)
			on(t, l, func() {
				l.Dial(prefix+ln.Addr().String(), waitLimit, &stream{
					open:  func(loop.Conn) { t.Error("OnOpen") },
					close: func(err error) { closed <- err },
				})
				c := l.conns[0]
				peer := recv(t, peers, "the connection")
				t.Cleanup(func() { peer.Close() })
				eventually(t, func() error {
					if network == "unix" && !l.posts.some.Load() {
						return errors.New("the dialer has not ended")
					}
					return nil
				})
				c.dial.onTimeout() // the socket is connected, and the loop is busy
				go func() {
					_ = peer.SetReadDeadline(time.Now().Add(waitLimit))
					_, err := peer.Read(make([]byte, 1))
					closed <- err
				}()
			})
			got := []error{recv(t, closed, "OnClose"), recv(t, closed, "the end of the socket")}
			if !slices.Contains(got, error(syscall.ETIMEDOUT)) || !slices.Contains(got, io.EOF) {
				t.Errorf("OnClose and the peer's end: %v", got)
			}
			for e.dialer.busy() > 0 {
				on(t, l, func() {})
			}
			if e.dialer.waiting != nil {
				t.Error("the empty queue of dials keeps its memory")
			}
			on(t, l, func() {})
			if s := e.Stats(); s.Open != 0 || s.Dialled != 0 || s.DialErrors != 1 || l.load.Load() != 0 || e.connections.dialled.Load() != 0 || len(closed) > 0 {
				t.Errorf("stats %+v, load %d", s, l.load.Load())
			}
		})
	}
}

func (d *dialer) busy() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.active
}

// TestLongInput: an event takes at most maxReads reads, and the rest is read in the next turns although
// the peer sends no more.
func TestLongInput(t *testing.T) {
	const read, sent = 1 << 10, 10*maxReads<<10 + 100
	e := start(t, Options{})
	l := e.loops[0]
	on(t, l, func() { l.input = l.input[:read] })
	got := make(chan int, sent)
	c, peer := accepted(t, e, &stream{data: func(b []byte) { got <- len(b) }})
	release := holdLoop(l)
	must.Write(t, peer, make([]byte, sent))
	eventually(t, func() error {
		if n, err := kernel.Unread(c.fd); err != nil || n < sent {
			return fmt.Errorf("%d of %d bytes have arrived (%v)", n, sent, err)
		}
		return nil
	})
	before := l.stats.Events
	close(release)
	for n := 0; n < sent; {
		n += recv(t, got, "the rest of the input")
	}
	on(t, l, func() {
		if events, want := l.stats.Events-before, uint64(sent/read/maxReads+1); events != want {
			t.Errorf("%d events, want %d", events, want)
		}
	})
}

// TestUrgentData: a read that stops at urgent data is not the last one.
func TestUrgentData(t *testing.T) {
	e := start(t, Options{})
	got := make(chan string, 10)
	_, peer := accepted(t, e, &stream{data: func(b []byte) { got <- string(b) }})
	release := holdLoop(e.loops[0])
	raw, err := peer.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		_, first := unix.Write(int(fd), []byte("abc"))
		urgent := unix.Sendto(int(fd), []byte("U"), unix.MSG_OOB, nil)
		_, last := unix.Write(int(fd), []byte("def"))
		failed = errors.Join(first, urgent, last)
	})
	if err = errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		return errors.Join(raw.Control(func(fd uintptr) {
			n, err := kernel.Unacknowledged(int(fd))
			if failed = err; n > 0 {
				failed = fmt.Errorf("%d bytes are on their way", n)
			}
		}), failed)
	})
	close(release)
	for all := ""; all != "abcdef"; all += recv(t, got, "the rest of the input") {
	}
}

// holdLoop stops l until the channel is closed.
func holdLoop(l loop.Loop) (release chan struct{}) {
	held, release := make(chan struct{}), make(chan struct{})
	l.Post(func() { close(held); <-release })
	<-held
	return release
}

// TestEventOfFormerOwner: an event of the socket that had the descriptor before does not end a dial.
func TestEventOfFormerOwner(t *testing.T) {
	l := start(t, Options{}).loops[0]
	black := blackhole(t)
	on(t, l, func() {
		l.Dial(black, waitLimit, &stream{open: func(loop.Conn) { t.Error("a dial that has not ended is open") }})
		c := l.conns[len(l.conns)-1]
		if c.onEvents(kernel.Output); c.state != connDialing {
			t.Errorf("the state is %d", c.state)
		}
	})
}

// TestEventsOfOneKind: an event for output reads nothing, and an event for input sends nothing.
func TestEventsOfOneKind(t *testing.T) {
	e := start(t, Options{})
	l := e.loops[0]
	got := make(chan string, 1)
	c, peer := accepted(t, e, &stream{data: func(b []byte) { got <- string(b) }})
	on(t, l, func() {
		must.Write(t, peer, "input")
		awaitInput(t, c)
		if c.onEvents(kernel.Output); len(got) > 0 {
			t.Error("an event for output has read")
		}
	})
	if s := recv(t, got, "the input"); s != "input" {
		t.Errorf("read %q", s)
	}
	const size = 32 << 20
	on(t, l, func() {
		c.Write(make([]byte, size))
		left := c.Buffered()
		if left == 0 {
			t.Error("the kernel took all output: the test proves nothing")
		}
		must.Read(t, peer, size-left)
		eventually(t, func() error {
			fds := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLOUT}}
			if n, err := unix.Poll(fds, 0); n == 0 {
				return fmt.Errorf("no room, %v", err)
			}
			return nil
		})
		if c.onEvents(kernel.Input); c.Buffered() != left {
			t.Errorf("an event for input has sent %d bytes", left-c.Buffered())
		}
		go func() { _, _ = io.Copy(io.Discard, peer) }()
	})
	eventually(t, func() (err error) {
		on(t, l, func() {
			if n := c.Buffered(); n > 0 {
				err = fmt.Errorf("%d bytes are left", n)
			}
		})
		return err
	})
}

// TestDescriptor: what is written arrives in order, whatever the kernel takes at once, and room is told of when there is some.
func TestDescriptor(t *testing.T) {
	l := start(t, Options{}).loops[0]
	for name, write := range map[string]func(d *descriptor, b []byte) syscall.Errno{
		"bytes": (*descriptor).write,
		"parts": func(d *descriptor, b []byte) syscall.Errno {
			n := len(b) / 4
			last := len(b) - 1
			return d.writeParts([][]byte{nil, b[:n], b[n : 2*n], nil, b[2*n : last], nil, nil, b[last:]})
		},
	} {
		t.Run(name, func(t *testing.T) {
			ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(ends[1])
			for _, fd := range ends {
				if err := unix.SetNonblock(fd, true); err != nil {
					t.Fatal(err)
				}
			}
			d := &descriptor{loop: l, fd: ends[0]}
			var sent, got []byte
			in := make([]byte, 1<<20)
			receive := func() {
				for {
					n, errno := kernel.Receive(ends[1], in)
					if errno == unix.EAGAIN {
						return
					}
					if errno != 0 || n == 0 {
						t.Fatalf("%d bytes, %v", n, errno)
					}
					got = append(got, in[:n]...)
				}
			}
			put := func(n int) {
				b := make([]byte, n)
				for i := range b {
					b[i] = byte((len(sent) + i) * 7 >> 3)
				}
				sent = append(sent, b...)
				if errno := write(d, b); errno != 0 {
					t.Fatal(errno)
				}
			}
			on(t, l, func() {
				if err := d.watch(ignored{}, kernel.Input); err != nil {
					t.Error(err)
				}
				if put(10); d.buffered() > 0 {
					t.Errorf("%d bytes are left although there is room", d.buffered())
				}
				for d.buffered() == 0 {
					put(100_000)
				}
				left := d.buffered()
				if put(1); d.buffered() != left+1 {
					t.Errorf("%d bytes are left, before %d", d.buffered(), left)
				}
				put(30 * blockSize)
				if errno := d.onWritable(); errno != 0 || d.buffered() < 30*blockSize {
					t.Errorf("without room %d bytes are left, %v", d.buffered(), errno)
				}
				told := &loop.Flush{Do: func() {}}
				d.awaits = awaited{blockSize, told}
				d.checkRoom()
				if d.awaits.then == nil {
					t.Error("told of room too early")
				}
				receive()
				if n, errno := d.sendKept(); errno != 0 || n <= (kernel.MaxParts-1)*blockSize {
					t.Errorf("sent %d bytes, %v", n, errno)
				} else {
					d.out.remove(l, n)
				}
				for d.buffered() > blockSize {
					if errno := d.onWritable(); errno != 0 {
						t.Fatal(errno)
					}
					receive()
				}
				d.checkRoom()
				if d.awaits.then != nil || l.flushes.Empty() {
					t.Error("not told of room")
				}
				receive()
				d.awaits = awaited{d.buffered(), told}
				if d.checkRoom(); d.awaits.then != nil {
					t.Error("not told of room although all was sent")
				}
				if string(got) != string(sent) || d.buffered() > 0 {
					t.Errorf("%d of %d bytes came, or others, and %d are left", len(got), len(sent), d.buffered())
				}
				for _, sends := range []bool{true, false} {
					if errno := d.keep([]byte("x")); errno != 0 || d.buffered() != 1 {
						t.Errorf("%d bytes are left, %v", d.buffered(), errno)
					}
					if !sends {
						break
					}
					if errno := d.onWritable(); errno != 0 || d.buffered() > 0 {
						t.Errorf("of one byte %d are left, %v", d.buffered(), errno)
					}
				}
				receive()
				if len(got) != len(sent)+1 {
					t.Errorf("%d bytes came, want %d", len(got), len(sent)+1)
				}
				blocks := l.blocks.count
				d.close()
				d.close()
				if d.buffered() != 0 || l.blocks.count != blocks+1 {
					t.Errorf("after the close %d bytes are left, and the loop has %d blocks, before %d", d.buffered(), l.blocks.count, blocks)
				}
				if n, errno := kernel.Receive(ends[1], in); n != 0 || errno != 0 || d.fd != -1 {
					t.Errorf("after the close: %d bytes, %v", n, errno)
				}
			})
		})
	}
}

// ignored is a watcher of events that do not matter.
type ignored struct{}

func (ignored) onEvents(kernel.Events) {}
