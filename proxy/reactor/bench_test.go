package reactor

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/internal/racetest"
	"github.com/remora-proxy/remora/proxy/loop"
)

// rawPeer is a blocking socket without Go's poller, so that only the work and the
// allocations of the reactor are measured.
type rawPeer int

func newRawPeer(t testing.TB, addr string) rawPeer {
	t.Helper()
	ap, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: ap.Port, Addr: [4]byte(ap.IP.To4())}); err != nil {
		t.Fatal(err)
	}
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(waitLimit / time.Second)})
	return rawPeer(fd)
}

func (p rawPeer) send(t testing.TB, b []byte) {
	for {
		_, err := unix.Write(int(p), b)
		if err == nil {
			return
		}
		if err != unix.EINTR {
			t.Fatal(err)
		}
	}
}

func (p rawPeer) receive(t testing.TB, b []byte) {
	for {
		_, err := unix.Read(int(p), b)
		if err == nil {
			return
		}
		if err != unix.EINTR {
			t.Fatal(err)
		}
	}
}

// kinds are ways to respond: in the event, and in a flush. The last one also arms and stops two
// timers, as a request does.
var kinds = []struct {
	name   string
	accept func(e *Reactor) func() loop.Receiver
}{
	{"at once", func(*Reactor) func() loop.Receiver { return echo }},
	{"flush", func(e *Reactor) func() loop.Receiver { return flushed(e) }},
	{"timers", func(e *Reactor) func() loop.Receiver {
		return func() loop.Receiver {
			l := e.loops[0]
			var conn loop.Conn
			hedge, deadline := &loop.Timer{Fire: func() {}}, &loop.Timer{Fire: func() {}}
			return &stream{
				open: func(c loop.Conn) { conn = c },
				data: func(b []byte) {
					l.After(15*time.Second, deadline)
					l.After(5*time.Millisecond, hedge)
					conn.Write(b)
					l.Stop(hedge)
					l.Stop(deadline)
				},
			}
		}
	}},
}

// flushed returns streams that call before and echo in a deferred flush.
func flushed(e *Reactor, before ...func()) func() loop.Receiver {
	return func() loop.Receiver {
		var conn loop.Conn
		var out []byte
		f := &loop.Flush{Do: func() { conn.Write(out) }}
		return &stream{
			open: func(c loop.Conn) { conn = c },
			data: func(b []byte) {
				for _, f := range before {
					f()
				}
				out = append(out[:0], b...)
				e.loops[0].Defer(f)
			},
		}
	}
}

// TestAllocations: an event that reads and writes allocates nothing.
func TestAllocations(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector allocates")
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			e := start(t, Options{})
			p := newRawPeer(t, listen(t, e, ListenOptions{}, k.accept(e)))
			out, in := make([]byte, 300), make([]byte, 300)
			n := testing.AllocsPerRun(2000, func() { p.send(t, out); p.receive(t, in) })
			if n > 0 {
				t.Errorf("%v allocations per exchange", n)
			}
		})
	}
}

// BenchmarkPingPong measures one connection with one exchange of 300 bytes at a time.
func BenchmarkPingPong(b *testing.B) {
	for _, k := range kinds {
		b.Run(k.name, func(b *testing.B) { exchange(b, 1, k.accept) })
	}
}

// BenchmarkBusy measures 64 connections that are ready at once.
func BenchmarkBusy(b *testing.B) {
	for _, k := range kinds {
		b.Run(k.name, func(b *testing.B) { exchange(b, 64, k.accept) })
	}
}

func exchange(b *testing.B, conns int, accept func(e *Reactor) func() loop.Receiver) {
	e := start(b, Options{})
	addr := listen(b, e, ListenOptions{}, accept(e))
	peers := make([]rawPeer, conns)
	for i := range peers {
		peers[i] = newRawPeer(b, addr)
	}
	out, in := make([]byte, 300), make([]byte, 300)
	b.ReportAllocs()
	for b.Loop() {
		for _, p := range peers {
			p.send(b, out)
		}
		for _, p := range peers {
			p.receive(b, in)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*conns), "ns/exchange")
}

// BenchmarkPost measures a function that is posted from another goroutine and awaited.
func BenchmarkPost(b *testing.B) {
	e := start(b, Options{})
	done := make(chan struct{})
	f := func() { done <- struct{}{} }
	b.ReportAllocs()
	for b.Loop() {
		e.loops[0].Post(f)
		<-done
	}
}

// BenchmarkTimer measures how late a timer fires that is armed for 100 µs.
func BenchmarkTimer(b *testing.B) {
	e := start(b, Options{})
	l := e.loops[0]
	var due, late time.Duration
	done := make(chan struct{})
	n := 0
	tm := &loop.Timer{}
	again := func() { due = l.Now() + 100*time.Microsecond; l.After(100*time.Microsecond, tm) }
	tm.Fire = func() {
		late += l.Now() - due
		if n--; n > 0 {
			again()
		} else {
			done <- struct{}{}
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		l.Post(func() { n = 100; again() })
		<-done
	}
	b.ReportMetric(float64(late.Nanoseconds())/float64(b.N*100), "ns-late")
}
