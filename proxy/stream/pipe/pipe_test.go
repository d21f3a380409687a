package pipe

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/leaktest"
	"github.com/remora-proxy/remora/proxy/loop"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// posts is a loop whose turns a test runs.
type posts struct {
	loop.Loop
	c       chan func()
	stopped atomic.Bool
}

func (l *posts) Post(f func()) {
	if !l.stopped.Load() {
		l.c <- f
	}
}

// held counts the memory.
type held struct{ n, most atomic.Int64 }

func (h *held) Charge(n int) {
	if now := h.n.Add(int64(n)); now > h.most.Load() {
		h.most.Store(now)
	}
}

// ends is a pipe whose loop is the test.
type ends struct {
	t      *testing.T
	loop   posts
	held   held
	pipe   loop.Pipe
	socket *Socket
	stop   context.CancelFunc
	calls  int // of ready
}

func newEnds(t *testing.T) *ends {
	e := &ends{t: t, loop: posts{c: make(chan func(), 64)}}
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	e.pipe, e.socket = New(ctx, &e.held, &e.loop, "192.0.2.1:1234", func() { e.calls++ })
	t.Cleanup(func() {
		_ = e.socket.Close()
		e.pipe.Close(nil)
		if n := e.held.n.Load(); n != 0 {
			t.Errorf("%d bytes are held at the end", n)
		}
		stop()
	})
	return e
}

// turn waits for a post and runs it.
func (e *ends) turn() {
	e.t.Helper()
	select {
	case f := <-e.loop.c:
		f()
	case <-time.After(time.Minute):
		e.t.Fatal("nothing was posted to the loop")
	}
}

// idle checks that nothing is posted.
func (e *ends) idle() {
	e.t.Helper()
	if n := len(e.loop.c); n != 0 {
		e.t.Errorf("%d functions are posted to the loop", n)
	}
}

// within runs f, which must return.
func within[T any](t *testing.T, f func() T) T {
	t.Helper()
	c := make(chan T, 1)
	go func() { c <- f() }()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		t.Fatal("a call did not return")
		panic("unreachable")
	}
}

// waiting starts f on a goroutine and returns its result, once it holds the lock that it waits with.
func waiting(t *testing.T, held *sync.Mutex, f func() error) chan error {
	t.Helper()
	c := make(chan error, 1)
	go func() { c <- f() }()
	for end := time.Now().Add(time.Minute); held.TryLock(); {
		held.Unlock()
		if time.Now().After(end) {
			t.Fatal("a call did not begin")
		}
	}
	return c
}

func result(t *testing.T, c chan error) error { return within(t, func() error { return <-c }) }

// TestReady: the loop is told of output once until it has looked, of short reads not at all, and
// of nothing after Close.
func TestReady(t *testing.T) {
	e := newEnds(t)
	for range 3 {
		if _, err := e.socket.Write([]byte("a")); err != nil {
			t.Fatal(err)
		}
	}
	e.turn()
	e.idle()
	e.pipe.Deliver(make([]byte, 2*credit))
	b := make([]byte, credit-1)
	_, _ = io.ReadFull(e.socket, b)
	e.idle()
	_, _ = io.ReadFull(e.socket, b[:1])
	e.turn()
	if n := e.pipe.Taken(); n != credit || e.calls != 2 {
		t.Errorf("%d bytes taken, %d calls", n, e.calls)
	}
	_, _ = e.socket.Write([]byte("b"))
	e.pipe.Close(nil)
	e.turn()
	if e.calls != 2 {
		t.Error("the loop is told after it has closed the pipe")
	}
}

// TestBackpressure: a Write waits while the loop takes nothing, and goes on when it does.
func TestBackpressure(t *testing.T) {
	e := newEnds(t)
	wrote := waiting(t, &e.socket.writing, func() error {
		_, err := e.socket.Write(make([]byte, Capacity+1))
		return err
	})
	for left := 0; left < Capacity; _, left = e.socket.Output() {
		e.turn()
	}
	if len(wrote) > 0 {
		t.Fatal("more is held than has room")
	}
	if _, left := e.socket.Output(); left != Capacity {
		t.Errorf("%d bytes wait", left)
	}
	posted := 0 // since the last bytes
	for range 1000 {
		select {
		case f := <-e.loop.c:
			f()
			posted++
		default:
			runtime.Gosched()
		}
	}
	if posted > 1 {
		t.Errorf("a Write that waits has told the loop %d times", posted)
	}
	e.pipe.Consume(1)
	if err := result(t, wrote); err != nil {
		t.Error(err)
	}
}

