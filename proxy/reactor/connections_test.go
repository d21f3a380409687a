package reactor

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/fair"
	"github.com/remora-proxy/remora/proxy/loop"
)

// dialFrom connects from an address of loopback.
func dialFrom(t testing.TB, from, addr string) *net.TCPConn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: waitLimit}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(waitLimit))
	return c.(*net.TCPConn)
}

// wantReserved waits until taken connections of that many sources are reserved.
func (r *Reactor) wantReserved(t *testing.T, taken int64, sources int) {
	t.Helper()
	eventually(t, func() error {
		r.connections.mu.Lock()
		n := len(r.connections.bySource)
		r.connections.mu.Unlock()
		if got := r.connections.taken.Load(); got != taken || n != sources {
			return fmt.Errorf("%d connections are reserved by %d sources, want %d by %d", got, n, taken, sources)
		}
		return nil
	})
}

// TestPerSource: one address may have two connections over all listeners and no third,
// while others are served. A closed connection no longer counts, and a source without
// connections has no entry.
func TestPerSource(t *testing.T) {
	e := start(t, Options{Loops: 2, MaxPerSource: 2})
	const busy = "busy"
	one, two := listen(t, e, ListenOptions{Overload: []byte(busy)}, echo), listen(t, e, ListenOptions{}, echo)
	a, b := dialFrom(t, "127.0.0.2", one), dialFrom(t, "127.0.0.2", two)
	ask(t, a, "a")
	ask(t, b, "b")
	if got, err := io.ReadAll(dialFrom(t, "127.0.0.2", one)); string(got) != busy || err != nil {
		t.Errorf("the third of one source got %q, %v", got, err)
	}
	if got, err := io.ReadAll(dialFrom(t, "127.0.0.2", two)); len(got) > 0 || err != nil && !isReset(err) {
		t.Errorf("the third at another listener got %q, %v", got, err)
	}
	c, d := dialFrom(t, "127.0.0.3", one), dialFrom(t, "127.0.0.3", one)
	ask(t, c, "c")
	ask(t, d, "d")
	if st := e.Stats(); st.RefusedSource != 2 || st.Refused != 0 || st.Accepted != 4 || st.Inbound != 4 {
		t.Errorf("stats %+v", st)
	}
	b.Close()
	e.wantReserved(t, 3, 2)
	ask(t, dialFrom(t, "127.0.0.2", one), "again")
	on(t, e.loops[0], e.loops[0].conns.end)
	on(t, e.loops[1], e.loops[1].conns.end)
	e.wantReserved(t, 0, 0)
}

// TestPerSourceWithinMaxConnections: a connection above MaxConnections is not counted by
// source, so that the table has at most MaxConnections entries.
func TestPerSourceWithinMaxConnections(t *testing.T) {
	e := start(t, Options{MaxConnections: 2, MaxPerSource: 2})
	addr := listen(t, e, ListenOptions{}, echo)
	ask(t, dialFrom(t, "127.0.0.2", addr), "a")
	ask(t, dialFrom(t, "127.0.0.3", addr), "b")
	for i := range 5 {
		_, _ = io.ReadAll(dialFrom(t, fmt.Sprint("127.0.0.", 2+i), addr))
	}
	e.wantReserved(t, 2, 2)
	if st := e.Stats(); st.Refused != 5 || st.RefusedSource != 0 {
		t.Errorf("stats %+v", st)
	}
}

