package reactor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/fair"
	"github.com/remora-proxy/remora/proxy/reactor/hello"
)

// clientHello returns the ClientHello of a peer, in its record.
func clientHello(t testing.TB, own *certs.Source) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		_ = tls.Client(client, own.Client()).Handshake()
		client.Close()
	}()
	b := make([]byte, hello.MaxSize)
	n, err := server.Read(b) // package tls writes it at once
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// listenWithNewcomers opens a listener with max places for newcomers.
func listenWithNewcomers(t *testing.T, e *Reactor, own *certs.Source, max int) *Listener {
	t.Helper()
	l := listenEcho(t, e, ListenOptions{TLS: own.Server})
	l.newcomers.Resize(max)
	return l
}

// awaitNewcomers waits until n connections of l have not said their ClientHello.
func awaitNewcomers(t *testing.T, l *Listener, n int) {
	t.Helper()
	eventually(t, func() error {
		if got := l.newcomers.Taken(); got != n {
			return fmt.Errorf("%d newcomers, want %d", got, n)
		}
		return nil
	})
}

// TestNewcomersGiveWay: connections that have said no whole ClientHello hold no handshake and
// no goroutine. When their places are taken, the oldest of the largest source is closed.
func TestNewcomersGiveWay(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{})
	l := listenWithNewcomers(t, e, own, 3)
	addr := l.Addr().String()
	half := clientHello(t, own)[:100]
	other := dialFrom(t, "127.0.0.2", addr)
	awaitNewcomers(t, l, 1)
	var silent []net.Conn
	all := map[*newcomer]bool{}
	for i := range 6 {
		c := dial(t, addr)
		must.Write(t, c, half)
		silent = append(silent, c)
		awaitNewcomers(t, l, min(i+2, 3))
		on(t, e.loops[0], func() {
			for n := range e.loops[0].newcomers {
				all[n] = true
			}
		})
	}
	for _, c := range silent[:4] {
		if b, err := io.ReadAll(c); len(b) > 0 || err != nil && !isReset(err) {
			t.Errorf("it ended with %q, %v", b, err)
		}
	}
	awaitFailure(t, e, CodeSilent, 4)
	awaitHandshakes(t, e, 0)
	for _, c := range []net.Conn{other, dial(t, addr)} {
		if got := ask(t, tls.Client(c, own.Client()), "hello"); got != "hello" {
			t.Errorf("got %q", got)
		}
	}
	for _, c := range silent {
		c.Close()
	}
	awaitNewcomers(t, l, 0)
	on(t, e.loops[0], func() {
		for n := range all {
			if n.state == newcomerLeft && (n.input != nil || n.timer.Armed() || n.fd >= 0) {
				t.Errorf("one that has left holds %d bytes and descriptor %d, its timer is armed: %t", len(n.input), n.fd, n.timer.Armed())
			}
		}
	})
	if st := e.Stats(); st.Handshakes != 2 || st.TLSFailures[CodeBusy] > 0 {
		t.Errorf("%+v", st)
	}
}

// TestNewcomersCost: a newcomer has no goroutine.
func TestNewcomersCost(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{})
	l := listenWithNewcomers(t, e, own, 100)
	before := runtime.NumGoroutine()
	for range 100 {
		dial(t, l.Addr().String())
	}
	awaitNewcomers(t, l, 100)
	eventually(t, func() error {
		if n := runtime.NumGoroutine(); n > before+20 {
			return fmt.Errorf("%d goroutines, %d before", n, before)
		}
		return nil
	})
}

