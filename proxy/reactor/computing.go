package reactor

import (
	"net"
	"runtime"
)

// computing bounds how many TLS handshakes compute at a time, of accepted connections and of dials: each needs a place. A
// handshake that waits for its peer has no place. So the Go runtime has a P for each loop. Otherwise a loop that wakes
// would wait behind all handshakes that are ready to run: the runtime looks at goroutines that are ready on no P once in 61
// times, and the signature of a handshake takes a millisecond or two. Places go round in order of arrival.
type computing chan struct{}

// newComputing returns a place for each P beyond those of the loops, and at least one.

// Processors returns the GOMAXPROCS that Start expects for so many loops: a P for each loop, and for handshakes and whatever else
// runs on goroutines a quarter of that, at least two.
func Processors(loops int) int { return loops + max(2, loops/4) }

func newComputing(loops int) computing {
	return make(computing, max(1, runtime.GOMAXPROCS(0)-loops))
}

// do runs a handshake. The handshake may wait for its peer in wait only.
func (c computing) do(handshake func() error) error {
	c <- struct{}{}
	defer func() { <-c }()
	return handshake()
}

// wait runs f, which waits for the peer, within do. Afterwards the handshake waits for a place.
func (c computing) wait(f func()) {
	<-c
	defer func() { c <- struct{}{} }()
	f()
}

// dialled is the socket of a dial during the handshake. It has no place while it waits.
type dialled struct {
	net.Conn
	computing
}

// Read implements net.Conn.
func (d dialled) Read(b []byte) (n int, err error) {
	d.wait(func() { n, err = d.Conn.Read(b) })
	return n, err
}

// Write implements net.Conn. The peer may not read.
func (d dialled) Write(b []byte) (n int, err error) {
	d.wait(func() { n, err = d.Conn.Write(b) })
	return n, err
}