// TestHold: what the loop has of the stream counts until it is released, or the pipe is closed.
func TestHold(t *testing.T) {
	e := newEnds(t)
	e.pipe.Charge(100)
	e.pipe.Charge(-60)
	if n := e.held.n.Load(); n != 40 {
		t.Errorf("%d bytes are held", n)
	}
	for range 2 {
		if e.pipe.Close(nil); e.held.n.Load() != 0 {
			t.Errorf("%d bytes are held after Close", e.held.n.Load())
		}
	}
}

// TestInterrupted: each way to end a call ends waiting and later calls, with its error.
func TestInterrupted(t *testing.T) {
	lost := errors.New("lost")
	past := time.Unix(1, 0)
	for _, c := range []struct {
		name        string
		interrupt   func(e *ends)
		read, write error // nil means that calls go on
	}{
		{"deadline", func(e *ends) { _ = e.socket.SetDeadline(past) }, os.ErrDeadlineExceeded, os.ErrDeadlineExceeded},
		{"deadline soon", func(e *ends) { _ = e.socket.SetDeadline(time.Now().Add(time.Millisecond)) }, os.ErrDeadlineExceeded, os.ErrDeadlineExceeded},
		{"close", func(e *ends) { _ = e.socket.Close() }, net.ErrClosed, net.ErrClosed},
		{"reset", func(e *ends) { e.socket.Reset() }, net.ErrClosed, net.ErrClosed},
		{"lost", func(e *ends) { e.pipe.Close(lost) }, lost, lost},
		{"reset by the peer", func(e *ends) { e.pipe.Close(nil) }, syscall.ECONNRESET, syscall.ECONNRESET},
		{"end, then lost", func(e *ends) { e.pipe.End(); e.pipe.Close(lost) }, io.EOF, lost},
		{"process ends", func(e *ends) { e.stop() }, context.Canceled, context.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEnds(t)
			read := func() error { _, err := e.socket.Read(make([]byte, 1)); return err }
			write := func() error { _, err := e.socket.Write(make([]byte, 2*Capacity)); return err }
			reads, writes := waiting(t, &e.socket.reading, read), waiting(t, &e.socket.writing, write)
			c.interrupt(e)
			for range 2 {
				if r, w := result(t, reads), result(t, writes); !errors.Is(r, c.read) || !errors.Is(w, c.write) {
					t.Errorf("read: %v, write: %v", r, w)
				}
				go func() { reads <- read() }()
				go func() { writes <- write() }()
			}
			result(t, reads)
			result(t, writes)
		})
	}
}

// hook has post called in place of Post.
type hook struct {
	loop.Loop
	post func()
}

func (h *hook) Post(func()) { h.post() }

// TestDeadlineAfterWrite: a Write that has taken all is complete, although the deadline passes before
// it returns.
func TestDeadlineAfterWrite(t *testing.T) {
	var s *Socket
	p, s := New(t.Context(), &held{}, &hook{post: func() { _ = s.SetWriteDeadline(time.Unix(1, 0)) }}, "192.0.2.1:1234", func() {})
	if n, err := s.Write(make([]byte, 100)); n != 100 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := s.Write([]byte("a")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the next: %v", err)
	}
	_ = s.Close()
	p.Close(nil)
}

// TestDeadlineRemoved: a call goes on after a deadline was removed, also one that has passed.
func TestDeadlineRemoved(t *testing.T) {
	e := newEnds(t)
	_ = e.socket.SetDeadline(time.Unix(1, 0))
	if _, err := e.socket.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	for range 2 {
		_ = e.socket.SetDeadline(time.Now().Add(time.Hour))
		_ = e.socket.SetDeadline(time.Time{})
		_ = e.socket.SetDeadline(time.Unix(1, 0))
		_ = e.socket.SetDeadline(time.Time{})
	}
	read := waiting(t, &e.socket.reading, func() error { _, err := e.socket.Read(make([]byte, 1)); return err })
	e.pipe.Deliver([]byte("a"))
	if err := result(t, read); err != nil {
		t.Error(err)
	}
}