// TestNewcomersInPieces: a ClientHello may arrive in any pieces, in one piece with what
// follows, and fragmented over records.
func TestNewcomersInPieces(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{})
	addr := listen(t, e, ListenOptions{TLS: own.Server}, echo)
	for _, size := range []int{1, 5, 100} {
		c := tls.Client(&pieces{TCPConn: dial(t, addr), size: size}, own.Client())
		if got := ask(t, c, "hello"); got != "hello" {
			t.Errorf("in pieces of %d bytes: %q", size, got)
		}
		c.Close()
	}
	eventually(t, func() error {
		if st := e.Stats(); st.Open != 0 || st.Inbound != 0 || len(st.TLSFailures) > 0 {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
}

// pieces is a connection whose first write is split, over records too.
type pieces struct {
	*net.TCPConn
	size int
	done bool
}

func (p *pieces) Write(b []byte) (int, error) {
	if p.done {
		return p.TCPConn.Write(b)
	}
	p.done = true
	_ = p.SetNoDelay(true)
	for rest := b[5:]; len(rest) > 0; {
		n := min(len(rest), p.size)
		for _, part := range [][]byte{{22, 3}, {1, 0, byte(n)}, rest[:n]} {
			if _, err := p.TCPConn.Write(part); err != nil {
				return 0, err
			}
		}
		rest = rest[n:]
	}
	return len(b), nil
}

// TestNewcomersRefused: TLS that begins with no ClientHello gets an alert at once. The connection is closed after a moment, although its peer
// stays.
func TestNewcomersRefused(t *testing.T) {
	e := start(t, Options{})
	e.SetHandshakeTimeout(time.Hour)
	l := listenWithNewcomers(t, e, NewIdentity(t), 10)
	c := dial(t, l.Addr().String())
	_, _ = c.Write([]byte{22, 3, 1, 0, 5, 2, 0, 0, 1, 0})
	if b, err := io.ReadAll(c); err != nil || string(b) != "\x15\x03\x03\x00\x02\x02\x0a" {
		t.Errorf("read %q, %v", b, err)
	}
	awaitReset(t, c)
	awaitFailure(t, e, CodeFailed, 1)
	awaitNewcomers(t, l, 0)
}

// TestNewcomersStop: Stop closes newcomers, which are then no longer counted.
func TestNewcomersStop(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{})
	l := listenWithNewcomers(t, e, own, 10)
	c := dial(t, l.Addr().String())
	begun := dial(t, l.Addr().String())
	_, _ = begun.Write(clientHello(t, own))
	awaitHandshakes(t, e, 1)
	awaitNewcomers(t, l, 1)
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{c, begun} {
		_, _ = io.Copy(io.Discard, c) // ends
	}
	if st := e.Stats(); st.Open != 0 || st.Inbound != 0 || len(st.TLSFailures) > 0 {
		t.Errorf("%+v", st)
	}
}

// TestNewcomerDuringStop: a connection whose ClientHello becomes whole after Stop has begun is closed at once, and is no failure.
func TestNewcomerDuringStop(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{})
	l := listenWithNewcomers(t, e, own, 10)
	hello := clientHello(t, own)
	c := dial(t, l.Addr().String())
	must.Write(t, c, hello[:10])
	awaitNewcomers(t, l, 1)
	release, stopped := make(chan struct{}), make(chan error, 1)
	if !e.spawn(func() { <-release }) { // Stop waits for it
		t.Fatal("the reactor has stopped")
	}
	go func() { stopped <- e.Stop(context.Background()) }()
	recv(t, e.ctx.Done(), "Stop to begin")
	must.Write(t, c, hello[10:])
	ends(t, c)
	close(release)
	if err := recv(t, stopped, "Stop"); err != nil {
		t.Error(err)
	}
	if st := e.Stats(); st.Open != 0 || st.Inbound != 0 || len(st.TLSFailures) > 0 {
		t.Errorf("%+v", st)
	}
}

func TestPlacesFor(t *testing.T) {
	for _, c := range []struct {
		all, listener int64
		want          int
	}{{16384, 0, 1024}, {1000, 0, 500}, {16384, 100, 50}, {1, 0, 1}, {16384, 1, 1}} {
		if got := placesFor(c.all, c.listener); got != c.want {
			t.Errorf("%d places for %d and %d, want %d", got, c.all, c.listener, c.want)
		}
	}
}

// TestLongHello: a ClientHello is read to its end, whatever a turn takes of it.
func TestLongHello(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{})
	on(t, e.loops[0], func() { e.loops[0].input = e.loops[0].input[:16] })
	addr := listen(t, e, ListenOptions{TLS: own.Server}, echo)
	c := tls.Client(dial(t, addr), own.Client())
	if got := ask(t, c, "hello"); got != "hello" {
		t.Errorf("echo %q", got)
	}
}