// TestRefusedCountsNothing: refused connections take no room from a dial, nor from a connection of another listener.
func TestRefusedCountsNothing(t *testing.T) {
	p := &Connections{max: 3, maxFiles: 3 * streamFiles}
	full, free := &listenerLimit{max: 1}, &listenerLimit{}
	for _, in := range []*listenerLimit{full, free} {
		if _, ok := p.reserve(netip.Addr{}, in, streamFiles); !ok {
			t.Fatal("a connection was refused before the limits")
		}
	}
	var last reservation
	for range streamFiles + 2 {
		var ok bool
		if last, ok = p.reserveDial(); !ok {
			t.Fatal("a dial was refused before the limits")
		}
	}
	if _, ok := p.reserveDial(); ok {
		t.Fatal("a dial has the descriptors of a stream")
	}
	last.release() // one more dial has its descriptor
	var ended atomic.Bool
	var flood sync.WaitGroup
	defer flood.Wait()
	defer ended.Store(true)
	for range 4 {
		flood.Go(func() {
			for !ended.Load() {
				if _, ok := p.reserve(netip.Addr{}, full, streamFiles); ok {
					t.Error("the full listener got a connection")
				}
			}
		})
	}
	for range 200_000 {
		dial, ok := p.reserveDial()
		if !ok {
			t.Fatal("a dial was refused")
		}
		dial.release()
		at, ok := p.reserve(netip.Addr{}, free, streamFiles)
		if !ok {
			t.Fatal("a connection was refused")
		}
		at.release()
	}
}

// TestFirstConnection: one connection is accepted however few descriptors there are, and no second one, until the first has
// ended. To release it again does nothing.
func TestFirstConnection(t *testing.T) {
	p := &Connections{max: 3, maxFiles: connFiles - 1}
	in := &listenerLimit{}
	for range 2 {
		at, ok := p.reserve(netip.Addr{}, in, connFiles)
		if _, second := p.reserve(netip.Addr{}, in, connFiles); !ok || second {
			t.Errorf("a first connection is accepted: %t, a second one: %t", ok, second)
		}
		at.release()
		at.release()
	}
}

// TestFilesOfStream: a connection that becomes a stream takes the descriptors of a stream, from others, until it is closed.
func TestFilesOfStream(t *testing.T) {
	p := &Connections{max: 100, maxFiles: 2 * streamFiles}
	in := &listenerLimit{}
	fill := func() (all []reservation) {
		for {
			at, ok := p.reserve(netip.Addr{}, in, connFiles)
			if !ok {
				return all
			}
			all = append(all, at)
		}
	}
	for range 2 { // the second time all has been given back
		at, ok := p.reserve(netip.Addr{}, in, connFiles)
		if !ok {
			t.Fatal("a connection was refused before the limits")
		}
		at.becomeStream()
		at.becomeStream() // it takes them once
		others := fill()
		if n := len(others); n != streamFiles/connFiles {
			t.Errorf("a stream leaves descriptors to %d connections", n)
		}
		at.release()
		for i := range others {
			others[i].release()
		}
	}
}

// TestPerSourceOffLoop: detached connections, and those that never reach a loop, count
// until they are closed.
func TestPerSourceOffLoop(t *testing.T) {
	e := start(t, Options{MaxPerSource: 2})
	left := make(chan loop.Socket, 1)
	addr := listen(t, e, ListenOptions{}, func() loop.Receiver {
		return &stream{open: func(c loop.Conn) {
			sock, err := c.Detach()
			if err != nil {
				t.Errorf("Detach: %v", err)
			}
			left <- sock
		}}
	})
	from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}
	release := e.Connections().Reserver(0)(from, from)
	dialFrom(t, "127.0.0.2", addr)
	sock := recv(t, left, "the connection")
	if e.Connections().Reserver(0)(from, from) != nil {
		t.Error("a third connection was reserved")
	}
	e.wantReserved(t, 2, 1)
	if err := sock.Close(); err != nil {
		t.Error(err)
	}
	if err := sock.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
	e.wantReserved(t, 1, 1)
	release()
	release()
	e.wantReserved(t, 0, 0)
	if st := e.Stats(); st.Open != 0 || st.RefusedSource != 1 {
		t.Errorf("stats %+v", st)
	}
}

