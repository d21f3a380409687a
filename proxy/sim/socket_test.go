package sim

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// detached is a connection whose end at a has become a Socket.
func detached(t *testing.T, seed uint64) (p *two, s loop.Socket) {
	t.Helper()
	p = newTwo(t, seed)
	p.w.Options.Sockets = true
	p.connect(t)
	p.a.Do(func() {
		var err error
		if s, err = p.at.c.Detach(); err != nil {
			t.Fatal(err)
		}
	})
	if p.wantClosed(t, "a", p.at, nil); s.Secure() {
		t.Error("the simulation encrypts")
	}
	return p, s
}

// wantRead checks a read of at most n bytes.
func wantRead(t *testing.T, s loop.Socket, n, want int, failure error) {
	t.Helper()
	if got, err := s.Read(make([]byte, n)); got != want || !errors.Is(err, failure) {
		t.Errorf("read %d bytes, %v; want %d and %v", got, err, want, failure)
	}
}

// wantWritten checks a write of n bytes.
func wantWritten(t *testing.T, s loop.Socket, n, want int, failure error) {
	t.Helper()
	if got, err := s.Write(make([]byte, n)); got != want || !errors.Is(err, failure) {
		t.Errorf("wrote %d bytes, %v; want %d and %v", got, err, want, failure)
	}
}

// TestSocket: a Socket has the rest of the stream in both directions, each with its end.
func TestSocket(t *testing.T) {
	p, s := detached(t, 1)
	wantRead(t, s, 10, 0, ErrWouldBlock)
	p.to.write(p.b, 1000)
	p.w.Run(time.Second)
	wantRead(t, s, 300, 300, nil)
	wantRead(t, s, 1000, 700, nil)
	wantRead(t, s, 1, 0, ErrWouldBlock)
	wantWritten(t, s, 500, 500, nil)
	p.w.Run(time.Second)
	if p.to.got != 500 {
		t.Errorf("the peer got %d bytes", p.to.got)
	}
	p.to.write(p.b, 1000)
	p.w.Faults.HalfClose(p.to.c)
	p.w.Run(time.Second)
	wantRead(t, s, 1000, 1000, nil)
	wantRead(t, s, 1, 0, io.EOF)
	wantWritten(t, s, 5, 5, nil)
	if err := s.CloseWrite(); err != nil {
		t.Error(err)
	}
	wantWritten(t, s, 1, 0, syscall.ECONNRESET)
	p.w.Run(time.Second)
	if p.to.got != 505 {
		t.Errorf("the peer got %d bytes", p.to.got)
	}
	p.wantClosed(t, "b", p.to, io.EOF)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	s.Reset() // does nothing
	p.w.Run(time.Second)
	if left := p.w.Leftovers(); left != nil {
		t.Errorf("left over: %q", left)
	}
}

// TestSocketBytes: the bytes are those that were sent, in pieces.
func TestSocketBytes(t *testing.T) {
	p, s := detached(t, 1)
	sent := make([]byte, 300<<10)
	for i := range sent {
		sent[i] = byte(i ^ i>>8)
	}
	p.b.Do(func() { p.to.c.Write(sent) })
	var got []byte
	for b := make([]byte, 10<<10); len(got) < len(sent); {
		p.w.Run(ms)
		n, err := s.Read(b)
		if err != nil && err != ErrWouldBlock {
			t.Fatal(err)
		}
		got = append(got, b[:n]...)
	}
	if !bytes.Equal(got, sent) {
		t.Error("other bytes came")
	}
}

// TestSocketRoom: a write that finds room in the kernel is taken whole, and one that finds none is not.
func TestSocketRoom(t *testing.T) {
	p, s := detached(t, 1)
	p.w.Faults.PauseReading(p.to.c, true)
	wantWritten(t, s, p.w.Options.SendBuffer+p.w.Options.ReceiveBuffer, p.w.Options.SendBuffer+p.w.Options.ReceiveBuffer, nil)
	p.w.Run(time.Second)
	wantWritten(t, s, 1, 0, ErrWouldBlock)
	p.w.Faults.PauseReading(p.to.c, false)
	p.w.Run(time.Second)
	wantWritten(t, s, 1, 1, nil)
	p.w.Run(time.Second)
	if want := p.w.Options.SendBuffer + p.w.Options.ReceiveBuffer + 1; p.to.got != want {
		t.Errorf("the peer got %d bytes, want %d", p.to.got, want)
	}
}

