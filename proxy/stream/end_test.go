package stream

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/stream/pipe"
)

// TestFinishSlowReader: the last bytes of a response reach a client that reads slowly
// and sends more bytes meanwhile.
func TestFinishSlowReader(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{})
	s.srv.flush = time.Millisecond
	down := &end{}
	down.tcp = s.dialTo(a.addr)
	down.conn = down.tcp
	client := receive(t, a.conns, "the connection")
	_ = client.SetReadBuffer(64 << 10)
	const size = 8 << 20
	done := make(chan struct{})
	go func() {
		defer close(done)
		(&pair{srv: s.srv, down: down}).finish(make([]byte, size), true)
	}()
	got := 0
	for block := make([]byte, 64<<10); ; {
		n, err := client.Read(block)
		if got += n; err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("%v after %d bytes of %d", err, got, size)
		}
		_, _ = client.Write([]byte("x"))
		time.Sleep(2 * time.Millisecond) // longer than flush
	}
	if got != size {
		t.Errorf("%d bytes of %d", got, size)
	}
	client.Close()
	receive(t, done, "the end")
}

// TestFinishDeafReader: a client that reads nothing of a response for timeouts.write does not hold its stream, though it
// has not left.
func TestFinishDeafReader(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{more: "timeouts: {write: 100ms}"})
	s.srv.flush = time.Millisecond
	down := s.dialTo(a.addr)
	client := receive(t, a.conns, "the connection")
	defer client.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		(&pair{srv: s.srv, down: &end{conn: down, tcp: down}}).finish(make([]byte, 64<<20), true)
	}()
	receive(t, done, "the end")
}

// TestUnixCounters: the bytes of a Unix socket count as those of TCP do, although the kernel does not count them.
func TestUnixCounters(t *testing.T) {
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "peer"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	nc, err := net.Dial("unix", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	peer, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	own := newEnd(nc.(*net.UnixConn), nc, false)
	_, _ = io.WriteString(peer, "hello")
	wantRead(t, "the end", own, "hello")
	_, _ = io.WriteString(own, "bye")
	if c := own.counters(); c.received != 5 || c.acknowledged != 3 || own.moved() != 8 {
		t.Errorf("%+v, %d bytes have moved", c, own.moved())
	}
}

// TestResetAfterWriteError: a reset whose error a write has consumed still resets the
// other end, although reads then return an end of file.
func TestResetAfterWriteError(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{})
	dial := func() (own *end, other *net.TCPConn) {
		own = &end{}
		own.tcp = s.dialTo(a.addr)
		own.conn = own.tcp
		return own, receive(t, a.conns, "the connection")
	}
	down, client := dial()
	up, server := dial()
	(&end{conn: server, tcp: server}).reset()
	s.eventually("the reset to arrive", func() error {
		if !up.isReset() {
			return errors.New("not yet")
		}
		return nil
	})
	if _, err := up.Write([]byte("x")); err == nil {
		t.Fatal("a write after a reset")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		(&relay{p: &pair{srv: s.srv, down: down, up: up}}).run(newInput(s.proc, nil))
	}()
	wantReset(t, "the client", client)
	client.Close()
	receive(t, done, "the relay to end")
}

// TestLeavesWithWhole: a client that closes as soon as it has the whole response does not reset
// the endpoint's connection, though the sidecar has not noted yet that nothing is left. If bytes
// are left, it ends the wait for them.
func TestLeavesWithWhole(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{})
	dial := func() (*end, *net.TCPConn) {
		nc := s.dialTo(a.addr)
		return &end{conn: nc, tcp: nc}, receive(t, a.conns, "the connection")
	}
	down, client := dial()
	up, server := dial()
	p := &pair{srv: s.srv, down: down, up: up, state: responding}
	p.readDown(func() {})
	client.Close()
	receive(t, p.readerDone, "the end of the client to be seen")
	if _, err := up.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the wait for the endpoint ends with %v", err)
	}
	p.closeUp(true)
	if rest, err := io.ReadAll(server); len(rest) > 0 || err != nil {
		t.Errorf("the endpoint read %q, %v", rest, err)
	}
	server.Close()
}

// slowClose is a connection whose Close waits, as that of TLS does for a peer that does not read.
type slowClose struct {
	*net.TCPConn
	closing, release chan struct{}
}

func (c *slowClose) Close() error {
	close(c.closing)
	<-c.release
	return c.TCPConn.Close()
}

// TestAbortWhileClosing: a stream whose connection to the endpoint is being closed is aborted at
// once, since loops wait for an abort.
func TestAbortWhileClosing(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	client, server := s.pair(a)
	up := &slowClose{client, make(chan struct{}), make(chan struct{})}
	p := &pair{srv: s.srv, down: &end{conn: server, tcp: server}, up: &end{conn: up, tcp: client}}
	closed, aborted := make(chan struct{}), make(chan struct{})
	go func() { p.closeUp(true); close(closed) }()
	receive(t, up.closing, "the close to begin")
	p.up.conn = client // only one Close waits
	go func() { p.abort(); close(aborted) }()
	receive(t, aborted, "the abort")
	close(up.release)
	receive(t, closed, "the end of the close")
	s.counts.waitIdle()
}