// TestPerSourceHandshake: a connection counts during its TLS handshake, and no longer
// after that has failed.
func TestPerSourceHandshake(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{MaxPerSource: 1})
	e.SetHandshakeTimeout(time.Minute)
	addr := listen(t, e, ListenOptions{TLS: own.Server}, echo)
	silent := dialFrom(t, "127.0.0.2", addr)
	e.wantReserved(t, 1, 1)
	if got, err := io.ReadAll(dialFrom(t, "127.0.0.2", addr)); len(got) > 0 || err != nil && !isReset(err) {
		t.Errorf("beside a handshake came %q, %v", got, err)
	}
	silent.Close()
	e.wantReserved(t, 0, 0)
}

// TestPerListener: ListenOptions.MaxConnections limits each listener by itself, and a
// closed connection no longer counts.
func TestPerListener(t *testing.T) {
	e := start(t, Options{MaxConnections: 4})
	small, open := listen(t, e, ListenOptions{MaxConnections: 2}, echo), listen(t, e, ListenOptions{}, echo)
	a, b := dial(t, small), dial(t, small)
	ask(t, a, "a")
	ask(t, b, "b")
	if got, err := io.ReadAll(dial(t, small)); len(got) > 0 || err != nil && !isReset(err) {
		t.Errorf("the third of two got %q, %v", got, err)
	}
	ask(t, dial(t, open), "c")
	b.Close()
	e.wantReserved(t, 2, 0)
	ask(t, dial(t, small), "again")
	reserve := e.Connections().Reserver(1)
	release := reserve(&net.TCPAddr{}, &net.TCPAddr{})
	if release == nil || e.Connections().Reserver(1)(&net.TCPAddr{}, &net.TCPAddr{}) != nil {
		t.Error("four connections could not be reserved in all")
	}
	release()
	if release = reserve(&net.TCPAddr{}, &net.TCPAddr{}); release == nil {
		t.Fatal("a released connection still counts")
	}
	release()
	if st := e.Stats(); st.Refused != 2 {
		t.Errorf("stats %+v", st)
	}
}

// TestRefusing: a listener whose peers must prove who they are accepts while others refuse, those
// with TLS for anybody included, up to the limit.
func TestRefusing(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{MaxConnections: 3})
	var refusing atomic.Bool
	e.Connections().RefuseWhile(refusing.Load)
	plain, known := listen(t, e, ListenOptions{}, echo), listen(t, e, ListenOptions{TLS: own.Server}, echo)
	before := dial(t, plain)
	ask(t, before, "before")
	refusing.Store(true)
	if got, err := io.ReadAll(dial(t, plain)); len(got) > 0 || err != nil && !isReset(err) {
		t.Errorf("while it refuses, a connection got %q, %v", got, err)
	}
	open := own.Server().Clone()
	open.ClientAuth, open.VerifyConnection = tls.NoClientCert, nil
	anybody := listen(t, e, ListenOptions{TLS: func() *tls.Config { return open }}, echo)
	if got, err := io.ReadAll(dial(t, anybody)); len(got) > 0 || err != nil && !isReset(err) {
		t.Errorf("while it refuses, a connection to TLS for anybody got %q, %v", got, err)
	}
	if e.Connections().Reserver(0)(&net.TCPAddr{}, &net.TCPAddr{}) != nil {
		t.Error("a connection off the loops was reserved")
	}
	ask(t, before, "still open")
	for range 2 {
		ask(t, tls.Client(dial(t, known), own.Client()), "a known peer")
	}
	if got, err := io.ReadAll(dial(t, known)); len(got) > 0 || err != nil && !isReset(err) {
		t.Errorf("above the limit, a known peer got %q, %v", got, err)
	}
	refusing.Store(false)
	before.Close()
	e.wantReserved(t, 2, 0)
	ask(t, dial(t, plain), "again")
	if st := e.Stats(); st.Refused != 4 {
		t.Errorf("%d refusals counted, want 4", st.Refused)
	}
}

