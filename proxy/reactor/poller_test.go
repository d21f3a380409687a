package reactor

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/syncbuffer"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/engine"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// failingPoller is a Poller whose calls may fail. Only its loop may access the fields.
type failingPoller struct {
	kernel.Poller
	add, change, remove error
	changes             []kernel.Events // arguments of Change
}

func (p *failingPoller) Add(fd int, e kernel.Events) error {
	if p.add != nil {
		return p.add
	}
	return p.Poller.Add(fd, e)
}

func (p *failingPoller) Change(fd int, e kernel.Events) error {
	if p.changes = append(p.changes, e); p.change != nil {
		return p.change
	}
	return p.Poller.Change(fd, e)
}

func (p *failingPoller) Remove(fd int) error {
	if p.remove != nil {
		return p.remove
	}
	return p.Poller.Remove(fd)
}

// startFailing starts a reactor with one loop, whose Poller may fail.
func startFailing(t *testing.T, o Options) (*Reactor, *eventLoop, *failingPoller) {
	t.Helper()
	of := environmentEngine()
	o.Engine = engine.Kind{Name: of.Name, Open: func() (kernel.Poller, error) {
		poller, err := of.Open()
		return &failingPoller{Poller: poller}, err
	}}
	e := start(t, o)
	return e, e.loops[0], e.loops[0].poller.(*failingPoller)
}

// errPoller is the error of a failingPoller.
var errPoller = unix.ENOSPC

// ends checks that the peer of nc has closed or reset the connection, after no bytes.
func ends(t *testing.T, nc net.Conn) {
	t.Helper()
	if got, err := io.ReadAll(nc); len(got) > 0 || err != nil && !isReset(err) {
		t.Errorf("read %q, %v", got, err)
	}
}

// TestAcceptFails: a loop that can't watch a listening socket tries again later, and closes connections that it can't watch.
func TestAcceptFails(t *testing.T) {
	own := NewIdentity(t)
	for name, o := range map[string]ListenOptions{"plain": {}, "TLS": {TLS: own.Server}} {
		t.Run(name, func(t *testing.T) {
			e, l, p := startFailing(t, Options{})
			hello := func(nc net.Conn) {
				if o.TLS != nil {
					nc = tls.Client(nc, own.Client())
				}
				ask(t, nc, "hello")
			}
			on(t, l, func() { p.add = errPoller })
			release := holdLoop(l) // the loop looks at the acceptor in the turn that starts it, before another try
			ln := listenEcho(t, e, o)
			a := ln.acceptors[0]
			looked := make(chan struct{})
			l.Post(func() {
				defer close(looked)
				if n := e.Stats().AcceptErrors; n != 1 || a.watched || !a.timer.Armed() || a.backoff != 2*kernel.MinBackoff {
					t.Errorf("%d errors; watched %t, armed %t, the next pause is %s", n, a.watched, a.timer.Armed(), a.backoff)
				}
				p.add = nil
			})
			close(release)
			recv(t, looked, "the first try")
			addr := ln.Addr().String()
			first := dial(t, addr)
			hello(first)
			on(t, l, func() {
				if p.add = errPoller; a.backoff != kernel.MinBackoff {
					t.Errorf("after a connection the next pause is %s", a.backoff)
				}
			})
			before := e.Stats().AcceptErrors
			ends(t, dial(t, addr))
			on(t, l, func() { p.add = nil })
			if s := e.Stats(); s.AcceptErrors != before+1 || s.Accepted != 2 || s.Inbound != 1 || s.Open != 1 || l.load.Load() != 1 {
				t.Errorf("%+v, load %d", s, l.load.Load())
			}
			if o.TLS != nil && ln.newcomers.Taken() > 0 {
				t.Errorf("%d newcomers", ln.newcomers.Taken())
			}
			hello(dial(t, addr))
		})
	}
}

