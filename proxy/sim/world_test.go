package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// mesh runs a few hosts that exchange data all the time, with every kind of fault, and
// returns the hash of the run.
func mesh(t *testing.T, seed uint64) uint64 {
	const hosts = 5
	w := New(seed)
	w.OnFailure(t)
	w.Net.SetPaths(func(from, to string) Path {
		p := DefaultPaths(from, to)
		p.Bandwidth, p.Reset, p.Refuse = 50<<20, 0.001, 0.01
		return p
	})
	addr := func(i int) string { return fmt.Sprintf("10.0.0.%d:80", i) }
	for i := range hosts {
		echoTo(w, addr(i), w.Loop(fmt.Sprint("host", i)))
	}
	for i := range hosts {
		l := w.Loop(fmt.Sprint("host", i))
		l.Post(func() {
			for k := range hosts {
				newChatter(w, l, addr(k)).dial()
			}
		})
	}
	r := w.Rand()
	for at := 5 * time.Millisecond; at < 200*time.Millisecond; at += 5 * time.Millisecond {
		a, b := fmt.Sprint("host", r.IntN(hosts)), fmt.Sprint("host", r.IntN(hosts))
		w.At(at, []func(){
			func() { w.Faults.Pause(w.Loop(a), 8*time.Millisecond) },
			func() { w.Faults.Partition(a, b) },
			func() { w.Faults.Heal(a, b) },
			func() { w.Faults.ResetAll(a, b) },
		}[r.IntN(4)])
	}
	w.At(100*time.Millisecond, func() { w.Faults.Crash(w.Loop("host1")) })
	w.At(110*time.Millisecond, func() { echoTo(w, addr(1), w.Loop("host1")) })
	w.At(140*time.Millisecond, func() { w.Faults.Vanish(w.Loop("host2")) })
	w.At(160*time.Millisecond, func() { w.Loop("host2") })
	w.Run(200 * time.Millisecond)
	return w.Hash()
}

// chatter sends lines that are echoed, checks them, and dials again when its
// connection breaks.
type chatter struct {
	w     *World
	l     *Loop
	addr  string
	c     loop.Conn
	sent  []byte
	again loop.Timer
}

func newChatter(w *World, l *Loop, addr string) *chatter {
	c := &chatter{w: w, l: l, addr: addr}
	c.again.Fire = c.dial
	return c
}

func (c *chatter) dial() { c.l.Dial(c.addr, 100*time.Millisecond, c) }

func (c *chatter) OnOpen(conn loop.Conn) { c.c, c.sent = conn, nil; c.send() }

func (c *chatter) send() {
	c.sent = slices.Repeat([]byte{byte(c.w.Rand().IntN(256))}, 1+c.w.Rand().IntN(5000))
	c.c.Write(c.sent)
}

func (c *chatter) OnData(b []byte) {
	for _, x := range b {
		if len(c.sent) == 0 || x != c.sent[0] {
			panic("sim: the echo differs from what was sent")
		}
		c.sent = c.sent[1:]
	}
	if len(c.sent) == 0 {
		c.send()
	}
}

func (c *chatter) OnClose(error) { c.l.After(10*time.Millisecond, &c.again) }

func TestSameSeedSameRun(t *testing.T) {
	seen := map[uint64]uint64{}
	for seed := range uint64(5) {
		first := mesh(t, seed)
		if second := mesh(t, seed); second != first {
			t.Fatalf("seed %d: hashes %016x and %016x", seed, first, second)
		}
		if other, ok := seen[first]; ok {
			t.Errorf("seeds %d and %d have the same hash", seed, other)
		}
		seen[first] = seed
	}
}

