package attacks

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"
)

// crowd is many connections that misbehave in the same way. Each one is opened again
// when the sidecar closes it.
type crowd struct {
	size  int
	first []byte        // sent on each new connection
	then  []byte        // sent after it, again and again
	pause time.Duration // before each of those
	deaf  bool          // the connections don't read
	ramp  time.Duration // the connections open one by one during it
	from  net.IP        // of the connections; nil means any address
}

// maxDials is how many connections of a crowd are dialled at a time. On a busy machine thousands would fall due together,
// and the well-behaved load, which runs in the same process, would wait for all of them.
const maxDials = 32

// run misbehaves until ctx ends.
func (c *crowd) run(ctx context.Context, addr string) {
	var all sync.WaitGroup
	dials := make(chan struct{}, maxDials)
	for i := range c.size {
		all.Go(func() {
			pauseFor(ctx, c.ramp*time.Duration(i)/time.Duration(c.size))
			for ctx.Err() == nil {
				dials <- struct{}{}
				nc, err := c.dial(ctx, addr)
				<-dials
				if err == nil {
					c.misuse(ctx, nc)
				}
				pauseFor(ctx, c.pause)
			}
		})
	}
	all.Wait()
}

// connection is one connection from its start to its end.
func (c *crowd) connection(ctx context.Context, addr string) {
	if nc, err := c.dial(ctx, addr); err == nil {
		c.misuse(ctx, nc)
	}
}

func (c *crowd) dial(ctx context.Context, addr string) (*net.TCPConn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: c.from}}
	if c.deaf {
		d.Control = smallBuffer
	}
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return nc.(*net.TCPConn), nil
}

func (c *crowd) misuse(ctx context.Context, nc *net.TCPConn) {
	misuse(ctx, nc, c.first, c.then, c.pause, c.deaf)
}

// smallBuffer makes a connection whose kernel takes little that is not read.
func smallBuffer(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
}

// misuse sends first, then repeats then, until the connection or ctx ends.
func misuse(ctx context.Context, nc *net.TCPConn, first, then []byte, pause time.Duration, deaf bool) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	closed := make(chan struct{})
	context.AfterFunc(ctx, func() { nc.Close(); close(closed) })
	defer func() { stop(); <-closed }()
	if !deaf {
		go func() { _, _ = io.Copy(io.Discard, nc); stop() }()
	}
	if _, err := nc.Write(first); err != nil {
		return
	}
	for pauseFor(ctx, pause) && !(deaf && hasEnded(nc)) {
		if len(then) > 0 {
			if _, err := nc.Write(then); err != nil {
				return
			}
		}
	}
}

// pauseFor reports whether ctx lasted for d.
func pauseFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// hasEnded reports whether the peer has closed a connection that is not read.
func hasEnded(nc *net.TCPConn) (ended bool) {
	raw, err := nc.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		ended = err == nil && n == 0 || err != nil && err != syscall.EAGAIN
	})
	return ended || err != nil
}

func postHead(path string, length int, fields string) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%s\r\n", path, length, fields)
}

// postOf is a POST with so many bytes of its body.
func postOf(path string, length, sent int) []byte {
	return append(postHead(path, length, ""), make([]byte, sent)...)
}

// hugeHeads are four requests with as many and as long fields as are allowed, then one
// with too many.
func hugeHeads() []byte {
	var fields strings.Builder
	for i := range 120 {
		fmt.Fprintf(&fields, "a%d: %s\r\n", i, strings.Repeat("x", 500))
	}
	return append(bytes.Repeat(postHead("/compute", 0, fields.String()), 4),
		postHead("/compute", 0, strings.Repeat("a: b\r\n", 10_000))...)
}

// refusedSeries is the series of what a sidecar refuses for this reason.
func refusedSeries(code string) string { return fmt.Sprintf("remora_errors_total{code=%q}", code) }

// onHTTP is an attack of a crowd of HTTP clients.
func onHTTP(name, meets string, c crowd) attack {
	return attack{name: name, run: func(ctx context.Context, m *attackMesh) { c.run(ctx, m.http) }, meets: meets}
}

const (
	unfinishedHead = "GET / HTTP/1.1\r\nHost: a\r\na: "
	chunkedHead    = "POST /compute HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
	tinyChunk      = "1;a=bcdefgh;i=\"jkl\"\r\nx\r\n"
)

// What clients do to an HTTP listener.
var httpAttacks = []attack{
	onHTTP("slow heads", refusedSeries("header-timeout"),
		crowd{size: 300, first: []byte(unfinishedHead), then: []byte("x"), pause: 200 * time.Millisecond}),
	onHTTP("slow bodies", refusedSeries("body-timeout"),
		crowd{size: 300, first: postHead("/compute", 100_000, ""), then: []byte("x"), pause: 200 * time.Millisecond}),
	onHTTP("connections past the limit", "remora_reactor_refused_total",
		crowd{size: attackConnections + 200, pause: 200 * time.Millisecond}),
	// Little from each connection, much from all. Connections that were refused linger, so the crowd
	// stays well below limits.connections, at which those of the load could close.
	onHTTP("half heads", "remora_shed_connections_total",
		crowd{size: attackConnections - 300, first: []byte(unfinishedHead + strings.Repeat("x", attackHeader-1000)),
			pause: 200 * time.Millisecond}),
	onHTTP("huge heads", refusedSeries("too-many-headers"), crowd{size: 20, first: hugeHeads(), pause: 50 * time.Millisecond}),
	// Bodies without their last byte, more of them than limits.buffered.
	onHTTP("half bodies", refusedSeries("overloaded"),
		crowd{size: 3 * attackBuffered / attackMessage, first: postOf("/compute", attackMessage, attackMessage-1),
			pause: 200 * time.Millisecond}),
	// The same in small pieces, each below the share of a connection.
	onHTTP("many half bodies", refusedSeries("overloaded"),
		crowd{size: attackConnections - 100, first: postOf("/compute", attackMessage, 40_000), then: []byte("x"),
			pause: 200 * time.Millisecond}),
	onHTTP("endless tiny chunks", refusedSeries("chunk-overhead"),
		crowd{size: 20, first: []byte(chunkedHead), then: bytes.Repeat([]byte(tinyChunk), 1000), pause: 10 * time.Millisecond}),
	onHTTP("pipelines", refusedSeries("too-many-pipelined"),
		crowd{size: 20, first: bytes.Repeat([]byte("GET /compute HTTP/1.1\r\nHost: a\r\n\r\n"), 200), pause: 50 * time.Millisecond}),
	// More response bytes for each connection than its kernel takes.
	onHTTP("unread responses", refusedSeries("overloaded"),
		crowd{size: 60, first: bytes.Repeat(postOf("/echo", attackMessage, attackMessage), 12), pause: 50 * time.Millisecond,
			deaf: true}),
}