// TestLastReadEnds: a newcomer that ends by the last read of an event is not touched afterwards.
func TestLastReadEnds(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{})
	e.handshakes.places = fair.NewTable(0)
	hello := clientHello(t, own)
	on(t, e.loops[0], func() { e.loops[0].input = e.loops[0].input[:(len(hello)+maxReads-1)/maxReads] })
	c := dial(t, listen(t, e, ListenOptions{TLS: own.Server}, echo))
	must.Write(t, c, hello)
	if b, err := io.ReadAll(c); len(b) > 0 || err != nil && !isReset(err) {
		t.Errorf("it ended with %q, %v", b, err)
	}
	awaitFailure(t, e, CodeBusy, 1)
	on(t, e.loops[0], func() {}) // after the event
	if st := e.Stats(); st.Panics > 0 || st.Inbound != 0 || st.Open != 0 {
		t.Errorf("%+v", st)
	}
}

// TestTLSHandshakesOfMany: with a handshake for each source, one that waits for its peer gives way to a new
// source. Known peers have places of their own.
func TestTLSHandshakesOfMany(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{})
	e.handshakes.places, e.handshakes.reserved = fair.NewTable(4), fair.NewTable(1)
	addr := listen(t, e, ListenOptions{TLS: own.Server}, echo)
	hello := clientHello(t, own)
	greet := func(from string) {
		if got := ask(t, tls.Client(dialFrom(t, from, addr), own.Client()), "hello"); got != "hello" {
			t.Errorf("%s got %q", from, got)
		}
	}
	greet("127.0.0.2")
	awaitHandshakes(t, e, 0)
	var begun []net.Conn
	for i := range 4 {
		c := dialFrom(t, fmt.Sprintf("127.0.0.1%d", i), addr)
		_, _ = c.Write(hello)
		awaitWaiting(t, e, i+1) // the handshake waits for the client, and longer than the next
		begun = append(begun, c)
	}
	greet("127.0.0.2")
	if n := e.Stats().TLSFailures[CodeBusy]; n != 0 {
		t.Errorf("a known peer took %d places of others", n)
	}
	for i := range 2 {
		greet(fmt.Sprintf("127.0.0.%d", 3+i))
		awaitFailure(t, e, CodeBusy, int64(i+1))
		if b, err := io.ReadAll(begun[i]); err != nil && !isReset(err) {
			t.Errorf("the oldest read %d bytes, %v", len(b), err)
		}
		c := dialFrom(t, fmt.Sprintf("127.0.0.2%d", i), addr)
		_, _ = c.Write(hello)
		awaitWaiting(t, e, 4)
	}
}

// awaitWaiting waits until so many handshakes wait for their peers.
func awaitWaiting(t *testing.T, e *Reactor, n int) {
	t.Helper()
	eventually(t, func() error {
		if got := e.handshakes.places.Idle(); got != n {
			return fmt.Errorf("%d handshakes wait for their peers, want %d", got, n)
		}
		return nil
	})
}

// TestRefusedHelloHoldsNothing: a peer whose ClientHello is malformed holds no input while its end is awaited.
func TestRefusedHelloHoldsNothing(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{})
	l := e.loops[0]
	addr := listen(t, e, ListenOptions{TLS: own.Server}, echo)
	first := clientHello(t, own)[:5]
	eventually(t, func() error { // again if the connection has waited too long
		c := dial(t, addr)
		defer c.Close()
		must.Write(t, c, first)
		var n *newcomer
		eventually(t, func() error {
			on(t, l, func() {
				for other := range l.newcomers {
					if len(other.input) == len(first) {
						n = other
					}
				}
			})
			if n == nil {
				return errors.New("the first part is not read")
			}
			return nil
		})
		must.Write(t, c, "\x02no ClientHello")
		if _, err := io.ReadAll(c); err != nil {
			return err
		}
		err := error(nil)
		on(t, l, func() {
			if n.state != newcomerRefused {
				err = errors.New("it does not wait for the peer's end")
			} else if n.input != nil {
				t.Errorf("it holds %d bytes", len(n.input))
			}
		})
		return err
	})
}
