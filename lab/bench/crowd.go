package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A crowd is connections that have each had an answer, and are kept alive.
type crowd []net.Conn

// gatherers is how many connections are opened at a time.
const gatherers = 32

// gather opens n connections to addr. What it returns is to be left, also beside an
// error.
func gather(ctx context.Context, addr string, n int) (crowd, error) {
	c := make(crowd, n)
	errs := make([]error, gatherers)
	var next atomic.Int64
	var work sync.WaitGroup
	for g := range gatherers {
		work.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && errs[g] == nil; i = next.Add(1) - 1 {
				c[i], errs[g] = visit(ctx, addr)
			}
		})
	}
	work.Wait()
	return c, errors.Join(errs...)
}

// visit opens a connection and makes one request on it.
func visit(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: requestTimeout}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c.SetDeadline(time.Now().Add(requestTimeout))
	fmt.Fprintf(c, "POST /compute HTTP/1.1\r\nHost: %s\r\nContent-Length: 2\r\n\r\n{}", addr)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil {
		_, err = io.Copy(io.Discard, answer.Body)
	}
	if err == nil && (answer.StatusCode != http.StatusOK || answer.Close) {
		err = fmt.Errorf("status %d, connection kept alive: %v", answer.StatusCode, !answer.Close)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("connection to keep: %w", err)
	}
	return c, nil
}

// presence is how long a connection has to tell that it was closed.
const presence = 100 * time.Millisecond

// check returns an error if one is no more open.
func (c crowd) check() error {
	var gone atomic.Int64
	var work sync.WaitGroup
	for _, conn := range c {
		work.Go(func() {
			conn.SetReadDeadline(time.Now().Add(presence))
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				gone.Add(1)
			}
		})
	}
	work.Wait()
	if n := gone.Load(); n > 0 {
		return fmt.Errorf("%d of %d connections were not kept", n, len(c))
	}
	return nil
}

// leave closes all, without a word, for their ports are needed again.
func (c crowd) leave() {
	for _, conn := range c {
		if tcp, ok := conn.(*net.TCPConn); ok {
			tcp.SetLinger(0)
			tcp.Close()
		}
	}
}
