package reactor

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/backlogtest"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// TestAcceptsAtOnce: a turn accepts maxAccepts connections, and later turns the rest, without another event.
func TestAcceptsAtOnce(t *testing.T) {
	e := start(t, Options{})
	l := listenEcho(t, e, ListenOptions{})
	a := l.acceptors[0]
	on(t, a.loop, a.stop)
	for range maxAccepts + 1 {
		dial(t, l.Addr().String())
	}
	backlogtest.Await(t, a.fd, maxAccepts+1)
	on(t, a.loop, func() {
		for _, want := range []int{maxAccepts, maxAccepts + 1, maxAccepts + 1} {
			if a.onEvents(kernel.Input); len(a.loop.conns) != want {
				t.Errorf("%d connections, want %d", len(a.loop.conns), want)
			}
		}
	})
	for range 3 * maxAccepts {
		dial(t, l.Addr().String())
	}
	on(t, a.loop, a.start)
	eventually(t, func() error {
		if n := e.Connections().Accepted(); n != 4*maxAccepts+1 {
			return fmt.Errorf("%d connections are accepted", n)
		}
		return nil
	})
}

// TestAcceptsOfTurn: no turn accepts more than maxAccepts connections, although many wait, and the turn has another event after
// that of the listener.
func TestAcceptsOfTurn(t *testing.T) {
	e := start(t, Options{})
	other := dial(t, listenEcho(t, e, ListenOptions{}).Addr().String())
	ask(t, other, "hello")
	turns := map[uint64]int{} // how many connections each has accepted
	l, err := e.Listen("127.0.0.1:0", ListenOptions{}, func(l loop.Loop, _ string) loop.Receiver {
		turns[l.(*eventLoop).stats.Turns.Count()]++
		return echo()
	})
	if err != nil {
		t.Fatal(err)
	}
	dialled := make(chan struct{})
	e.loops[0].Post(func() { <-dialled })
	for range 4 * maxAccepts {
		dial(t, l.Addr().String())
	}
	must.Write(t, other, "hello")
	close(dialled)
	eventually(t, func() error {
		if n := e.Connections().Accepted(); n != 1+4*maxAccepts {
			return fmt.Errorf("%d connections are accepted", n)
		}
		return nil
	})
	on(t, e.loops[0], func() {
		for turn, n := range turns {
			if n > maxAccepts {
				t.Errorf("turn %d accepts %d connections", turn, n)
			}
		}
	})
	if n := e.Stats().AcceptErrors; n != 0 {
		t.Errorf("%d times accept failed", n)
	}
}

// TestBackoffOfOneLoop: while a loop does not accept after a failure, the other is told of connections.
func TestBackoffOfOneLoop(t *testing.T) {
	for i := range 2 {
		e := start(t, Options{Loops: 2})
		l := listenEcho(t, e, ListenOptions{})
		a := l.acceptors[i]
		on(t, a.loop, func() {
			a.backoff = time.Hour
			a.failed(unix.EMFILE)
		})
		ask(t, dial(t, l.Addr().String()), "hello")
		on(t, a.loop, func() {
			if !a.timer.Armed() {
				t.Error("the loop does not try again")
			}
		})
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		on(t, a.loop, func() {
			if a.timer.Armed() {
				t.Error("the loop tries again after Close")
			}
		})
	}
}

// TestCloseAcceptsBacklog: connections that no loop has accepted when a listener closes are served,
// and not reset.
func TestCloseAcceptsBacklog(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "unix:" + filepath.Join(t.TempDir(), "s")} {
		e := start(t, Options{Loops: 2})
		l, err := e.Listen(addr, ListenOptions{}, func(loop.Loop, string) loop.Receiver { return echo() })
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range l.acceptors { // as if the loops got no processor
			on(t, a.loop, a.stop)
		}
		var clients []net.Conn
		for range 10 {
			c := must.Dial(t, l.Addr().Network(), l.Addr().String())
			_ = c.SetDeadline(time.Now().Add(waitLimit))
			clients = append(clients, c)
		}
		backlogtest.Await(t, l.acceptors[0].fd, len(clients))
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		for _, c := range clients {
			if got := ask(t, c, "hello"); got != "hello" {
				t.Errorf("the answer is %q", got)
			}
		}
		if c, err := net.Dial(l.Addr().Network(), l.Addr().String()); err == nil {
			c.Close()
			t.Error("a connection is accepted after Close")
		}
		if err := l.Close(); err != net.ErrClosed {
			t.Errorf("the second Close returns %v", err)
		}
	}
}

// TestCloseAwaitsLoops: a listener that closes has its socket until no loop accepts any more. A connection that comes meanwhile is
// served.
func TestCloseAwaitsLoops(t *testing.T) {
	e := start(t, Options{Loops: 2})
	l := listenEcho(t, e, ListenOptions{})
	release := holdLoop(e.loops[1])
	closed := make(chan error, 1)
	go func() { closed <- l.Close() }()
	eventually(t, func() (err error) {
		on(t, e.loops[0], func() {
			if l.acceptors[0].watched {
				err = errors.New("the first loop accepts")
			}
		})
		return err
	})
	for range 100 { // Close would go on
		on(t, e.loops[0], func() {})
	}
	c := dial(t, l.Addr().String())
	backlogtest.Await(t, l.acceptors[0].fd, 1)
	close(release)
	if err := recv(t, closed, "Close"); err != nil {
		t.Error(err)
	}
	_ = c.SetDeadline(time.Now().Add(waitLimit))
	if got := ask(t, c, "hello"); got != "hello" {
		t.Errorf("got %q", got)
	}
}

// TestStopClosesBacklog: connections that no loop has accepted when the reactor stops are closed, whatever their listener would do
// with them, and are no failures.
func TestStopClosesBacklog(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector would close what nobody has closed
	own := NewIdentity(t)
	for name, c := range map[string]struct {
		listen ListenOptions
		says   string
	}{
		"plain": {ListenOptions{}, "hello"},
		"TLS":   {ListenOptions{TLS: own.Server}, string(clientHello(t, own))},
		"of a proxy": {ListenOptions{Proxies: &Proxies{
			Trusts: func(netip.Addr) bool { return true }, Wait: func() time.Duration { return waitLimit }, Refused: func(string, error) { t.Error("refused") },
		}}, header},
		"redirected": {ListenOptions{Transparent: &Transparent{
			Wait: waitLimit, Guarded: func() bool { return false }, Pass: func(loop.Socket, netip.AddrPort, []byte) { t.Error("passed") },
		}}, "hello"},
		"above the limit": {ListenOptions{MaxConnections: 1, Overload: []byte("busy")}, "hello"},
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, Options{Loops: 2})
			l := listenEcho(t, e, c.listen)
			for _, a := range l.acceptors { // as if the loops got no processor
				on(t, a.loop, a.stop)
			}
			var clients []net.Conn
			for range 3 {
				nc := dial(t, l.Addr().String())
				must.Write(t, nc, c.says)
				clients = append(clients, nc)
			}
			if err := e.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, nc := range clients {
				if _, err := io.Copy(io.Discard, nc); err != nil && !isReset(err) {
					t.Errorf("a connection is not closed: %v", err)
				}
			}
			if st := e.Stats(); st.Open != 0 || st.Inbound != 0 || st.Panics != 0 || st.AcceptErrors != 0 || len(st.TLSFailures) > 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}
