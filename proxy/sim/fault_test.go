package sim

import (
	"bytes"
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

const (
	ms      = time.Millisecond
	address = "10.0.0.2:80"
)

// end is a Receiver that records its events.
type end struct {
	w      *World
	c      loop.Conn
	opened time.Duration // time of OnOpen; 0 means not yet
	last   time.Duration // time of the latest OnData
	got    int
	closed bool
	err    error
}

func (e *end) OnOpen(c loop.Conn) { e.c, e.opened = c, e.w.Now() }
func (e *end) OnData(b []byte)    { e.got += len(b); e.last = e.w.Now() }
func (e *end) OnClose(err error)  { e.closed, e.err = true, err }

// write sends n bytes from l, the loop of e.
func (e *end) write(l *Loop, n int) { l.Do(func() { e.c.Write(make([]byte, n)) }) }

// two is a world with loops a and b and, after connect, a connection.
type two struct {
	w      *World
	a, b   *Loop
	at, to *end // the ends at a and b; to is that of the latest connection
}

func newTwo(t *testing.T, seed uint64) *two {
	w := New(seed)
	w.OnFailure(t)
	p := &two{w: w, a: w.Loop("a"), b: w.Loop("b")}
	p.listen()
	return p
}

func (p *two) listen() {
	p.w.Net.Listen(address, p.b, func() loop.Receiver { p.to = &end{w: p.w}; return p.to })
}

func (p *two) dial(timeout time.Duration) {
	p.at = &end{w: p.w}
	p.a.Do(func() { p.a.Dial(address, timeout, p.at) })
}

func (p *two) connect(t *testing.T) {
	t.Helper()
	p.dial(0)
	if !p.w.RunUntil(func() bool { return p.at.opened > 0 && p.to != nil }, time.Second) {
		t.Fatal("no connection")
	}
}

// fixed sets latency without jitter, and bandwidth.
func (p *two) fixed(latency time.Duration, bandwidth int64) {
	p.w.Net.SetPaths(func(from, to string) Path { return Path{Latency: latency, Bandwidth: bandwidth} })
}

func (p *two) wantClosed(t *testing.T, who string, e *end, want error) {
	t.Helper()
	if !e.closed || !errors.Is(e.err, want) {
		t.Errorf("%s: closed=%t with %v, want %v", who, e.closed, e.err, want)
	}
}

func TestLatency(t *testing.T) {
	p := newTwo(t, 1)
	p.w.Net.SetPaths(func(from, to string) Path {
		if from == "a" {
			return Path{Latency: 5 * ms}
		}
		return Path{Latency: 20 * ms, Jitter: 10 * ms}
	})
	p.connect(t)
	if d := p.at.opened; d < 25*ms || d > 36*ms {
		t.Errorf("open after %v, want there and back", d)
	}
	sent := p.w.Now()
	p.at.write(p.a, 1)
	p.w.Run(time.Second)
	if d := p.to.last - sent; d < 5*ms || d > 6*ms {
		t.Errorf("data took %v, want 5 ms", d)
	}
}

func TestBandwidth(t *testing.T) {
	p := newTwo(t, 1)
	p.fixed(ms, 4<<20)
	p.connect(t)
	first := p.to
	second := &end{w: p.w}
	p.a.Do(func() { p.a.Dial(address, 0, second) })
	p.w.Run(100 * ms)
	start := p.w.Now()
	p.at.write(p.a, 4<<20)
	p.at.write(p.a, 1)
	second.write(p.a, 100)
	p.a.Do(func() {
		if n := p.at.c.Buffered(); n < 3<<20 {
			t.Errorf("%d bytes buffered of 4 MiB that take a second", n)
		}
	})
	p.w.Run(500 * ms)
	if got := first.got; got < 15<<17 || got > 17<<17 {
		t.Errorf("%d bytes after half of the time, want 2 MiB or so", got)
	}
	if p.to.got != 100 || p.to.last-start > 50*ms {
		t.Errorf("the other connection's short frame was delayed: %d bytes after %v", p.to.got, p.to.last-start)
	}
	p.w.Run(time.Second)
	if d := first.last - start; first.got != 4<<20+1 || d < time.Second || d > 1100*ms {
		t.Errorf("%d bytes in %v, want 4 MiB and 1 in a second", first.got, d)
	}
	p.a.Do(func() {
		if n := p.at.c.Buffered(); n != 0 {
			t.Errorf("%d bytes buffered after all has arrived", n)
		}
	})
}

func TestDialFaults(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(p *two)
		want error
	}{
		{"refused", func(p *two) { p.w.Net.SetPaths(func(_, _ string) Path { return Path{Refuse: 1} }) }, syscall.ECONNREFUSED},
		{"lost", func(p *two) { p.w.Net.SetPaths(func(_, _ string) Path { return Path{Lose: 1} }) }, syscall.ETIMEDOUT},
		{"blackhole", func(p *two) { p.w.Faults.Blackhole(address, true) }, syscall.ETIMEDOUT},
		{"partition", func(p *two) { p.w.Faults.Partition("a", "b") }, syscall.ETIMEDOUT},
		{"no response", func(p *two) { p.w.Faults.PartitionOneWay("b", "a") }, syscall.ETIMEDOUT},
		{"vanished", func(p *two) { p.w.Faults.Vanish(p.b) }, syscall.ETIMEDOUT},
		{"crashed", func(p *two) { p.w.Faults.Crash(p.b) }, syscall.ECONNREFUSED},
		{"reset", func(p *two) { p.w.Net.SetPaths(func(_, _ string) Path { return Path{Reset: 1} }) }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newTwo(t, 1)
			c.set(p)
			p.dial(50 * ms)
			p.w.Run(time.Second)
			if c.want == nil { // the handshake carries no data that Reset could hit
				if p.at.opened == 0 {
					t.Error("not open")
				}
				p.at.write(p.a, 1)
				p.w.Run(time.Second)
				p.wantClosed(t, "a", p.at, syscall.ECONNRESET)
				p.wantClosed(t, "b", p.to, syscall.ECONNRESET)
				return
			}
			p.wantClosed(t, "a", p.at, c.want)
			if p.at.opened > 0 {
				t.Error("OnOpen was called")
			}
			p.w.Run(5 * time.Second)
			if p.to != nil && !p.to.closed {
				p.w.Faults.Heal("a", "b")
				p.w.Run(time.Second)
				p.wantClosed(t, "b after the partition", p.to, syscall.ECONNRESET)
			}
		})
	}
}