// TestBackoffDoubles: the pause after failed accepts doubles up to a limit. The first failure of a row is logged.
func TestBackoffDoubles(t *testing.T) {
	var log syncbuffer.Buffer
	e, l, p := startFailing(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	a := listenEcho(t, e, ListenOptions{}).acceptors[0]
	on(t, l, func() {
		p.add = errPoller
		a.stop()
		want := kernel.MinBackoff
		for n := range int64(12) {
			if a.backoff != want {
				t.Errorf("after %d failures the pause is %s, want %s", n, a.backoff, want)
			}
			a.start()
			if want = min(2*want, kernel.MaxBackoff); e.Stats().AcceptErrors != n+1 || !a.timer.Armed() {
				t.Errorf("%d errors, armed %t", e.Stats().AcceptErrors, a.timer.Armed())
			}
			if got := strings.Count(log.String(), "accept failed"); got != 1 {
				t.Errorf("after %d failures %d are logged", n+1, got)
			}
		}
		p.add = nil
	})
}

// TestDialFails: a dial whose socket the loop can't watch fails, and leaves nothing.
func TestDialFails(t *testing.T) {
	for name, fail := range map[string]func(p *failingPoller, err error){
		"before": func(p *failingPoller, err error) { p.add = err }, "afterwards": func(p *failingPoller, err error) { p.change = err },
	} {
		t.Run(name, func(t *testing.T) {
			e, l, p := startFailing(t, Options{})
			addr := must.Listen(t).Addr().String()
			for _, addr := range []string{addr, unixListener(t)} {
				if name == "afterwards" && addr[0] == 'u' {
					continue // connected elsewhere
				}
				closed := make(chan error, 1)
				on(t, l, func() {
					fail(p, errPoller)
					l.Dial(addr, waitLimit, &stream{open: func(loop.Conn) { t.Error("OnOpen") }, close: func(err error) { closed <- err }})
				})
				if err := recv(t, closed, "OnClose"); err != errPoller {
					t.Errorf("%s: OnClose(%v)", addr, err)
				}
			}
			on(t, l, func() { fail(p, nil) })
			if s := e.Stats(); s.DialErrors < 1 || s.Dialled != 0 || s.Open != 0 || l.load.Load() != 0 || e.connections.dialled.Load() != 0 {
				t.Errorf("%+v, load %d, %d dialled", s, l.load.Load(), e.connections.dialled.Load())
			}
		})
	}
}

// unixListener returns the address of a Unix socket that nobody accepts at.
func unixListener(t *testing.T) string {
	t.Helper()
	addr := unixAddrs(t)[0]
	ln := must.ListenOn(t, "unix", addr[len("unix:"):])
	t.Cleanup(func() { ln.Close() })
	return addr
}

// TestWatchFails: a connection that can't wait for room, or for the rest of its input, ends with the error.
func TestWatchFails(t *testing.T) {
	large := make([]byte, 32<<20) // more than the kernel takes
	for _, c := range []struct {
		name string
		want error
		do   func(p *failingPoller, c *conn, peer net.Conn)
	}{
		{"output", unix.ENOMEM, func(p *failingPoller, c *conn, _ net.Conn) {
			p.change = errPoller
			c.Write(large)
			c.Write([]byte("more"))
			if c.state != connClosed {
				t.Error("it is open")
			}
		}},
		{"parts of output", unix.ENOMEM, func(p *failingPoller, c *conn, _ net.Conn) {
			p.change = errPoller
			c.WriteParts([][]byte{large, []byte("more")})
			c.WriteParts([][]byte{[]byte("more")})
			if c.state != connClosed {
				t.Error("it is open")
			}
		}},
		{"after output", unix.ENOMEM, func(p *failingPoller, c *conn, peer net.Conn) {
			c.Write(large)
			p.change = errPoller
			go func() { _, _ = io.Copy(io.Discard, peer) }()
		}},
		{"after a part of the input", errPoller, func(p *failingPoller, c *conn, peer net.Conn) {
			p.change = errPoller
			c.loop.input = c.loop.input[:1]
			must.Write(t, peer, "input of several reads")
		}},
		{"drain", nil, func(p *failingPoller, c *conn, _ net.Conn) {
			c.Write(large)
			p.change = errPoller
			c.Drain()
			c.state = connDraining
			if errno := c.onWritable(); errno != 0 {
				t.Error(errno)
			}
			c.endBroken(errPoller)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, l, p := startFailing(t, Options{})
			closed := make(chan error, 2)
			conn, peer := accepted(t, e, &stream{close: func(err error) { closed <- err }})
			on(t, l, func() { c.do(p, conn, peer) })
			if err := recv(t, closed, "OnClose"); err != c.want {
				t.Errorf("OnClose(%v), want %v", err, c.want)
			}
			on(t, l, func() {})
			if s := e.Stats(); s.Open != 0 || s.Inbound != 0 || len(closed) > 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestWatchedEvents: a connection is watched for room only while it has output.
func TestWatchedEvents(t *testing.T) {
	e, l, p := startFailing(t, Options{})
	c, peer := accepted(t, e, &stream{})
	on(t, l, func() {
		p.changes = nil
		c.Write(make([]byte, 32<<20))
		if want := []kernel.Events{kernel.Input | kernel.Output}; !slices.Equal(p.changes, want) {
			t.Errorf("with output, watched for %b", p.changes)
		}
	})
	go func() { _, _ = io.Copy(io.Discard, peer) }()
	eventually(t, func() (err error) {
		on(t, l, func() {
			if last := len(p.changes) - 1; c.Buffered() > 0 || p.changes[last] != kernel.Input {
				err = errors.New("watched for room")
			} else if last != 1 {
				t.Errorf("watched for %b", p.changes)
			}
		})
		return err
	})
	on(t, l, func() {
		p.changes = nil
		if errno := c.keep([]byte("x")); errno != 0 || !slices.Equal(p.changes, []kernel.Events{kernel.Input | kernel.Output}) {
			t.Errorf("with one byte of output, watched for %b, %v", p.changes, errno)
		}
	})
}

// TestHandshakeWatches: a connection whose handshake goes well, and that has no input after it, is watched once.
func TestHandshakeWatches(t *testing.T) {
	own := NewIdentity(t)
	e, l, p := startFailing(t, Options{})
	opened := make(chan struct{})
	addr := listen(t, e, ListenOptions{TLS: own.Server}, func() loop.Receiver {
		return &stream{open: func(loop.Conn) { close(opened) }}
	})
	if err := tls.Client(dial(t, addr), own.Client()).Handshake(); err != nil {
		t.Fatal(err)
	}
	recv(t, opened, "the connection")
	on(t, l, func() {
		if len(p.changes) > 0 {
			t.Errorf("the events of interest change: %b", p.changes)
		}
	})
}

// TestEndAfterReset: Close and Drain of a connection whose peer has reset it are no failure, although close_notify finds the reset, or
// output that is left can't be sent.
func TestEndAfterReset(t *testing.T) {
	own := NewIdentity(t)
	for name, end := range map[string]func(p *failingPoller, c loop.Conn){
		"Close":                      func(_ *failingPoller, c loop.Conn) { c.Close() },
		"Close, and nothing is kept": func(p *failingPoller, c loop.Conn) { p.change = errPoller; c.Close() },
		"Drain":                      func(_ *failingPoller, c loop.Conn) { c.Drain() },
		"Drain, and nothing is kept": func(p *failingPoller, c loop.Conn) { p.change = errPoller; c.Drain() },
		"Drain after a write":        func(_ *failingPoller, c loop.Conn) { c.Write([]byte("x")); c.Drain() },
	} {
		for _, o := range []ListenOptions{{}, {TLS: own.Server}} {
			t.Run(fmt.Sprintf("%s, TLS %t", name, o.TLS != nil), func(t *testing.T) {
				e, l, p := startFailing(t, Options{})
				conns, closed := make(chan *conn, 1), make(chan error, 2)
				raw := dial(t, listen(t, e, o, func() loop.Receiver {
					return &stream{open: func(c loop.Conn) { conns <- c.(*conn) }, close: func(err error) { closed <- err }}
				}))
				if o.TLS != nil {
					if err := tls.Client(raw, own.Client()).Handshake(); err != nil {
						t.Fatal(err)
					}
				}
				c := recv(t, conns, "the connection")
				on(t, l, func() {
					reset(t, raw, c.fd)
					end(p, c)
					p.change = nil
				})
				if err := recv(t, closed, "OnClose"); err != nil {
					t.Errorf("OnClose(%v)", err)
				}
				on(t, l, func() {})
				if len(closed) > 0 || e.Stats().Panics > 0 {
					t.Errorf("%d more calls of OnClose, %d panics", len(closed), e.Stats().Panics)
				}
			})
		}
	}
}

// TestFailedWriteOfTLS: a write that finds a reset, and whose loop can't watch for the rest of the input, ends a connection with TLS once.
func TestFailedWriteOfTLS(t *testing.T) {
	own := NewIdentity(t)
	for _, size := range []int{1, maxRecord + 1} {
		e, l, p := startFailing(t, Options{})
		conns, closed := make(chan *conn, 1), make(chan error, 2)
		raw := dial(t, listen(t, e, ListenOptions{TLS: own.Server}, func() loop.Receiver {
			return &stream{open: func(c loop.Conn) { conns <- c.(*conn) }, close: func(err error) { closed <- err }}
		}))
		if err := tls.Client(raw, own.Client()).Handshake(); err != nil {
			t.Fatal(err)
		}
		c := recv(t, conns, "the connection")
		on(t, l, func() {
			reset(t, raw, c.fd)
			p.change = errPoller
			c.Write(make([]byte, size))
			p.change = nil
		})
		if err := recv(t, closed, "OnClose"); err != unix.ECONNRESET {
			t.Errorf("%d bytes: OnClose(%v)", size, err)
		}
		on(t, l, func() {})
		if len(closed) > 0 || e.Stats().Panics > 0 {
			t.Errorf("%d bytes: %d more calls of OnClose, %d panics", size, len(closed), e.Stats().Panics)
		}
	}
}

// TestDetachFails: a connection that can't leave its loop stays, and works.
func TestDetachFails(t *testing.T) {
	e, l, p := startFailing(t, Options{})
	s := echo().(*stream)
	c, peer := accepted(t, e, s)
	before := openFiles()
	on(t, l, func() {
		p.remove = errPoller
		if sock, err := c.Detach(); sock != nil || !errors.Is(err, errPoller) {
			t.Errorf("%v, %v", sock, err)
		}
		p.remove = nil
	})
	if n := openFiles(); n > before {
		t.Errorf("%d descriptors are open, %d before", n, before)
	}
	ask(t, peer, "still here")
	if st := e.Stats(); st.Detached != 0 || st.Open != 1 || st.Inbound != 1 {
		t.Errorf("%+v", st)
	}
}

// TestMoveFails: a connection that can't leave its loop does not move.
func TestMoveFails(t *testing.T) {
	other := start(t, Options{}).loops[0]
	e, l, p := startFailing(t, Options{})
	addr, opened := movers(t, e, ListenOptions{}, nil)
	peer := dial(t, addr)
	ask(t, peer, "before")
	on(t, l, func() {
		l.conns[0].listener.loops = append(slices.Clone(l.conns[0].listener.loops), other)
		p.remove = errPoller
	})
	holdMovesOf(t, l, 1, 1, other)
	ask(t, peer, "after")
	on(t, l, func() {
		l.conns[0].listener.loops = e.loops
		p.remove = nil
		if l.stats.Moved != 0 || l.moving.left != 1 || opened[0].Load() != 1 {
			t.Errorf("%d have moved, %d may", l.stats.Moved, l.moving.left)
		}
	})
}

// TestNewcomerFails: what goes wrong before a connection has its TLS ends it at once, with one failure.
func TestNewcomerFails(t *testing.T) {
	own := NewIdentity(t)
	for _, c := range []struct {
		name string
		held bool // the client's last flight comes with input of many reads
		code string
		// All are called on the loop, with the newcomer: first before the ClientHello, within at the begin of the handshake, and
		// verify once the client has sent its certificate.
		first, within, verify func(p *failingPoller, l *eventLoop, n *newcomer, client net.Conn)
	}{
		{name: "the rest of the ClientHello can't be awaited", code: CodeFailed, first: func(p *failingPoller, l *eventLoop, _ *newcomer, _ net.Conn) {
			p.change = errPoller
			l.input = l.input[:1]
		}},
		{name: "gone before the first flight", code: CodeFailed, within: func(_ *failingPoller, _ *eventLoop, n *newcomer, client net.Conn) {
			reset(t, client, n.fd)
		}},
		{name: "out of time before the first flight", code: CodeTimeout, within: func(_ *failingPoller, _ *eventLoop, n *newcomer, _ net.Conn) {
			n.onTimeout()
			n.onTimeout()
			n.onBusy()
			n.onEvicted()
		}},
		{name: "gone before the last flight", code: CodeFailed, verify: func(_ *failingPoller, _ *eventLoop, n *newcomer, client net.Conn) {
			reset(t, client, n.fd)
		}},
		{name: "gone with output", code: CodeFailed, verify: func(_ *failingPoller, _ *eventLoop, n *newcomer, client net.Conn) {
			if errno := n.write(make([]byte, 32<<20)); errno != 0 || n.buffered() == 0 {
				t.Errorf("%d bytes are left, %v", n.buffered(), errno)
			}
			reset(t, client, n.fd)
		}},
		{name: "the rest of the input can't be awaited", held: true, verify: func(p *failingPoller, _ *eventLoop, _ *newcomer, _ net.Conn) {
			p.change = errPoller
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, l, p := startFailing(t, Options{})
			e.wait = waitLimit
			var client atomic.Pointer[net.TCPConn]
			call := func(f func(p *failingPoller, l *eventLoop, n *newcomer, client net.Conn)) {
				if f != nil {
					on(t, l, func() {
						for n := range l.newcomers {
							f(p, l, n, client.Load())
						}
					})
				}
			}
			config := func() *tls.Config {
				call(c.within)
				config := own.Server().Clone()
				config.VerifyConnection = func(tls.ConnectionState) error { call(c.verify); return nil }
				config.SessionTicketsDisabled = false // the last flight has a ticket
				return config
			}
			closed := make(chan error, 1)
			ln, err := e.Listen("127.0.0.1:0", ListenOptions{TLS: config}, func(loop.Loop, string) loop.Receiver {
				return &stream{close: func(err error) { closed <- err }}
			})
			if err != nil {
				t.Fatal(err)
			}
			raw := dial(t, ln.Addr().String())
			client.Store(raw)
			awaitNewcomers(t, ln, 1)
			call(c.first)
			if c.held {
				held := &delayedWrites{TCPConn: raw}
				nc := tls.Client(held, own.Client())
				if err := nc.Handshake(); err != nil {
					t.Fatal(err)
				}
				must.Write(t, nc, string(make([]byte, 100<<10)))
				on(t, l, func() { l.input = l.input[:1<<10] })
				held.release(t)
				if err := recv(t, closed, "OnClose"); err != unix.ENOMEM {
					t.Errorf("OnClose(%v)", err)
				}
			} else {
				config := own.Client().Clone()
				config.SessionTicketsDisabled, config.ClientSessionCache = false, tls.NewLRUClientSessionCache(1)
				nc := tls.Client(raw, config)
				_ = nc.Handshake()
				awaitFailure(t, e, c.code, 1)
				eventually(t, func() error { // its goroutine then waits for another one
					if e.waiting.Load() == 0 && c.first == nil {
						return errors.New("the goroutine of the handshake has not ended")
					}
					return nil
				})
				_, _ = io.Copy(io.Discard, nc)
			}
			on(t, l, func() { p.change = nil })
			sum := int64(0)
			for _, n := range e.Stats().TLSFailures {
				sum += n
			}
			want := int64(1)
			if c.held {
				want = 0
			}
			if s := e.Stats(); sum != want || s.Open != 0 || s.Inbound != 0 || s.Panics != 0 || s.AcceptErrors != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// reset resets a connection, and waits until fd, its other end, has seen that.
func reset(t *testing.T, client net.Conn, fd int) {
	_ = client.(*net.TCPConn).SetLinger(0)
	_ = client.Close()
	eventually(t, func() error {
		if !kernel.Gone(fd) {
			return errors.New("the reset has not come")
		}
		return nil
	})
}

// TestDeliverFails: a connection that a loop can't take over counts as a failed accept, and leaves nothing.
func TestDeliverFails(t *testing.T) {
	e := start(t, Options{})
	l := listenEcho(t, e, ListenOptions{})
	closed := dial(t, l.Addr().String())
	ask(t, closed, "hello")
	closed.Close()
	noSocket, far := net.Pipe()
	for i, nc := range []net.Conn{closed, noSocket} {
		at, ok := e.connections.reserve(l.countedSource(-1, netip.MustParseAddr("10.0.0.9")), &l.limit, connFiles)
		if !ok {
			t.Fatal("refused")
		}
		l.assign(nc, at, nc.RemoteAddr())
		e.wantReserved(t, 0, 0)
		on(t, e.loops[0], func() {
			if s := e.Stats(); s.AcceptErrors != int64(i+1) || s.Open != 0 || s.Inbound != 0 || e.loops[0].load.Load() != 0 || s.Panics > 0 {
				t.Errorf("%+v, load %d", s, e.loops[0].load.Load())
			}
		})
	}
	ends(t, far)
}

// TestFirstInput: one byte of a peer is input.
func TestFirstInput(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	go func() { _, _ = far.Write([]byte("x")) }()
	w := &wire{nc: near}
	if n, err := w.Read(make([]byte, 2)); n != 1 || err != nil || !w.gotInput {
		t.Errorf("%d bytes, %v, input: %t", n, err, w.gotInput)
	}
}
