package reactor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/syncbuffer"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/engine"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
	"github.com/remora-proxy/remora/proxy/reactor/unixsock"
)

// TestStartRefusesLoopsOutOfRange: a reactor has at most MaxLoops loops.
func TestStartRefusesLoopsOutOfRange(t *testing.T) {
	for _, n := range []int{-1, MaxLoops + 1} {
		if _, err := Start(Options{Loops: n}); !errors.Is(err, ErrLoops) {
			t.Errorf("Start with %d loops: %v", n, err)
		}
	}
	if n := len(start(t, Options{Loops: MaxLoops}).Loops()); n != MaxLoops {
		t.Errorf("%d loops, want %d", n, MaxLoops)
	}
}

// TestDefaults: a reactor without options has an engine and loops, and says its limits.
func TestDefaults(t *testing.T) {
	e, err := Start(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	if n := len(e.Loops()); n < 1 || n > MaxLoops {
		t.Errorf("%d loops", n)
	}
	if stall := e.writeStall(); stall != 30*time.Second {
		t.Errorf("a drain may stall for %s", stall)
	}
	ask(t, dial(t, listenEcho(t, e, ListenOptions{}).Addr().String()), "hello")
	p := e.Connections()
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if limit := int64(min(files.Cur, 1<<20)); p.FileLimit() != limit || p.Max() < 1 || p.Max() >= limit {
		t.Errorf("at most %d connections, %d of %d files", p.Max(), p.FileLimit(), limit)
	}
	if taken, most := e.Handshakes(); taken != 0 || most < 1 || p.Accepted() != 1 || p.Files() != 1 || e.Panics().Count() != 0 {
		t.Errorf("%d of %d handshakes, %d connections, %d files, %d panics", taken, most, p.Accepted(), p.Files(), e.Panics().Count())
	}
}

// TestFilesAreDivided: descriptors that the process, its loops and its other servers need are not for connections, each of which
// takes two. A warning says that fewer connections are allowed than configured.
func TestFilesAreDivided(t *testing.T) {
	for _, c := range []struct{ wanted, reserved, warnings int }{{0, 100, 0}, {0, 101, 0}, {10, 0, 0}, {1 << 30, 7, 1}} {
		var log syncbuffer.Buffer
		e := start(t, Options{Loops: 3, MaxConnections: c.wanted, ReservedFiles: c.reserved, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		p := e.Connections()
		most := (p.FileLimit() - 64 - 3*20 - int64(c.reserved)) / 2
		if c.wanted > 0 {
			most = min(most, int64(c.wanted))
		}
		if p.Max() != most || strings.Count(log.String(), "fewer connections than configured") != c.warnings {
			t.Errorf("%+v: at most %d connections, want %d; %s", c, p.Max(), most, log.String())
		}
	}
}

// pollers is a kind of engine that opens so many Pollers, and then fails.
type pollers struct {
	left, open int
}

func (p *pollers) kind() engine.Kind {
	of := environmentEngine()
	return engine.Kind{Name: of.Name, Open: func() (kernel.Poller, error) {
		if p.left--; p.left < 0 {
			return nil, syscall.EMFILE
		}
		poller, err := of.Open()
		p.open++
		return countedPoller{poller, p}, err
	}}
}

type countedPoller struct {
	kernel.Poller
	of *pollers
}

func (c countedPoller) Close() error { c.of.open--; return c.Poller.Close() }

// TestStartFails: a reactor without a Poller for each loop does not start, and leaves none.
func TestStartFails(t *testing.T) {
	for _, left := range []int{0, 2} {
		p := pollers{left: left}
		if e, err := Start(Options{Loops: 3, Engine: p.kind()}); e != nil || !errors.Is(err, syscall.EMFILE) || p.open != 0 {
			t.Errorf("after %d Pollers: %v, %v; %d are open", left, e, err, p.open)
		}
	}
}

// TestServeRefuses: a listener that is no socket is refused, and closed with the others.
func TestServeRefuses(t *testing.T) {
	e := start(t, Options{})
	paths := []string{filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "third")}
	var sockets []net.Listener
	for _, path := range paths {
		ln, err := unixsock.Listen(path, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		ln.Disown() // the file stays, so that a dial finds whether the socket is open
		sockets = append(sockets, ln)
	}
	other := &otherListener{Listener: must.Listen(t)}
	l, err := e.Serve(sockets[0], ListenOptions{Also: []net.Listener{other, sockets[1]}}, nil)
	if l != nil || err == nil || !strings.Contains(err.Error(), "otherListener has no socket") || other.closed != 1 {
		t.Errorf("%v, %v; closed %d times", l, err, other.closed)
	}
	for _, path := range paths {
		if c, err := net.Dial("unix", path); err == nil {
			t.Error("a socket is open")
			c.Close()
		} else if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Error(err)
		}
	}
}

// otherListener is a listener of a type that is not known.
type otherListener struct {
	net.Listener
	closed int
}

func (l *otherListener) Close() error { l.closed++; return l.Listener.Close() }

func TestConnectionsSpreadOverLoops(t *testing.T) {
	const loops, each = 3, 4
	e := start(t, Options{Loops: loops})
	arrived := make(chan loop.Loop, loops*each)
	l, err := e.Listen("127.0.0.1:0", ListenOptions{}, func(l loop.Loop, remote string) loop.Receiver {
		arrived <- l
		return echo()
	})
	if err != nil {
		t.Fatal(err)
	}
	count := map[loop.Loop]int{}
	for range loops * each {
		dial(t, l.Addr().String())
		count[recv(t, arrived, "a connection")]++
	}
	for i, l := range e.Loops() {
		if count[l] != each {
			t.Errorf("loop %d has %d connections, want %d", i, count[l], each)
		}
	}
}

// TestDialOnItsLoop: a dialled connection is on the loop that dialled it, so both may share
// what it owns.
func TestDialOnItsLoop(t *testing.T) {
	e := start(t, Options{Loops: 3})
	addr := listen(t, e, ListenOptions{}, echo)
	for _, l := range e.loops {
		got := make(chan loop.Loop, 1)
		l.Post(func() {
			l.Dial(addr, waitLimit, &stream{open: func(c loop.Conn) {
				if c.(*conn).dial != nil {
					t.Error("the dial is kept in memory")
				}
				got <- c.(*conn).loop
			}})
		})
		if recv(t, got, "a dial") != l {
			t.Errorf("loop %d: the connection is on another", l.index)
		}
	}
}

// TestSocketOptions: dialled and accepted connections send at once, and the kernel looks within minutes whether their peer is there.
func TestSocketOptions(t *testing.T) {
	e := start(t, Options{})
	l := e.loops[0]
	conns := make(chan *conn, 2)
	addr := listen(t, e, ListenOptions{}, func() loop.Receiver {
		return &stream{open: func(c loop.Conn) { conns <- c.(*conn) }}
	})
	on(t, l, func() {
		l.Dial(addr, waitLimit, &stream{open: func(c loop.Conn) { conns <- c.(*conn) }})
	})
	for range 2 {
		c := recv(t, conns, "a connection")
		for _, o := range []struct{ level, name, want int }{
			{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1}, {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1}, {unix.IPPROTO_TCP, kernel.KeepAliveTime, 15},
			{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 15}, {unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 9},
		} {
			if got, err := unix.GetsockoptInt(c.fd, o.level, o.name); got != o.want || err != nil {
				t.Errorf("accepted %t: option %d is %d, %v; want %d", c.listener != nil, o.name, got, err, o.want)
			}
		}
	}
}

func TestIPv6(t *testing.T) {
	e := start(t, Options{})
	l, err := e.Listen("[::1]:0", ListenOptions{}, func(_ loop.Loop, remote string) loop.Receiver {
		if !strings.HasPrefix(remote, "[::1]:") {
			t.Errorf("peer is %q", remote)
		}
		return echo()
	})
	if err != nil {
		t.Skip("no IPv6 here:", err)
	}
	got := make(chan string, 1)
	var out loop.Conn
	e.loops[0].Post(func() {
		e.loops[0].Dial(l.Addr().String(), waitLimit, &stream{
			open: func(c loop.Conn) { out = c; c.Write([]byte("six")) },
			data: func(b []byte) { got <- string(b) + " " + out.RemoteAddr() },
		})
	})
	if g, want := recv(t, got, "an echo"), "six "+l.Addr().String(); g != want {
		t.Errorf("got %q, want %q", g, want)
	}
}

// TestMaxConnections: a connection above MaxConnections receives Overload and is closed, and
// one that closes makes room.
func TestMaxConnections(t *testing.T) {
	e := start(t, Options{MaxConnections: 2})
	const busy = "HTTP/1.1 503 Service Unavailable\r\n\r\n"
	addr := listen(t, e, ListenOptions{Overload: []byte(busy)}, echo)
	a, b := dial(t, addr), dial(t, addr)
	ask(t, a, "a")
	ask(t, b, "b")
	// An unread request must not turn the response into a reset.
	release := holdLoop(e.loops[0])
	c := dial(t, addr)
	must.Write(t, c, "GET / HTTP/1.1\r\n\r\n")
	close(release)
	if got, err := io.ReadAll(c); err != nil || string(got) != busy {
		t.Errorf("the refused connection got %q, %v", got, err)
	}
	if s := e.Stats(); s.Refused != 1 || s.Accepted != 2 || s.Inbound != 2 {
		t.Errorf("stats %+v", s)
	}
	ask(t, a, "still here")

	// A connection that is closed releases its reservation.
	left := make(chan struct{})
	e.loops[0].Post(func() { e.loops[0].conns.end(); close(left) })
	recv(t, left, "the close")
	ask(t, dial(t, addr), "let in")
}

// TestOverloadEnds: a connection above the limit is closed after a moment, although its peer stays.
func TestOverloadEnds(t *testing.T) {
	e := start(t, Options{MaxConnections: 1})
	l := listenEcho(t, e, ListenOptions{Overload: []byte("b")})
	addr := l.Addr().String()
	ask(t, dial(t, addr), "a")
	refused := dial(t, addr)
	if got, err := io.ReadAll(refused); string(got) != "b" || err != nil {
		t.Errorf("it got %q, %v", got, err)
	}
	awaitReset(t, refused)
	eventually(t, func() error { // for the Overload of others
		if n := len(l.overloadTokens); n > 0 {
			return fmt.Errorf("%d connections are sent something", n)
		}
		return nil
	})
}

// awaitReset waits until the peer of nc has closed the connection: what comes after the close is reset.
func awaitReset(t *testing.T, nc net.Conn) {
	t.Helper()
	eventually(t, func() error {
		_, err := nc.Write([]byte("x"))
		if err == nil {
			return errors.New("it is open")
		}
		if !isReset(err) && !errors.Is(err, syscall.EPIPE) {
			t.Errorf("it is not closed: %v", err)
		}
		return nil
	})
}

// TestOverloadOfSilent: a connection above the limit whose peer stops to read is closed after a moment, too.
func TestOverloadOfSilent(t *testing.T) {
	e := start(t, Options{MaxConnections: 1})
	addr := listen(t, e, ListenOptions{Overload: make([]byte, 32<<20)}, echo) // more than the kernel takes
	ask(t, dial(t, addr), "a")
	refused := dial(t, addr)
	must.Read(t, refused, 1)
	awaitReset(t, refused)
}

// TestLingerClose: no input is left unread behind a refusal, since the close would then send a reset.
func TestLingerClose(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client := dial(t, ln.Addr().String())
	must.Write(t, client, "request")
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	left := make(chan struct{})
	go func() {
		defer close(left)
		if _, err := io.ReadAll(client); err != nil { // the end comes at once
			t.Errorf("the client read %v", err)
		}
		client.Close()
	}()
	lingerClose(nc)
	recv(t, left, "the client to leave")
	_ = nc.SetDeadline(time.Now().Add(waitLimit))
	if rest, err := io.ReadAll(nc); len(rest) > 0 || err != nil {
		t.Errorf("%q is left, %v", rest, err)
	}
}

func TestCapConnections(t *testing.T) {
	for _, c := range []struct{ wanted, files, want int }{
		{0, 1024, 512}, {100, 1024, 100}, {16384, 1024, 512}, {16384, 1 << 20, 16384}, {10, 1, 1}, {10, -1, 1},
	} {
		if got := capConnections(c.wanted, c.files); got != c.want {
			t.Errorf("capConnections(%d, %d) = %d, want %d", c.wanted, c.files, got, c.want)
		}
	}
}

// TestCapFiles: at most 1<<20 descriptors count, also where the system has no limit.
func TestCapFiles(t *testing.T) {
	for allowed, want := range map[uint64]int{1024: 1024, 1<<20 - 1: 1<<20 - 1, 1 << 20: 1 << 20, 1<<20 + 1: 1 << 20, math.MaxUint64: 1 << 20} {
		if got := capFiles(allowed); got != want {
			t.Errorf("of %d descriptors %d count, want %d", allowed, got, want)
		}
	}
}

// TestMaxConnectionsNoOverload: without Overload a connection above the limit is just closed.
func TestMaxConnectionsNoOverload(t *testing.T) {
	e := start(t, Options{MaxConnections: 1})
	l := listenEcho(t, e, ListenOptions{})
	addr := l.Addr().String()
	ask(t, dial(t, addr), "a")
	if got, err := io.ReadAll(dial(t, addr)); len(got) > 0 || err != nil && !isReset(err) {
		t.Errorf("the refused connection got %q, %v", got, err)
	}
	if n := len(l.overloadTokens); n > 0 {
		t.Errorf("%d connections are sent something", n)
	}
}

// TestAcceptReturnsNil: a connection for which accept returns nil is closed.
func TestAcceptReturnsNil(t *testing.T) {
	e := start(t, Options{})
	addr := listen(t, e, ListenOptions{}, func() loop.Receiver { return nil })
	if got, err := io.ReadAll(dial(t, addr)); len(got) > 0 || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	on(t, e.loops[0], func() {})
	if s := e.Stats(); s.Open != 0 || s.Inbound != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestListenerCloseKeepsConnections(t *testing.T) {
	e := start(t, Options{})
	l := listenEcho(t, e, ListenOptions{})
	c := dial(t, l.Addr().String())
	ask(t, c, "before")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if c, err := net.DialTimeout("tcp", l.Addr().String(), waitLimit); err == nil {
		c.Close()
		t.Error("it still accepts")
	}
	ask(t, c, "after")
}

// TestStop: OnClose of every stream is called exactly once, a stream that always redials
// does not delay Stop, and afterwards nothing runs.
func TestStop(t *testing.T) {
	e := start(t, Options{Loops: 2})
	const n = 8
	closed := make(chan error, 4*n)
	opened := make(chan struct{}, 2*n)
	inbound := func() loop.Receiver {
		return &stream{
			open:  func(loop.Conn) { opened <- struct{}{} },
			close: func(err error) { closed <- err },
		}
	}
	listener, err := e.Listen("127.0.0.1:0", ListenOptions{}, func(loop.Loop, string) loop.Receiver { return inbound() })
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	for range n {
		dial(t, addr)
		recv(t, opened, "a connection")
	}
	var late atomic.Int64
	l := e.Loops()[0]
	var redial func(error)
	redial = func(err error) {
		late.Add(1)
		l.Dial(addr, waitLimit, &stream{close: redial})
	}
	black := blackhole(t)
	on(t, l, func() {
		l.Dial(black, waitLimit, &stream{close: redial})
	})

	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	if err := e.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	for range n {
		if err := recv(t, closed, "OnClose"); err != nil {
			t.Errorf("OnClose(%v)", err)
		}
	}
	if len(closed) > 0 || late.Load() == 0 {
		t.Errorf("%d more calls of OnClose, %d of the stream that redials", len(closed), late.Load())
	}
	if s := e.Stats(); s.Open != 0 || s.Inbound != 0 {
		t.Errorf("stats %+v", s)
	}
	l.Post(func() { t.Error("a function ran after Stop") })
	if _, err := e.Listen("127.0.0.1:0", ListenOptions{}, nil); !errors.Is(err, ErrStopped) {
		t.Errorf("Listen after Stop: %v", err)
	}
	if err := e.Stop(ctx); err != ErrStopped {
		t.Errorf("second Stop: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- listener.Close() }()
	if err := recv(t, ended, "Close after Stop"); err != net.ErrClosed {
		t.Errorf("Close after Stop: %v", err)
	}
}

// TestDialWhileStopping: a dial from OnClose during Stop ends with ErrStopped before Stop returns, whichever way it would go.
func TestDialWhileStopping(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:1", "unix:@remora-reactor-nobody"} {
		e := start(t, Options{})
		closed := make(chan error, 2)
		c, _ := accepted(t, e, &stream{})
		on(t, c.loop, func() {
			c.SetReceiver(&stream{close: func(error) {
				c.loop.Dial(addr, waitLimit, &stream{open: func(loop.Conn) { t.Error("OnOpen") }, close: func(err error) { closed <- err }})
			}})
		})
		if err := e.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(closed) != 1 {
			t.Fatalf("%s: %d calls of OnClose", addr, len(closed))
		}
		if err := <-closed; !errors.Is(err, ErrStopped) {
			t.Errorf("%s: OnClose(%v)", addr, err)
		}
	}
}

// stoppedContext is a context that has ended, although nobody is told.
type stoppedContext struct{ context.Context }

func (stoppedContext) Err() error { return context.Canceled }

// TestDialerConnectStopped: a connection that the dialer has made when the reactor stops is closed.
func TestDialerConnectStopped(t *testing.T) {
	e := start(t, Options{})
	ln := must.Listen(t)
	accepted := make(chan net.Conn, 1)
	go func() {
		nc, err := ln.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- nc
	}()
	d := dialer{reactor: &Reactor{ctx: stoppedContext{context.Background()}}}
	w := &dialing{c: &conn{descriptor: descriptor{loop: e.loops[0]}, remote: ln.Addr().String()}, until: time.Now().Add(waitLimit)}
	if nc, over, err := d.connect(w); nc != nil || over != nil || err != ErrStopped {
		t.Errorf("%v, %v, %v", nc, over, err)
	}
	nc := recv(t, accepted, "the connection")
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(waitLimit))
	ends(t, nc)
}

// TestDialerLate: a dial whose time is up when a goroutine takes it is not begun.
func TestDialerLate(t *testing.T) {
	e := start(t, Options{})
	w := &dialing{c: &conn{descriptor: descriptor{loop: e.loops[0]}, remote: must.Listen(t).Addr().String()}, until: time.Now()}
	if e.dialer.dial(w); w.tried.Load() || e.connections.dialled.Load() != 0 {
		t.Error("it was begun")
	}
}

// TestStopContext: Stop returns the error of its context if a callback blocks a loop.
func TestStopContext(t *testing.T) {
	e := start(t, Options{})
	release := make(chan struct{})
	entered := make(chan struct{})
	e.loops[0].Post(func() { close(entered); <-release })
	recv(t, entered, "the callback")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := e.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Stop: %v", err)
	}
	close(release)
}

func TestTwoReactors(t *testing.T) {
	a, b := start(t, Options{}), start(t, Options{})
	addr := listen(t, b, ListenOptions{}, echo)
	got := make(chan string, 1)
	a.loops[0].Post(func() {
		a.loops[0].Dial(addr, waitLimit, &stream{
			open: func(c loop.Conn) { c.Write([]byte("hello")) },
			data: func(b []byte) { got <- string(b) },
		})
	})
	if s := recv(t, got, "an echo"); s != "hello" {
		t.Errorf("got %q", s)
	}
}

// TestPanicInAccept: a panic while a connection is accepted ends neither the loop nor the listener.
func TestPanicInAccept(t *testing.T) {
	e := start(t, Options{})
	panics := true
	e.Connections().RefuseWhile(func() bool {
		if panics {
			panics = false
			panic("boom")
		}
		return false
	})
	addr := listen(t, e, ListenOptions{}, echo)
	hold, held := make(chan struct{}), make(chan struct{})
	e.loops[0].Post(func() { close(held); <-hold })
	recv(t, held, "the loop to pause")
	first, second, third := dial(t, addr), dial(t, addr), dial(t, addr)
	close(hold)
	if _, err := io.ReadAll(first); err != nil && !isReset(err) {
		t.Errorf("the connection is not closed: %v", err)
	}
	ask(t, second, "still here")
	ask(t, third, "still here")
	if n := e.Stats().Panics; n != 1 {
		t.Errorf("%d panics", n)
	}
}

// onGoroutines makes dials use the goroutines of the dialer: TLS that never gets to a handshake.
func onGoroutines(_, _, _ string) func() *tls.Config {
	return func() *tls.Config { return &tls.Config{} }
}

// TestDialQueueDeadlines: the timeout of a dial runs while it waits for a goroutine. It was not tried then,
// which says nothing of the endpoint.
func TestDialQueueDeadlines(t *testing.T) {
	e := start(t, Options{DialTLS: onGoroutines})
	e.dialer.max = 1
	black := blackhole(t)
	l := e.loops[0]
	var order []string
	done := make(chan error, 2)
	on(t, l, func() {
		l.Dial(black, waitLimit, &stream{close: func(err error) { order = append(order, "first"); done <- err }})
		l.Dial(black, time.Millisecond, &stream{close: func(err error) { order = append(order, "second"); done <- err }})
	})
	if err := recv(t, done, "the waiting dial to time out"); !errors.Is(err, loop.ErrDialQueue) {
		t.Errorf("OnClose(%v), want %v", err, loop.ErrDialQueue)
	}
	on(t, l, func() {
		if !slices.Equal(order, []string{"second"}) {
			t.Errorf("ended: %v", order)
		}
	})
}

// TestDialQueueShares: an address that does not respond leaves goroutines to others.
func TestDialQueueShares(t *testing.T) {
	for _, c := range []struct{ max, dials, active int }{{4, 10, 1}, {4, 2, 1}, {8, 10, 2}, {3, 2, 1}} {
		t.Run(fmt.Sprintf("%d dials on %d goroutines", c.dials, c.max), func(t *testing.T) {
			e := start(t, Options{DialTLS: onGoroutines})
			e.dialer.max = c.max
			black, l := blackhole(t), e.loops[0]
			done := make(chan error, 1)
			on(t, l, func() {
				for range c.dials {
					l.Dial(black, waitLimit, &stream{})
				}
				l.Dial("127.0.0.1:1", waitLimit, &stream{close: func(err error) { done <- err }})
			})
			if err := recv(t, done, "the other dial to end"); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("OnClose(%v), want %v", err, syscall.ECONNREFUSED)
			}
			eventually(t, func() error {
				d := &e.dialer
				d.mu.Lock()
				defer d.mu.Unlock()
				left := c.dials - c.active
				if d.active != c.active || len(d.waiting) != left || d.queued[black] != left || d.dials[black] != c.active || len(d.dials) != 1 {
					return fmt.Errorf("%d goroutines, %d dials wait, %v and %v; want %d and %d", d.active, len(d.waiting), d.queued, d.dials, c.active, left)
				}
				return nil
			})
			if err := e.Stop(t.Context()); err != nil || e.Stats().Panics > 0 {
				t.Errorf("Stop with dials in progress: %v, %d panics", err, e.Stats().Panics)
			}
		})
	}
}

// TestDialQueueFair: an address that does not respond, and fills the queue, gives way to others.
func TestDialQueueFair(t *testing.T) {
	e := start(t, Options{DialTLS: onGoroutines})
	e.dialer.max = 4
	black, l := blackhole(t), e.loops[0]
	refused, done := make(chan error, maxWaitingDials), make(chan error, 1)
	s := &stream{close: func(err error) { refused <- err }}
	on(t, l, func() { l.Dial(black, waitLimit, s) })
	eventually(t, func() error { // it has left the queue, in which it would make room
		e.dialer.mu.Lock()
		defer e.dialer.mu.Unlock()
		if n := e.dialer.dials[black]; n != 1 {
			return fmt.Errorf("%d dials in progress, want 1", n)
		}
		return nil
	})
	on(t, l, func() {
		for len(l.closed) == 0 {
			l.Dial(black, waitLimit, s)
		}
	})
	if err := recv(t, refused, "a dial to find the queue full"); !errors.Is(err, loop.ErrDialQueue) {
		t.Errorf("OnClose(%v), want %v", err, loop.ErrDialQueue)
	}
	on(t, l, func() {
		l.Dial("127.0.0.1:1", waitLimit, &stream{close: func(err error) { done <- err }})
	})
	if err := recv(t, done, "the other dial to end"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("OnClose(%v), want %v", err, syscall.ECONNREFUSED)
	}
	if err := recv(t, refused, "a dial to give way"); !errors.Is(err, loop.ErrDialQueue) {
		t.Errorf("OnClose(%v), want %v", err, loop.ErrDialQueue)
	}
}

// TestDialQueueEven: two addresses share a full queue evenly: the address with more dials loses a dial to the other, until both have
// as many, or it has one more.
func TestDialQueueEven(t *testing.T) {
	e := start(t, Options{DialTLS: onGoroutines})
	e.dialer.max = 1
	black, other, third, l := blackhole(t), blackhole(t), blackhole(t), e.loops[0]
	on(t, l, func() { l.Dial(black, waitLimit, &stream{}) })
	eventually(t, func() error { // it takes the goroutine, so that the others wait
		e.dialer.mu.Lock()
		defer e.dialer.mu.Unlock()
		if n := e.dialer.dials[black]; n != 1 {
			return fmt.Errorf("%d dials in progress, want 1", n)
		}
		return nil
	})
	refused := make(chan string, 2)
	dialAll := func(addr string, count int) {
		for range count {
			l.Dial(addr, waitLimit, &stream{close: func(err error) {
				if errors.Is(err, loop.ErrDialQueue) {
					refused <- addr
				}
			}})
		}
	}
	on(t, l, func() {
		dialAll(black, maxWaitingDials/2+1)
		dialAll(other, maxWaitingDials/2-1)
		dialAll(other, 2) // one has the place of another address
	})
	first, second := recv(t, refused, "a dial to give way"), recv(t, refused, "a dial to find the queue full")
	if first == second {
		t.Errorf("two dials to %s were refused, none to %s", first, black)
	}
	on(t, l, func() { dialAll(third, 1) })
	less := recv(t, refused, "a dial to give way")
	on(t, l, func() { dialAll(less, 1) }) // the other address has a single dial more
	if got := recv(t, refused, "a dial to find the queue full"); got != less {
		t.Errorf("a dial to %s has given way to a dial to %s", got, less)
	}
}

// TestDialQueueExpired: dials whose time is up leave a full queue to those of the same address.
func TestDialQueueExpired(t *testing.T) {
	e := start(t, Options{DialTLS: onGoroutines})
	e.dialer.max = 1
	black, l := blackhole(t), e.loops[0]
	ends := make(chan error, maxWaitingDials+1)
	s := &stream{close: func(err error) { ends <- err }}
	on(t, l, func() { l.Dial(black, waitLimit, &stream{}) }) // takes the goroutine
	on(t, l, func() {
		for range maxWaitingDials {
			l.Dial(black, time.Millisecond, s)
		}
	})
	for range maxWaitingDials {
		recv(t, ends, "a waiting dial to end")
	}
	on(t, l, func() {
		l.Dial(black, waitLimit, s)
		if len(l.closed) > 0 {
			t.Error("a dial was refused although no other waits")
		}
	})
}

// TestDialerFreed: a dial whose peer does not respond in its handshake leaves its goroutine at its timeout.
func TestDialerFreed(t *testing.T) {
	e := start(t, withTLS(Options{}, NewIdentity(t)))
	silent, l := must.Listen(t).Addr().String(), e.loops[0]
	closed := make(chan error, 1)
	on(t, l, func() { l.Dial(silent, 20*time.Millisecond, &stream{close: func(err error) { closed <- err }}) })
	if err := recv(t, closed, "the dial to fail"); err != syscall.ETIMEDOUT && err != loop.ErrDialQueue {
		t.Errorf("OnClose(%v)", err)
	}
	eventually(t, func() error {
		if n := e.dialer.busy(); n > 0 {
			return fmt.Errorf("%d goroutines dial", n)
		}
		return nil
	})
}

// TestDialQueueLimit: a dial above maxWaitingDials fails with ErrDialQueue.
func TestDialQueueLimit(t *testing.T) {
	e := start(t, Options{DialTLS: onGoroutines})
	e.dialer.max = 1
	black := blackhole(t)
	l := e.loops[0]
	full := 0
	done := make(chan struct{})
	on(t, l, func() {
		s := &stream{close: func(err error) {
			if errors.Is(err, loop.ErrDialQueue) { // the others end with Stop
				full++
				close(done)
			}
		}}
		// A goroutine may take one from the queue while it fills.
		for len(l.closed) == 0 {
			l.Dial(black, waitLimit, s)
		}
	})
	recv(t, done, "the refused dial to end")
	on(t, l, func() {
		if n := len(l.conns); n < maxWaitingDials || n > maxWaitingDials+1 || full != 1 {
			t.Errorf("%d wait, %d refused", n, full)
		}
	})
}