func TestPartition(t *testing.T) {
	p := newTwo(t, 1)
	p.connect(t)
	p.w.Faults.PartitionOneWay("a", "b")
	p.at.write(p.a, 4<<20)
	p.to.write(p.b, 1000)
	p.w.Run(time.Minute)
	if p.to.got != 0 || p.at.got != 1000 {
		t.Errorf("b got %d bytes, want 0; a got %d, want 1000", p.to.got, p.at.got)
	}
	p.a.Do(func() {
		if p.at.c.Buffered() < 3<<20 {
			t.Errorf("%d bytes buffered of 4 MiB", p.at.c.Buffered())
		}
	})
	p.w.Faults.Heal("a", "b")
	p.w.Run(time.Minute + time.Second)
	if p.to.got != 4<<20 {
		t.Errorf("b got %d bytes after the partition, want all", p.to.got)
	}
	p.w.Faults.Partition("a", "b")
	p.at.write(p.a, 1)
	p.to.write(p.b, 1)
	p.w.Run(time.Minute)
	if p.to.got != 4<<20 || p.at.got != 1000 {
		t.Error("data came through a partition")
	}
	p.w.Faults.Heal("b", "a")
	p.w.Run(time.Minute + time.Second)
	if p.to.got != 4<<20+1 || p.at.got != 1001 {
		t.Errorf("after the second partition b got %d bytes and a %d, want all", p.to.got, p.at.got)
	}
	if p.at.closed || p.to.closed {
		t.Error("a partition closed the connection")
	}
}