// TestSocketEnds: the peer of a Socket tells a reset from a close, and a Socket tells those of its peer.
func TestSocketEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(p *two, s loop.Socket)
		peer error // with which the peer's connection closes
		read error // of the Socket afterwards
	}{
		{"Close", func(_ *two, s loop.Socket) { _ = s.Close() }, io.EOF, nil},
		{"Reset", func(_ *two, s loop.Socket) { s.Reset() }, syscall.ECONNRESET, nil},
		{"Close with input", func(p *two, s loop.Socket) { p.to.write(p.b, 1); p.w.Run(time.Second); _ = s.Close() }, syscall.ECONNRESET, nil},
		{"the peer's Close", func(p *two, _ loop.Socket) { p.b.Do(func() { p.to.c.Close() }) }, nil, io.EOF},
		{"the peer's reset", func(p *two, _ loop.Socket) { p.b.Do(func() { Abort(p.to.c) }) }, nil, syscall.ECONNRESET},
		{"the network's", func(p *two, _ loop.Socket) { p.w.Faults.Reset(p.to.c) }, syscall.ECONNRESET, syscall.ECONNRESET},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, s := detached(t, 1)
			c.do(p, s)
			p.w.Run(time.Second)
			if p.wantClosed(t, "b", p.to, c.peer); c.read == nil {
				return
			}
			wantRead(t, s, 1, 0, c.read)
			if c.read == syscall.ECONNRESET {
				wantWritten(t, s, 1, 0, syscall.ECONNRESET)
			}
			s.Reset()
			_ = s.Close()
			p.w.Run(time.Second)
			if left := p.w.Leftovers(); left != nil {
				t.Errorf("left over: %q", left)
			}
		})
	}
}

// TestDetachRefused: a connection that can't leave its loop says why, and goes on.
func TestDetachRefused(t *testing.T) {
	refusal := errors.New("not now")
	p := newTwo(t, 1)
	p.connect(t)
	detach := func(want error) {
		t.Helper()
		p.a.Do(func() {
			if s, err := p.at.c.Detach(); s != nil || !errors.Is(err, want) {
				t.Errorf("%v, %v; want %v", s, err, want)
			}
		})
	}
	detach(errors.ErrUnsupported)
	p.w.Options.Sockets = true
	p.w.Options.OnDetach = func() error { return refusal }
	detach(refusal)
	p.w.Options.OnDetach = func() error { return nil }
	p.w.Faults.PauseReading(p.to.c, true)
	p.at.write(p.a, 4<<20)
	detach(loop.ErrDetachBuffered)
	p.w.Faults.PauseReading(p.to.c, false)
	p.w.Run(time.Second)
	if p.to.got != 4<<20 || p.at.closed {
		t.Errorf("the peer got %d bytes; closed: %t", p.to.got, p.at.closed)
	}
	p.a.Do(func() { p.at.c.Close() })
	detach(loop.ErrDetachClosed)
}

// TestDetachBeforeReset: a connection may leave its loop while a reset is on its way. The Socket reads the reset.
func TestDetachBeforeReset(t *testing.T) {
	p := newTwo(t, 1)
	p.w.Options.Sockets = true
	p.connect(t)
	p.w.Faults.Reset(p.to.c)
	var s loop.Socket
	p.a.Do(func() {
		var err error
		if s, err = p.at.c.Detach(); err != nil {
			t.Fatal(err)
		}
	})
	p.w.Run(time.Second)
	wantRead(t, s, 1, 0, syscall.ECONNRESET)
}

// stayer is an end that stays after the end of its input.
type stayer struct{ end }

func (*stayer) OnEnd() bool { return true }

// TestHasInput: bytes that were not read are input, and so is an end. A connection that has ended has none.
func TestHasInput(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(p *two)
		want bool

		closed bool // the connection, then
	}{
		{"nothing", func(*two) {}, false, false},
		{"bytes", func(p *two) { p.to.write(p.b, 1) }, true, false},
		{"an end", func(p *two) { p.b.Do(func() { p.to.c.Close() }) }, true, false},
		{"a reset", func(p *two) { p.b.Do(func() { Abort(p.to.c) }) }, false, true},
		{"closed here", func(p *two) { p.to.write(p.b, 1); p.w.Run(ms); p.a.Do(func() { p.at.c.Close() }) }, false, true},
		{"draining here", func(p *two) { p.to.write(p.b, 1); p.w.Run(ms); p.a.Do(func() { p.at.c.Drain() }) }, false, false},
	} {
		p := newTwo(t, 1)
		p.connect(t)
		p.w.Faults.PauseReading(p.at.c, true)
		c.do(p)
		p.w.Run(ms)
		p.a.Do(func() {
			if got := p.at.c.HasInput(); got != c.want || p.at.closed != c.closed {
				t.Errorf("%s: has input %t, closed %t", c.name, got, p.at.closed)
			}
		})
	}
	p := newTwo(t, 1)
	at := &stayer{end{w: p.w}}
	p.a.Do(func() { p.a.Dial(address, 0, at) })
	p.w.Run(ms)
	p.w.Faults.HalfClose(p.to.c)
	p.w.Run(ms)
	p.a.Do(func() {
		if at.closed || at.c.HasInput() {
			t.Errorf("after an end that was told: closed %t, has input %t", at.closed, at.c.HasInput())
		}
	})
}

