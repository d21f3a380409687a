package reactor

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/leaktest"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/engine"
)

func TestMain(m *testing.M) {
	if childMain() {
		return
	}
	protocol.PoisonBuffers = true
	// The Go runtime opens descriptors of its own with the first socket. checkEnd would count them.
	if ln, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		_ = ln.Close()
	}
	leaktest.Main(m)
}

// waitLimit is how long a test waits before it fails.
const waitLimit = time.Minute

// stream is a loop.Receiver of functions, each optional.
type stream struct {
	open  func(c loop.Conn)
	data  func(b []byte)
	close func(err error)
}

func (s *stream) OnOpen(c loop.Conn) {
	if s.open != nil {
		s.open(c)
	}
}

func (s *stream) OnData(b []byte) {
	if s.data != nil {
		s.data(b)
	}
}

func (s *stream) OnClose(err error) {
	if s.close != nil {
		s.close(err)
	}
}

// echo returns a stream that sends its input back.
func echo() loop.Receiver {
	var conn loop.Conn
	return &stream{
		open: func(c loop.Conn) { conn = c },
		data: func(b []byte) { conn.Write(b) },
	}
}

// environmentEngine returns the kind that the environment's ENGINE names.
func environmentEngine() engine.Kind {
	kind, err := engine.Find(os.Getenv("ENGINE"))
	if err != nil {
		panic(err)
	}
	return kind
}

// start starts a reactor, stops it at the end of the test, and checks that nothing is left of it. Unless o says otherwise it
// has one loop and the environment's ENGINE. Handshakes may take waitLimit.
func start(t testing.TB, o Options) *Reactor {
	t.Helper()
	files := openFiles()
	if o.Loops == 0 {
		o.Loops = 1
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Engine.Open == nil {
		o.Engine = environmentEngine()
	}
	e, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	e.SetHandshakeTimeout(waitLimit)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		if err := e.Stop(ctx); err != nil && err != ErrStopped {
			t.Errorf("Stop: %v", err)
		}
		checkEnd(t, e, files)
	})
	return e
}

// checkEnd checks that nothing is left of a reactor that was stopped: on its loops, in its counts, and of the descriptors above
// those that were open before. All of its Sockets must be closed. No test may run in parallel: it could open descriptors meanwhile.
func checkEnd(t testing.TB, e *Reactor, files int) {
	t.Helper()
	for _, l := range e.loops {
		recv(t, l.ended, "the end of a loop")
		if len(l.conns)+len(l.newcomers) > 0 || l.load.Load() != 0 {
			t.Errorf("loop %d has %d connections, %d newcomers, and counts %d", l.index, len(l.conns), len(l.newcomers), l.load.Load())
		}
		for fd, w := range l.watchers {
			if w != nil {
				t.Errorf("loop %d watches descriptor %d", l.index, fd)
			}
		}
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector would close what nobody has closed
	eventually(t, func() error {
		p, d := &e.connections, &e.dialer
		counts := []int64{p.open.Load(), p.others.Load(), p.taken.Load(), p.files.Load(), p.dialled.Load(), e.waiting.Load()}
		p.mu.Lock()
		counts = append(counts, int64(len(p.bySource)))
		p.mu.Unlock()
		d.mu.Lock()
		counts = append(counts, int64(d.active), int64(len(d.waiting)), int64(len(d.queued)), int64(len(d.dials)))
		d.mu.Unlock()
		handshakes, _ := e.Handshakes()
		if counts = append(counts, int64(handshakes)); slices.Max(counts) != 0 || slices.Min(counts) != 0 {
			return fmt.Errorf("a count is left: %d", counts)
		}
		if n := openFiles(); n > files {
			return fmt.Errorf("%d descriptors are open, %d before", n, files)
		}
		return nil
	})
}

// listen opens a listener on loopback and returns its address.
func listen(t testing.TB, e *Reactor, o ListenOptions, accept func() loop.Receiver) string {
	t.Helper()
	l, err := e.Listen("127.0.0.1:0", o, func(loop.Loop, string) loop.Receiver { return accept() })
	if err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// listenEcho opens a listener of echoes on loopback.
func listenEcho(t testing.TB, e *Reactor, o ListenOptions) *Listener {
	t.Helper()
	l, err := e.Listen("127.0.0.1:0", o, func(loop.Loop, string) loop.Receiver { return echo() })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// on runs f on l and waits for it.
func on(t testing.TB, l loop.Loop, f func()) {
	t.Helper()
	done := make(chan struct{})
	l.Post(func() { defer close(done); f() })
	recv(t, done, "a posted function to run")
}

// recv receives from ch, or fails the test at waitLimit. what names the value.
func recv[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(waitLimit):
		t.Fatalf("timeout waiting for %s", what)
		panic("unreachable")
	}
}

// dial connects without the reactor.
func dial(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, waitLimit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(waitLimit))
	return c.(*net.TCPConn)
}

// ask sends s and returns as many bytes of input.
func ask(t testing.TB, c net.Conn, s string) string {
	t.Helper()
	must.Write(t, c, s)
	b := must.Read(t, c, len(s))
	return string(b)
}