func TestReset(t *testing.T) {
	for seed := range uint64(20) {
		p := newTwo(t, seed)
		p.connect(t)
		p.at.write(p.a, 1000)
		p.w.Faults.Reset(p.at.c)
		p.w.Run(time.Second)
		p.wantClosed(t, "a", p.at, syscall.ECONNRESET)
		p.wantClosed(t, "b", p.to, syscall.ECONNRESET)
		if p.to.got != 0 {
			t.Errorf("seed %d: %d bytes in transit arrived", seed, p.to.got)
		}
	}
}

// TestCrash checks that peers learn of a crash, that its timers don't fire, and that a
// restarted host has no state.
func TestCrash(t *testing.T) {
	for _, unread := range []bool{false, true} {
		p := newTwo(t, 1)
		p.connect(t)
		timer := loop.Timer{Fire: func() { t.Error("a timer fired after the crash") }}
		p.b.Do(func() { p.b.After(time.Second, &timer) })
		want := io.EOF
		if unread {
			want = syscall.ECONNRESET
			p.w.Faults.PauseReading(p.to.c, true)
			p.at.write(p.a, 1000)
			p.w.Run(time.Second / 2)
		}
		p.b.Post(func() { t.Error("a post ran after the crash") })
		p.w.Faults.Crash(p.b)
		p.b.Post(func() { t.Error("a post ran after the crash") })
		p.w.Run(2 * time.Second)
		p.wantClosed(t, "a", p.at, want)
		if p.to.closed || timer.Armed() {
			t.Errorf("the crashed loop: OnClose=%t, timer armed=%t", p.to.closed, timer.Armed())
		}
		p.b = p.w.Loop("b")
		p.listen()
		p.connect(t)
	}
}

// TestVanish checks that peers hear nothing of a vanished host until it is back and they
// send to it, which causes a reset.
func TestVanish(t *testing.T) {
	for _, sends := range []bool{true, false} {
		p := newTwo(t, 1)
		p.connect(t)
		p.w.Faults.Vanish(p.b)
		if sends {
			p.at.write(p.a, 1000)
		}
		p.w.Run(time.Hour)
		if p.at.closed {
			t.Fatal("the connection to a vanished host closed")
		}
		p.w.Loop("b")
		p.w.Run(time.Second)
		if p.at.closed != sends {
			t.Errorf("closed=%t after the restart, sent before: %t", p.at.closed, sends)
		}
		if !sends {
			p.at.write(p.a, 1000)
			p.w.Run(time.Second)
		}
		p.wantClosed(t, "a", p.at, syscall.ECONNRESET)
	}
}

// TestPause checks that nothing happens on a paused loop, while its kernel continues.
func TestPause(t *testing.T) {
	p := newTwo(t, 1)
	p.connect(t)
	end := p.w.Now() + 100*ms
	fired := time.Duration(0)
	timer := loop.Timer{Fire: func() { fired = p.w.Now() }}
	p.b.Do(func() { p.b.After(10*ms, &timer) })
	p.w.Faults.Pause(p.b, end-p.w.Now())
	to := p.to
	p.at.write(p.a, 1000)
	p.dial(50 * ms)
	p.w.Run(90 * ms)
	if to.got != 0 || fired != 0 {
		t.Errorf("while paused: %d bytes, timer at %v", to.got, fired)
	}
	if p.at.opened == 0 {
		t.Error("the kernel of a paused process does not accept a dial")
	}
	p.w.Run(20 * ms)
	if to.got != 1000 || to.last < end || fired < end || fired > end+ms {
		t.Errorf("after the pause: %d bytes at %v, timer at %v, pause to %v", to.got, to.last, fired, end)
	}
}

func TestPauseReading(t *testing.T) {
	p := newTwo(t, 1)
	p.connect(t)
	p.w.Faults.PauseReading(p.to.c, true)
	p.at.write(p.a, 4<<20)
	p.to.write(p.b, 4<<20) // b has turns meanwhile
	p.w.Run(time.Minute)
	p.a.Do(func() {
		want := 4<<20 - p.w.Options.SendBuffer - p.w.Options.ReceiveBuffer
		if n := p.at.c.Buffered(); n != want || p.to.got != 0 {
			t.Errorf("%d bytes buffered, %d read; want %d and none", n, p.to.got, want)
		}
	})
	p.w.Faults.PauseReading(p.to.c, false)
	p.w.Run(time.Second)
	if p.to.got != 4<<20 {
		t.Errorf("%d bytes read after all", p.to.got)
	}
}

