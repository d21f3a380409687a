package reactor

import (
	"bytes"
	"net"
)

// flights carries the handshake of a newcomer between its loop and the goroutine of the handshake. To the goroutine
// it is a net.Conn. The socket stays on the loop, so the handshake makes no more system calls than the bytes need.
// Writes are gathered until the goroutine needs input or has ended the handshake: that is a flight of TLS.
type flights struct {
	untimed
	n *newcomer

	// Only the goroutine accesses these until it posts onHandshake.
	left []byte // input that is not read yet
	out  []byte // the flight so far

	input chan flight // the loop responds to each onFlight with one
}

// flight is what the peer has sent, or why it sends nothing.
type flight struct {
	b   []byte
	err error
}

func newFlights(n *newcomer) *flights {
	return &flights{n: n, input: make(chan flight, 1)}
}

// Read implements net.Conn.
func (f *flights) Read(b []byte) (int, error) {
	if len(f.left) == 0 {
		next := f.exchange()
		if next.err != nil {
			return 0, next.err
		}
		f.left = next.b
	}
	n := copy(b, f.left)
	f.left = f.left[n:]
	return n, nil
}

// exchange has the loop send our flight, and waits for the peer's flight.
func (f *flights) exchange() (next flight) {
	out := f.out
	f.out = nil
	r := f.n.l.reactor
	r.handshakes.wait(func() {
		f.n.loop.Post(func() { f.n.onFlight(out) })
		select {
		case next = <-f.input:
		case <-r.ctx.Done():
			next = flight{err: ErrStopped}
		}
	})
	return next
}

// Write implements net.Conn.
func (f *flights) Write(b []byte) (int, error) {
	f.out = append(f.out, b...)
	return len(b), nil
}

// Close implements net.Conn. The loop closes the socket.
func (f *flights) Close() error { return nil }

var _ net.Conn = (*flights)(nil)

// deliver gives the peer's input to the goroutine that waits. b stays the caller's.
func (f *flights) deliver(b []byte, err error) { f.input <- flight{bytes.Clone(b), err} }