// TestPerSourceDefault: by default a source may have a quarter of the connections, except on this
// host.
func TestPerSourceDefault(t *testing.T) {
	e := start(t, Options{MaxConnections: 8})
	reserve := e.Connections().Reserver(0)
	at := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 9} }
	var releases []func()
	want := func(local, remote string, ok bool) {
		t.Helper()
		release := reserve(at(local), at(remote))
		if (release != nil) != ok {
			t.Errorf("from %s to %s: reserved %t, want %t", remote, local, release != nil, ok)
		}
		if release != nil {
			releases = append(releases, release)
		}
	}
	want("10.0.0.1", "10.0.0.9", true)
	want("10.0.0.1", "10.0.0.9", true)
	want("10.0.0.1", "10.0.0.9", false)
	want("10.0.0.1", "10.0.0.10", true)
	for range 3 {
		want("127.0.0.1", "127.0.0.1", true)
	}
	want("127.0.0.1", "10.0.0.9", true) // redirected by the kernel, on this host
	want("::1", "::1", true)
	e.wantReserved(t, 8, 2)
	if st := e.Stats(); st.RefusedSource != 1 {
		t.Errorf("stats %+v", st)
	}
	for _, release := range releases {
		release()
	}
	e.wantReserved(t, 0, 0)
}

// TestPerSourceOfFew: by default a source may have a connection, however few all may have.
func TestPerSourceOfFew(t *testing.T) {
	reserve := start(t, Options{MaxConnections: 3}).Connections().Reserver(0)
	local, remote := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9)}
	release := reserve(local, remote)
	if release == nil {
		t.Fatal("the first connection of a source was refused")
	}
	if reserve(local, remote) != nil {
		t.Error("a source has two connections of three")
	}
	release()
}

// TestAttribute: a source that is known late counts, except for a loopback address by default.
func TestAttribute(t *testing.T) {
	local, remote := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.9")
	for _, c := range []struct {
		limit  int
		source netip.Addr
		counts bool
	}{
		{0, remote, true},
		{0, local, false},
		{1, remote, true},
		{1, local, true},
	} {
		p := &Connections{max: sourceParts, maxFiles: sourceParts * connFiles}
		p.limitSources(c.limit)
		in := &listenerLimit{}
		for _, first := range []bool{true, false} {
			at, ok := p.reserve(netip.Addr{}, in, connFiles)
			if !ok {
				t.Fatal("a connection was refused before its source was known")
			}
			if at.attribute(c.source) != (first || !c.counts) {
				t.Errorf("with a limit of %d a connection of %s counts: %t; the first: %t", c.limit, c.source, !c.counts, first)
			}
		}
	}
}

// TestCountedSource: by default connections on this host count for no source, and neither do connections that the kernel has redirected.
func TestCountedSource(t *testing.T) {
	local, remote := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.9")
	loopback := dial(t, must.Listen(t).Addr().String())
	raw, err := loopback.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		limit              int
		loopback, wildcard bool
		onLoopback         bool // the connection
		from               netip.Addr
		counts             bool
	}{
		{0, false, false, false, remote, true},
		{0, false, false, false, local, false},
		{0, true, false, false, remote, false},
		{0, false, true, true, remote, false},
		{0, false, true, false, remote, true},
		{0, false, false, true, remote, true}, // nobody asks a listener at one address
		{5, true, true, true, local, true},
		{5, false, false, false, remote, true},
	} {
		e := start(t, Options{MaxPerSource: c.limit})
		l := &Listener{reactor: e, loopback: c.loopback, wildcard: c.wildcard}
		got := netip.Addr{}
		if err := raw.Control(func(fd uintptr) {
			of := int(fd)
			if !c.onLoopback {
				of = -1 // no connection
			}
			got = l.countedSource(of, c.from)
		}); err != nil {
			t.Fatal(err)
		}
		if got.IsValid() != c.counts || c.counts && got != c.from {
			t.Errorf("%+v: the source is %s", c, got)
		}
	}
}