// TestCountersOfUnixSocket: what a Unix socket has received and sent counts, as what moves does for a limit of time.
func TestCountersOfUnixSocket(t *testing.T) {
	ln := must.ListenOn(t, "unix", filepath.Join(t.TempDir(), "socket"))
	peer := must.Dial(t, "unix", ln.Addr().String())
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	e := newEnd(nc.(conn), nc, false)
	must.Write(t, e, "12345")
	must.Read(t, peer, 5)
	must.Write(t, peer, "12345678")
	must.Read(t, e, 3)
	if c := e.counters(); c.received != 3 || c.acknowledged != 5 || c.unread != 5 || c.unacknowledged != 0 {
		t.Errorf("%+v", c)
	}
}

// idleLoop is a loop that does nothing of what is posted.
type idleLoop struct{ loop.Loop }

func (idleLoop) Post(func()) {}

// TestCountersOfPipe: what the loop has taken of a pipe counts as acknowledged, and what is left as not.
func TestCountersOfPipe(t *testing.T) {
	onLoop, socket := pipe.New(t.Context(), &proxy.Process{}, idleLoop{}, "", func() {})
	defer socket.Close()
	e := endOf(socket)
	must.Write(t, e, "12345")
	onLoop.Consume(3)
	onLoop.Deliver([]byte("12345678"))
	must.Read(t, e, 3)
	if c := e.counters(); c.received != 8 || c.unread != 5 || c.acknowledged != 3 || c.unacknowledged != 2 || e.moved() != 11 {
		t.Errorf("%+v", c)
	}
}

// garbled is a connection of TLS whose peer sends a record that is not valid.
type garbled struct{ *net.TCPConn }

func (garbled) Read([]byte) (int, error) { return 0, errors.New("bad record MAC") }

// TestGarbledClient: a client whose input breaks has left at once, although one that ends its input may wait for the response.
func TestGarbledClient(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{})
	client := s.dialTo(a.addr)
	down := receive(t, a.conns, "the connection")
	p := &pair{srv: s.srv, down: &end{conn: garbled{down}, tcp: down, secure: true}, halfClose: time.Hour}
	p.readDown(func() {})
	receive(t, p.readerDone, "the end of the client to be seen")
	if state, left := p.states(); state != aborted || left != clientLeft {
		t.Errorf("the stream is in state %d, its client in state %d", state, left)
	}
	wantReset(t, "the client", client)
}

// lastBytes is a connection that returns io.EOF together with its last bytes, as TLS may.
type lastBytes struct {
	*net.TCPConn
	n int
}

func (c lastBytes) Read([]byte) (int, error) { return c.n, io.EOF }

// TestLastBytes: bytes count although the input ends with them.
func TestLastBytes(t *testing.T) {
	s := newSidecar(t, options{})
	for n, want := range []error{io.EOF, nil, nil} {
		in := newInput(s.proc, []byte("head"))
		if err := in.more(&end{conn: lastBytes{n: n}}); err != want || len(in.b) != len("head")+n {
			t.Errorf("%d bytes and the end: %v, %d bytes are there", n, err, len(in.b))
		}
		in.free()
	}
}

// TestCountersOfClosed: an end that is closed counts nothing, and its connection is over.
func TestCountersOfClosed(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{})
	nc := s.dialTo(a.addr)
	other := receive(t, a.conns, "the connection")
	_, _ = io.WriteString(nc, "out")
	_, _ = io.WriteString(other, "in")
	wantRead(t, "the end", nc, "in")
	e := &end{conn: nc, tcp: nc}
	nc.Close()
	if c := e.counters(); c != (counters{}) || e.moved() != 0 || e.unsent() != 0 || !e.isReset() {
		t.Errorf("%+v, %d bytes have moved, %d are not sent, over: %t", c, e.moved(), e.unsent(), e.isReset())
	}
	if err := e.awaitGone(); err == nil {
		t.Error("its peer is awaited")
	}
	other.Close()
}

// notifying is a connection of TLS: its Close sends close_notify.
type notifying struct{ *net.TCPConn }

func (c notifying) Close() error {
	_, _ = io.WriteString(c.TCPConn, "close_notify")
	return c.TCPConn.Close()
}

// TestResetWithoutNotify: an end that is reset sends no close_notify, so its peer does not take the output for complete.
func TestResetWithoutNotify(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{})
	nc := s.dialTo(a.addr)
	peer := receive(t, a.conns, "the connection")
	(&end{conn: notifying{nc}, tcp: nc, secure: true}).reset()
	if b, err := io.ReadAll(peer); len(b) > 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the peer got %q, %v", b, err)
	}
	peer.Close()
}