func TestMisusePanics(t *testing.T) {
	w := New(1)
	a, b := w.Loop("a"), w.Loop("b")
	echoTo(w, "10.0.0.2:80", b)
	var c loop.Conn
	a.Do(func() {
		a.Dial("10.0.0.2:80", 0, &script{open: func(conn loop.Conn) { c = conn }})
	})
	w.Run(time.Second)
	var timer loop.Timer
	var flush loop.Flush
	calls := map[string]func(){
		"Now":       func() { a.Now() },
		"After":     func() { a.After(0, &timer) },
		"Stop":      func() { a.Stop(&timer) },
		"Defer":     func() { a.Defer(&flush) },
		"Dial":      func() { a.Dial("10.0.0.2:80", 0, &script{}) },
		"Write":     func() { c.Write([]byte("x")) },
		"Close":     func() { c.Close() },
		"Drain":     func() { c.Drain() },
		"Buffered":  func() { c.Buffered() },
		"AwaitRoom": func() { c.AwaitRoom(0, nil) },
	}
	for name, call := range calls {
		t.Run(name+" outside", func(t *testing.T) { mustPanic(t, "outside of the callbacks of loop a", call) })
		t.Run(name+" from another loop", func(t *testing.T) {
			b.Do(func() { mustPanic(t, "outside of the callbacks of loop a", call) })
		})
	}
	for name, call := range map[string]func(){
		"Run":   func() { w.Run(1) },
		"Do":    func() { b.Do(func() {}) },
		"Crash": func() { w.Faults.Crash(b) },
		"Pause": func() { w.Faults.Pause(b, 1) },
		"Reset": func() { w.Faults.Reset(c) },
	} {
		t.Run(name+" inside", func(t *testing.T) {
			a.Do(func() { mustPanic(t, "inside a callback", call) })
		})
	}
	t.Run("nested callback", func(t *testing.T) {
		a.Do(func() { mustPanic(t, "inside one of loop a", b.enter) })
	})
	t.Run("address taken", func(t *testing.T) {
		mustPanic(t, "has a listener already", func() { echoTo(w, "10.0.0.2:80", a) })
	})
}

func mustPanic(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
			t.Errorf("panic %q, want one with %q", got, want)
		}
	}()
	f()
}

func TestDataIsPoisoned(t *testing.T) {
	w := New(1)
	var kept []byte
	echoTo(w, "10.0.0.2:80", w.Loop("b"))
	a := w.Loop("a")
	a.Do(func() {
		a.Dial("10.0.0.2:80", 0, &script{
			open: func(c loop.Conn) { c.Write([]byte("xxxx")) },
			data: func(b []byte) {
				if kept = b; cap(b) != len(b) {
					t.Error("OnData's slice has room for an append to be seen")
				}
			},
		})
	})
	w.Run(time.Second)
	for _, x := range kept {
		if x == 'x' {
			t.Fatal("a slice kept after OnData still has its bytes")
		}
	}
	if len(kept) == 0 {
		t.Fatal("no data")
	}
}

// TestStreamsArriveInPieces checks that a message arrives whole for some seeds, in pieces
// for others, and some with single bytes.
func TestStreamsArriveInPieces(t *testing.T) {
	whole, cut, single := 0, 0, 0
	for seed := range uint64(200) {
		w := New(seed)
		var reads []int
		w.Net.Listen("10.0.0.2:80", w.Loop("b"), func() loop.Receiver {
			return &script{data: func(b []byte) { reads = append(reads, len(b)) }}
		})
		a := w.Loop("a")
		a.Do(func() {
			a.Dial("10.0.0.2:80", 0, &script{open: func(c loop.Conn) { c.Write(make([]byte, 1000)) }})
		})
		w.Run(time.Second)
		switch {
		case len(reads) == 1:
			whole++
		default:
			cut++
		}
		if slices.Contains(reads, 1) {
			single++
		}
	}
	if whole < 50 || cut < 50 || single < 10 {
		t.Errorf("of 200 messages %d arrived whole, %d in pieces, %d with a single byte", whole, cut, single)
	}
}

// TestOrderWithinTurn checks that events that are ready at once are one turn, in any
// order.
func TestOrderWithinTurn(t *testing.T) {
	orders := map[string]bool{}
	for seed := range uint64(400) {
		w := New(seed)
		a, b := w.Loop("a"), w.Loop("b")
		var order string
		flush := loop.Flush{Do: func() { order += "f" }}
		for i := range 3 {
			addr := fmt.Sprint("10.0.0.2:", i)
			w.Net.Listen(addr, b, func() loop.Receiver {
				return &script{data: func([]byte) { order += fmt.Sprint(i); b.Defer(&flush) }}
			})
			write := loop.Timer{}
			a.Do(func() {
				a.Dial(addr, 0, &script{open: func(c loop.Conn) {
					write.Fire = func() { c.Write([]byte("x")) }
					a.After(time.Duration(10+i)*time.Millisecond, &write) // arrive one after another
				}})
			})
		}
		b.Do(func() { // due while the loop is paused
			b.After(11*time.Millisecond, &loop.Timer{Fire: func() { order += "t" }})
		})
		w.Run(5 * time.Millisecond)
		w.Faults.Pause(b, 20*time.Millisecond)
		w.Run(time.Second)
		orders[order] = true
	}
	if len(orders) != 24 { // all orders of four, then the flush
		t.Errorf("400 seeds gave only these orders: %v", orders)
	}
}

