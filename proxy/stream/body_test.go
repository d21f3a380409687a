package stream

import (
	"io"
	"net"
	"testing"

	"github.com/remora-proxy/remora/protocol/http1"
)

// tallied is a connection that counts the bytes which the sidecar itself reads.
type tallied struct {
	*net.TCPConn
	read int
}

func (c *tallied) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.read += n
	return n, err
}

// TestWithinTheKernel: the sidecar itself reads nothing of a body that needs no other framing. If the first byte counts, the sidecar
// reads that byte, and calls begun once.
func TestWithinTheKernel(t *testing.T) {
	const length = 100_000
	a := newApp(t)
	s := newSidecar(t, options{})
	for want := range 2 {
		source := s.dialTo(a.addr)
		from := &tallied{TCPConn: receive(t, a.conns, "the connection of the source")}
		sink := s.dialTo(a.addr)
		to := receive(t, a.conns, "the connection of the sink")
		var body http1.Body
		body.Reset(&http1.Head{Framing: http1.FixedLength, Length: length}, s.srv.limits())
		moves := transfer{proc: s.proc, from: &end{conn: from, tcp: from.TCPConn}, to: &end{conn: to, tcp: to}, body: &body, decoded: buffers.Get(0)}
		begun := make(chan struct{}, length)
		if want == 1 {
			moves.begun = func() { begun <- struct{}{} }
		}
		done := make(chan bodyFault, 1)
		go func() { done <- moves.run() }()
		_, _ = io.WriteString(source, "x")
		wantRead(t, "the sink", sink, "x")
		if n := s.proc.Held(); n < 64<<10 || n > 64<<10+16 {
			t.Errorf("%d bytes count, want little over 64 KiB", n)
		}
		_, _ = source.Write(make([]byte, length-1))
		if n, err := io.CopyN(io.Discard, sink, length-1); err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		if f := receive(t, done, "the end"); f != noFault || from.read != want || len(begun) != want || moves.sent != length {
			t.Errorf("fault %d, %d bytes of %d, %d of them read, the first one told %d times; want %d", f, moves.sent, length, from.read, len(begun), want)
		}
		for _, c := range []net.Conn{source, from, sink, to} {
			c.Close()
		}
	}
}
