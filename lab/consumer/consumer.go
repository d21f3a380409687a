// Package consumer is a service of the lab that needs another one: for each HTTP
// request it asks a Dubbo provider, through the sidecar beside it, for the hash
// of a random string, and checks what it gets.
//
//	     /invoke    200 "OK", or 500 and what was wrong
//	GET  /healthz   200
//	GET  /stats     Stats as JSON
//
// The call to the sidecar is that of a public contest of Dubbo meshes (2018): a
// form, over HTTP/1.1, that names interface, method, parameter types and the
// argument. The answer is the bare result.
package consumer

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options configures a consumer. The zero value of a field means its default;
// Agent has none.
type Options struct {
	Listen    string        // host:port; default "127.0.0.1:0"
	Agent     string        // host:port of the sidecar that is called
	Interface string        // default: the contest's
	Timeout   time.Duration // of one call, a new connection for it included; default 5 s
}

// DefaultInterface is the service that the contest's consumer calls.
const DefaultInterface = "com.alibaba.dubbo.performance.demo.provider.IHelloService"

// Stats is what a consumer counts since its start.
type Stats struct {
	Right  int64 `json:"right"`  // calls with the answer that was due
	Wrong  int64 `json:"wrong"`  // calls with another one
	Failed int64 `json:"failed"` // calls without a result
}

// A Consumer is a running server. Each connection to it has one of its own to
// the sidecar, made with the first call and kept alive.
type Consumer struct {
	opts     Options
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex // guards what follows
	conns  map[*conn]struct{}
	closed bool

	right, wrong, failed atomic.Int64
}

// Start listens and serves until Close.
func Start(opts Options) (*Consumer, error) {
	if opts.Listen == "" {
		opts.Listen = "127.0.0.1:0"
	}
	if opts.Interface == "" {
		opts.Interface = DefaultInterface
	}
	if opts.Timeout == 0 {
		opts.Timeout = 5 * time.Second
	}
	if _, _, err := net.SplitHostPort(opts.Agent); err != nil || opts.Timeout < 0 {
		return nil, fmt.Errorf("consumer: agent %q, timeout %v: want a host:port and a positive time", opts.Agent, opts.Timeout)
	}
	if strings.ContainsAny(opts.Agent, " \r\n") {
		return nil, errors.New("consumer: an agent's address has no spaces")
	}
	ln, err := net.Listen("tcp", opts.Listen)
	if err != nil {
		return nil, fmt.Errorf("consumer: %w", err)
	}
	c := &Consumer{opts: opts, listener: ln, conns: map[*conn]struct{}{}}
	c.wg.Go(c.accept)
	return c, nil
}

// Addr is the address listened on.
func (c *Consumer) Addr() string { return c.listener.Addr().String() }

// Stats is what was counted until now.
func (c *Consumer) Stats() Stats {
	return Stats{Right: c.right.Load(), Wrong: c.wrong.Load(), Failed: c.failed.Load()}
}

// Close stops listening and closes all connections, whatever goes on on them.
func (c *Consumer) Close() error {
	err := c.listener.Close()
	c.mu.Lock()
	c.closed = true
	for each := range c.conns {
		each.close()
	}
	c.mu.Unlock()
	c.wg.Wait()
	return err
}

func (c *Consumer) accept() {
	for {
		nc, err := c.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors: they come back
			time.Sleep(10 * time.Millisecond)
			continue
		}
		each := newConn(c, nc)
		c.mu.Lock()
		if c.closed {
			nc.Close()
		}
		c.conns[each] = struct{}{}
		c.mu.Unlock()
		c.wg.Go(func() {
			each.serve()
			c.mu.Lock()
			each.close()
			delete(c.conns, each)
			c.mu.Unlock()
		})
	}
}