func TestAtKeepsOrderAndTime(t *testing.T) {
	w := New(1)
	var got []string
	for _, name := range []string{"a", "b", "c"} {
		w.At(time.Second, func() { got = append(got, name+w.Now().String()) })
	}
	w.Run(999 * time.Millisecond)
	if got != nil {
		t.Fatal("scripts ran before their time")
	}
	w.Run(time.Millisecond)
	if want := []string{"a1s", "b1s", "c1s"}; !slices.Equal(got, want) {
		t.Errorf("ran %v, want %v", got, want)
	}
}

func TestLeftovers(t *testing.T) {
	w := New(1)
	a := w.Loop("a")
	echoTo(w, "10.0.0.2:80", w.Loop("b"))
	timer := loop.Timer{Fire: func() {}}
	var c loop.Conn
	a.Do(func() {
		a.After(time.Hour, &timer)
		a.Dial("10.0.0.2:80", 0, &script{open: func(conn loop.Conn) { c = conn }})
	})
	w.Run(time.Second)
	a.Post(func() {})
	if left := w.Leftovers(); len(left) != 4 { // both ends, timer, post
		t.Errorf("left over: %q", left)
	}
	a.Do(func() { c.Close(); a.Stop(&timer) })
	w.Run(time.Second)
	if left := w.Leftovers(); left != nil {
		t.Errorf("left over at rest: %q", left)
	}
}

// reporter stands in for a test that failed.
type reporter struct {
	cleanup func()
	log     string
}

func (*reporter) Helper()                           {}
func (*reporter) Failed() bool                      { return true }
func (r *reporter) Logf(format string, args ...any) { r.log += fmt.Sprintf(format, args...) }
func (r *reporter) Cleanup(f func())                { r.cleanup = f }

func TestTraceOnFailure(t *testing.T) {
	w := New(4711)
	var r reporter
	w.OnFailure(&r)
	echoTo(w, "10.0.0.2:80", w.Loop("b"))
	a := w.Loop("a")
	a.Do(func() {
		a.Dial("10.0.0.2:80", 0, &script{open: func(c loop.Conn) { c.Write([]byte("x")) }})
	})
	w.Run(time.Second)
	r.cleanup()
	for _, want := range []string{"seed 4711", "dial", "open", "bytes=1"} {
		if !strings.Contains(r.log, want) {
			t.Errorf("%q is not in the trace of a failed test:\n%s", want, r.log)
		}
	}
}

// BenchmarkEcho reports callbacks per second. Each round trip has two.
func BenchmarkEcho(b *testing.B) {
	for _, conns := range []int{1, 100, 5000} {
		b.Run(fmt.Sprint(conns), func(b *testing.B) {
			w := New(1)
			w.Options.Cut = 0
			echoTo(w, "10.0.0.2:80", w.Loop("b"))
			a := w.Loop("a")
			events, line := 0, []byte("a short frame of forty bytes or so......")
			a.Do(func() {
				for range conns {
					var c loop.Conn
					a.Dial("10.0.0.2:80", 0, &script{
						open: func(conn loop.Conn) { c = conn; c.Write(line) },
						data: func([]byte) { events += 2; c.Write(line) },
					})
				}
			})
			w.Run(100 * time.Millisecond)
			b.ReportAllocs()
			b.ResetTimer()
			events = 0
			w.RunUntil(func() bool { return events >= b.N }, 1<<62)
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "callbacks/s")
		})
	}
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	w := New(1)
	echoTo(w, "10.0.0.2:80", w.Loop("b"))
	a := w.Loop("a")
	line := make([]byte, 100)
	a.Do(func() {
		var c loop.Conn
		a.Dial("10.0.0.2:80", 0, &script{
			open: func(conn loop.Conn) { c = conn; c.Write(line) },
			data: func(b []byte) { c.Write(b) },
		})
	})
	w.Run(time.Second)
	if n := testing.AllocsPerRun(10, func() { w.Run(100 * time.Millisecond) }); n > 10 {
		t.Errorf("%v allocations in 100 ms of echoes", n) // a few per Run, none per echo
	}
}