// TestReservedHandshakes: a source of which a peer has proved who it is has further places for handshakes.
func TestReservedHandshakes(t *testing.T) {
	h := newHandshakes(1)
	h.places, h.reserved = fair.NewTable(1), fair.NewTable(1)
	source := netip.MustParseAddr("10.0.0.9")
	take := func(want bool) *fair.Place {
		t.Helper()
		place := h.take(source, func() { t.Error("a handshake gives way to another one of its source") })
		if (place != nil) != want {
			t.Errorf("got a place: %t", place != nil)
		}
		return place
	}
	check := func(want int) {
		t.Helper()
		if taken, most := h.inProgress(); taken != want || most != 2 {
			t.Errorf("%d of %d places are taken, want %d of 2", taken, most, want)
		}
	}
	first := take(true)
	take(false)
	check(1)
	h.know(source)
	second := take(true)
	take(false)
	check(2)
	first.Release()
	check(1)
	take(true).Release()
	second.Release()
	check(0)
}

// TestPerSourceKnownPeers: peers that have proved who they are by TLS may share an address, while
// one that has not counts.
func TestPerSourceKnownPeers(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{MaxPerSource: 1})
	e.SetHandshakeTimeout(time.Minute)
	addr := listen(t, e, ListenOptions{TLS: own.Server}, echo)
	for range 3 {
		c := dialFrom(t, "127.0.0.2", addr)
		ask(t, tls.Client(c, own.Client()), "a known peer")
	}
	e.wantReserved(t, 3, 0)
	dialFrom(t, "127.0.0.2", addr)
	e.wantReserved(t, 4, 1)
	if got, err := io.ReadAll(dialFrom(t, "127.0.0.2", addr)); len(got) > 0 || err != nil && !isReset(err) {
		t.Errorf("beside a handshake came %q, %v", got, err)
	}
	on(t, e.loops[0], e.loops[0].conns.end)
	e.wantReserved(t, 1, 1)
}

// TestDialsLeaveFiles: a dial for which other connections leave no descriptor fails at once. A
// connection that closes, and a dial that fails, leave theirs.
func TestDialsLeaveFiles(t *testing.T) {
	e := start(t, Options{})
	e.connections.maxFiles = 3
	l := e.loops[0]
	addr := listen(t, start(t, Options{}), ListenOptions{}, echo)
	dialOn := func(addr string) (loop.Conn, error) {
		opened, ended := make(chan loop.Conn, 1), make(chan error, 1)
		on(t, l, func() {
			l.Dial(addr, waitLimit, &stream{open: func(c loop.Conn) { opened <- c }, close: func(err error) { ended <- err }})
		})
		select {
		case c := <-opened:
			return c, nil
		case err := <-ended:
			return nil, err
		}
	}
	refusing := refusingAddr(t)
	for range 3 {
		if _, err := dialOn(refusing); err == nil || errors.Is(err, loop.ErrDialQueue) {
			t.Errorf("a dial to a closed port: %v", err)
		}
		if _, err := dialOn("255.255.255.255:1"); err == nil || errors.Is(err, loop.ErrDialQueue) { // no connection can be made to it
			t.Errorf("a dial to all hosts: %v", err)
		}
	}
	first, err := dialOn(addr)
	_, err2 := dialOn(addr)
	sock, err3 := e.SocketDialer().Dial(t.Context(), addr, "", "", nil)
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	if _, err := dialOn(addr); !errors.Is(err, loop.ErrDialQueue) {
		t.Errorf("a dial without a descriptor: %v", err)
	}
	if _, err := e.SocketDialer().Dial(t.Context(), addr, "", "", nil); !errors.Is(err, loop.ErrDialQueue) {
		t.Errorf("a socket without a descriptor: %v", err)
	}
	on(t, l, first.Close)
	sock.Close()
	for range 2 {
		if _, err := dialOn(addr); err != nil {
			t.Errorf("a dial with a descriptor: %v", err)
		}
	}
	on(t, l, l.conns.end)
	eventually(t, func() error {
		if n := e.connections.dialled.Load(); n != 0 {
			return fmt.Errorf("%d dialled connections are left", n)
		}
		return nil
	})
}