// TestAbort: a peer can tell that a connection was aborted.
func TestAbort(t *testing.T) {
	p := newTwo(t, 1)
	p.connect(t)
	p.a.Do(func() { Abort(p.at.c) })
	p.w.Run(time.Second)
	p.wantClosed(t, "a", p.at, nil)
	p.wantClosed(t, "b", p.to, syscall.ECONNRESET)
}

// TestRedirect: a dial to a redirected address arrives where it was redirected, with the address that was dialled.
func TestRedirect(t *testing.T) {
	const virtual = "192.0.2.1:80"
	p := newTwo(t, 1)
	p.w.Net.Redirect(virtual, address)
	at := &end{w: p.w}
	p.a.Do(func() { p.a.Dial(virtual, 0, at) })
	p.w.Run(time.Second)
	if at.opened == 0 || p.to == nil {
		t.Fatal("no connection")
	}
	if got := p.to.c.OriginalDst(); got != netip.MustParseAddrPort(virtual) || at.c.RemoteAddr() != virtual {
		t.Errorf("a connection to %s has the original destination %s", at.c.RemoteAddr(), got)
	}
	if p.connect(t); p.to.c.OriginalDst().IsValid() || p.to.c.Protocol() != "" {
		t.Errorf("a connection that was not redirected has the original destination %s", p.to.c.OriginalDst())
	}
	if remote := p.to.c.RemoteAddr(); !netip.MustParseAddrPort(remote).IsValid() || remote == address {
		t.Errorf("the peer is at %s", remote)
	}
}

// TestListenClose: an address whose listener was closed refuses, its connections stay, and another listener may follow.
func TestListenClose(t *testing.T) {
	const other = "10.0.0.2:81"
	p := newTwo(t, 1)
	accept := func() loop.Receiver { p.to = &end{w: p.w}; return p.to }
	stop := p.w.Net.Listen(other, p.b, accept)
	dial := func(want error) *end {
		t.Helper()
		at := &end{w: p.w}
		p.a.Do(func() { p.a.Dial(other, 0, at) })
		p.w.Run(100 * ms)
		if (at.opened > 0) != (want == nil) || want != nil && !errors.Is(at.err, want) {
			t.Errorf("open at %v, %v; want %v", at.opened, at.err, want)
		}
		return at
	}
	first := dial(nil)
	stop()
	dial(syscall.ECONNREFUSED)
	if first.closed {
		t.Error("an accepted connection is closed")
	}
	p.w.Net.Listen(other, p.b, accept)
	stop()
	dial(nil)
}

// TestOnTurn: each turn says what was ready, and how many calls of the core it took.
func TestOnTurn(t *testing.T) {
	w := New(1)
	a := w.Loop("a")
	var got [][2]int
	w.OnTurn(func(l *Loop, ready, callbacks int) {
		if l != a || l.Name() != "a" {
			t.Errorf("a turn of %s", l.Name())
		}
		got = append(got, [2]int{ready, callbacks})
	})
	flush := loop.Flush{Do: func() {}}
	for range 3 {
		a.Post(func() { a.Defer(&flush) })
	}
	a.Do(func() { a.After(ms, &loop.Timer{Fire: func() {}}) })
	w.Run(time.Second)
	if want := [][2]int{{4, 5}, {1, 1}}; !slices.Equal(got, want) {
		t.Errorf("turns %v, want %v", got, want)
	}
}

// TestRunUntilAtOnce: a condition that holds already takes no time.
func TestRunUntilAtOnce(t *testing.T) {
	w := New(1)
	w.Loop("a").Post(func() { t.Error("the world has run") })
	if !w.RunUntil(func() bool { return true }, time.Hour) || w.Now() != 0 {
		t.Errorf("at %v", w.Now())
	}
}

// TestLongTrace: a failed test prints the last events, in order.
func TestLongTrace(t *testing.T) {
	w := New(1)
	var r reporter
	w.OnFailure(&r)
	for i := range traceLength + 100 {
		w.At(time.Duration(i), func() {})
	}
	w.Run(time.Second)
	r.cleanup()
	_, text, _ := strings.Cut(r.log, "\n")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != traceLength {
		t.Fatalf("%d lines", len(lines))
	}
	for i, line := range lines {
		if want := time.Duration(100+i).String() + " "; !strings.HasPrefix(strings.TrimSpace(line), want) {
			t.Fatalf("line %d is %q, want %q", i, line, want)
		}
	}
}

// TestDeadLoop: nothing runs on a loop that has crashed, and it leaves nothing.
func TestDeadLoop(t *testing.T) {
	p := newTwo(t, 1)
	p.connect(t)
	p.w.Faults.Crash(p.b)
	p.b.Post(func() { t.Error("a function has run") })
	p.w.Run(time.Second)
	if left := p.w.Leftovers(); left != nil {
		t.Errorf("left over: %q", left)
	}
}