// TestRest: bytes that were delivered can be read after the loop has closed the pipe, and bytes
// written can be sent after the goroutine has closed the Socket, but not after a reset.
func TestRest(t *testing.T) {
	e := newEnds(t)
	e.pipe.Deliver([]byte("rest"))
	e.pipe.Close(nil)
	if b, err := io.ReadAll(e.socket); string(b) != "rest" || !errors.Is(err, syscall.ECONNRESET) || !e.socket.IsReset() {
		t.Errorf("%q, %v", b, err)
	}

	e = newEnds(t)
	_, _ = e.socket.Write([]byte("rest"))
	_ = e.socket.Close()
	e.socket.Reset()
	e.pipe.Deliver([]byte("late"))
	if b := e.pipe.Output(); string(b) != "rest" || e.pipe.State() != loop.PipeClosed || e.pipe.Taken() != 4 {
		t.Errorf("%q in state %d", b, e.pipe.State())
	}

	e = newEnds(t)
	_, _ = e.socket.Write([]byte("rest"))
	_ = e.socket.CloseWrite()
	_, err := e.socket.Write([]byte("late"))
	e.socket.Reset()
	_ = e.socket.Close()
	if b := e.pipe.Output(); b != nil || e.pipe.State() != loop.PipeReset || !errors.Is(err, net.ErrClosed) {
		t.Errorf("%q in state %d, %v", b, e.pipe.State(), err)
	}
}

// TestReadAll: a Read gets all bytes for which it has room, however they were delivered, in their order.
func TestReadAll(t *testing.T) {
	e := newEnds(t)
	sent := make([]byte, 3*blockSize)
	for i := range sent {
		sent[i] = byte(i % 251)
	}
	for rest := sent; len(rest) > 0; {
		n := min(10_000, len(rest))
		e.pipe.Deliver(rest[:n])
		rest = rest[n:]
	}
	var got []byte
	for _, room := range []int{1, 2 * blockSize, len(sent)} {
		b := make([]byte, room)
		n, err := e.socket.Read(b)
		if want := min(room, len(sent)-len(got)); n != want || err != nil {
			t.Fatalf("read %d bytes, %v, want %d", n, err, want)
		}
		got = append(got, b[:n]...)
	}
	if !bytes.Equal(got, sent) {
		t.Error("other bytes than were delivered")
	}
}

// TestAwaitOpen: a stream to an endpoint opens, fails with the error of the dial, or is given up.
func TestAwaitOpen(t *testing.T) {
	refused := errors.New("refused")
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		name string
		ctx  context.Context
		do   func(e *ends)
		want error
	}{
		{"opens", context.Background(), func(e *ends) { e.pipe.Open() }, nil},
		{"opened, then lost", context.Background(), func(e *ends) { e.pipe.Open(); e.pipe.Close(refused) }, nil},
		{"fails", context.Background(), func(e *ends) { e.pipe.Close(refused); e.pipe.Open() }, refused},
		{"reset", context.Background(), func(e *ends) { e.socket.Reset() }, net.ErrClosed},
		{"process ends", context.Background(), func(e *ends) { e.stop() }, context.Canceled},
		{"takes too long", gone, func(e *ends) {}, context.Canceled},
	} {
		e := newEnds(t)
		opened := make(chan error, 1)
		go func() { opened <- e.socket.AwaitOpen(c.ctx) }()
		c.do(e)
		if err := result(t, opened); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestDrain: Drain waits until all was taken, for as long as the loop takes some.
func TestDrain(t *testing.T) {
	e := newEnds(t)
	_, _ = e.socket.Write([]byte("abc"))
	drained := make(chan bool, 1)
	drain := func(limit time.Duration) { go func() { drained <- e.socket.Drain(limit) }() }
	drain(time.Millisecond)
	if within(t, func() bool { return <-drained }) {
		t.Error("drained without the loop")
	}
	drain(time.Hour)
	e.pipe.Consume(1)
	e.pipe.Consume(2)
	if !within(t, func() bool { return <-drained }) {
		t.Error("not drained")
	}
	_, _ = e.socket.Write([]byte("abc"))
	drain(100 * time.Millisecond)
	for range 1000 { // a loop whose connection takes nothing
		e.pipe.Consume(0)
	}
	if within(t, func() bool { return <-drained }) {
		t.Error("drained though the loop takes nothing")
	}
	drain(time.Hour)
	e.pipe.Close(nil)
	if within(t, func() bool { return <-drained }) {
		t.Error("drained into a pipe that was closed")
	}
}

// TestOnLost: a client that gives up is noticed at once, and one that has ended is not lost.
func TestOnLost(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(e *ends, watch func())
		want bool
	}{
		{"open", func(_ *ends, watch func()) { watch() }, false},
		{"later", func(e *ends, watch func()) { watch(); e.pipe.Close(nil) }, true},
		{"before", func(e *ends, watch func()) { e.pipe.Close(nil); watch() }, true},
		{"ended", func(e *ends, watch func()) { watch(); e.pipe.End(); e.pipe.Close(nil) }, false},
		{"ended before", func(e *ends, watch func()) { e.pipe.End(); e.pipe.Close(nil); watch() }, false},
		{"closed", func(e *ends, watch func()) { watch(); _ = e.socket.Close(); e.pipe.Close(nil) }, false},
	} {
		e := newEnds(t)
		lost := make(chan error) // a call that nobody awaits stays, and is found at the end of all tests
		c.do(e, func() { e.socket.OnLost(func() { lost <- nil }) })
		if c.want {
			_ = result(t, lost)
		}
		_ = e.socket.Close() // then the end of the test is no loss
	}
}