func TestHalfClose(t *testing.T) {
	p := newTwo(t, 1)
	p.connect(t)
	p.at.write(p.a, 4<<20)
	p.w.Faults.HalfClose(p.at.c)
	p.w.Run(time.Second)
	if p.to.got != 4<<20 {
		t.Errorf("%d bytes before the end of file, want all", p.to.got)
	}
	p.wantClosed(t, "b", p.to, io.EOF)
	p.wantClosed(t, "a", p.at, io.EOF)
}

// TestCloseWithUnread checks that close(2) with unread input destroys the response.
func TestCloseWithUnread(t *testing.T) {
	p := newTwo(t, 1)
	p.connect(t)
	p.w.Faults.PauseReading(p.to.c, true)
	p.at.write(p.a, 1000)
	p.w.Run(time.Second)
	p.b.Do(func() { p.to.c.Close() })
	p.w.Run(time.Second)
	p.wantClosed(t, "a", p.at, syscall.ECONNRESET)
	p.wantClosed(t, "b", p.to, nil)
}

// TestResetKeepsOrder checks that a reset may destroy unread bytes, but that the bytes
// read before it are the first ones sent.
func TestResetKeepsOrder(t *testing.T) {
	sent := []byte("0123456789abcdefghijkl")
	for seed := range uint64(500) {
		w := New(seed)
		w.Options.Cut = 0.7
		w.Net.Listen("10.0.0.2:80", w.Loop("b"), func() loop.Receiver {
			var c loop.Conn
			return &script{
				open: func(conn loop.Conn) { c = conn },
				data: func([]byte) { c.Write(sent); c.Close() }, // with input still unread
			}
		})
		var received []byte
		a := w.Loop("a")
		a.Do(func() {
			a.Dial("10.0.0.2:80", 0, &script{
				open: func(c loop.Conn) { c.Write(make([]byte, 100_000)) },
				data: func(b []byte) { received = append(received, b...) },
			})
		})
		w.Run(5 * time.Second)
		if !bytes.HasPrefix(sent, received) {
			t.Errorf("seed %d: received %q of %q", seed, received, sent)
		}
	}
}

// TestLateDataCausesReset checks that data to a closed connection causes a reset.
func TestLateDataCausesReset(t *testing.T) {
	p := newTwo(t, 1)
	p.fixed(10*ms, 0)
	p.connect(t)
	p.w.Run(time.Second)
	p.w.Faults.PauseReading(p.at.c, true) // a does not see b's end of file
	p.b.Do(func() { p.to.c.Close() })
	p.at.write(p.a, 1000)
	p.w.Run(time.Second)
	p.wantClosed(t, "a", p.at, syscall.ECONNRESET)
}

// verifiedEnd is an end that hears when the certificate of its peer is no longer accepted.
type verifiedEnd struct {
	end
	untrusted int
}

func (e *verifiedEnd) OnUntrusted() { e.untrusted++ }

// TestDistrust: an end that can tell what becomes of a peer that is no longer accepted is told. The connection of another end
// closes.
func TestDistrust(t *testing.T) {
	for _, tells := range []bool{true, false} {
		p := newTwo(t, 1)
		verified := &verifiedEnd{end: end{w: p.w}}
		if tells {
			p.w.Net.Listen("10.0.0.2:81", p.b, func() loop.Receiver { return verified })
			p.at = &end{w: p.w}
			p.a.Do(func() { p.a.Dial("10.0.0.2:81", time.Second, p.at) })
		} else {
			p.dial(time.Second)
		}
		p.w.Run(100 * ms)
		p.w.Faults.Distrust(p.at.c)
		p.w.Run(100 * ms)
		if told := verified.untrusted == 1; told != tells || p.at.closed == tells {
			t.Errorf("told %d times, the connection is closed: %t", verified.untrusted, p.at.closed)
		}
	}
}