// TestLoopStopped: the loop drops what is posted, and calls end with the process.
func TestLoopStopped(t *testing.T) {
	e := newEnds(t)
	e.loop.stopped.Store(true)
	wrote := waiting(t, &e.socket.writing, func() error { _, err := e.socket.Write(make([]byte, 2*Capacity)); return err })
	e.stop()
	if err := result(t, wrote); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestEmpty: calls without bytes return at once, also where others wait.
func TestEmpty(t *testing.T) {
	e := newEnds(t)
	if n, err := e.socket.Read(nil); n != 0 || err != nil {
		t.Errorf("Read: %d, %v", n, err)
	}
	_, _ = e.socket.Write(make([]byte, Capacity))
	if n, err := e.socket.Write(nil); n != 0 || err != nil {
		t.Errorf("Write: %d, %v", n, err)
	}
}

// TestIsReset: a stream is reset if either end has cut it, and not if it has ended.
func TestIsReset(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(e *ends)
		want bool
	}{
		"open":             {func(*ends) {}, false},
		"ended":            {func(e *ends) { e.pipe.End() }, false},
		"ended, then lost": {func(e *ends) { e.pipe.End(); e.pipe.Close(nil) }, false},
		"lost":             {func(e *ends) { e.pipe.Close(nil) }, true},
		"reset":            {func(e *ends) { e.socket.Reset() }, true},
		"closed":           {func(e *ends) { _ = e.socket.Close() }, false},
	} {
		e := newEnds(t)
		if c.do(e); e.socket.IsReset() != c.want {
			t.Errorf("%s: reset %t", name, !c.want)
		}
	}
}

// TestAddresses: the peer of a pipe is that of its connection, and a pipe has no address and no TLS of its own.
func TestAddresses(t *testing.T) {
	for remote, want := range map[string]string{"192.0.2.1:1234": "tcp 192.0.2.1:1234", "[2001:db8::1]:80": "tcp [2001:db8::1]:80", "unix": "unix unix"} {
		p, s := New(t.Context(), &held{}, &posts{c: make(chan func(), 1)}, remote, func() {})
		if at := s.RemoteAddr(); at.Network()+" "+at.String() != want {
			t.Errorf("%s: %s %s", remote, at.Network(), at)
		}
		if s.Secure() || s.LocalAddr().Network() != "unix" || s.LocalAddr().String() != "" {
			t.Errorf("%s: secure %t, local %s", remote, s.Secure(), s.LocalAddr())
		}
		_ = s.Close()
		p.Close(nil)
	}
}

// TestBlocks: an empty queue has no memory, and one that is consumed while bytes are added keeps the block for them.
func TestBlocks(t *testing.T) {
	var h held
	q := queue{holder: &h}
	check := func(what string, blocks int, want string) {
		t.Helper()
		if n := h.n.Load(); n != int64(blocks*blockSize) || string(q.peek()) != want {
			t.Errorf("%s: %d bytes are held, %q", what, n, q.peek())
		}
	}
	q.push([]byte("abc"))
	check("pushed", 1, "abc")
	last, from := q.begin()
	q.consume(3)
	q.publish(copy(last[from:], "def"))
	check("consumed meanwhile", 1, "def")
	q.consume(2)
	check("consumed in part", 1, "f")
	q.consume(1)
	check("consumed", 0, "")
	q.consume(0)
	check("nothing consumed", 0, "")
	q.push(make([]byte, 2*blockSize+1))
	q.consume(blockSize)
	q.consume(blockSize)
	check("in the third block", 1, "\x00")
	q.drop()
	q.consume(1)
	check("dropped", 0, "")
}

// TestDeadlineRace: a deadline that passes while it is changed is no later one.
func TestDeadlineRace(t *testing.T) {
	var d deadline
	for i := range 2000 {
		d.set(time.Now().Add(time.Duration(i%50) * time.Microsecond))
		for end := time.Now().Add(time.Duration(i%50) * time.Microsecond); time.Now().Before(end); {
			runtime.Gosched()
		}
		d.set(time.Now().Add(time.Hour))
		later := d.wait()
		for range 10 {
			runtime.Gosched()
		}
		if isClosed(later) {
			t.Fatal("a deadline in an hour has passed")
		}
	}
	d.set(time.Time{})
}
