// Package consumer is a service that asks a Dubbo provider, through the sidecar beside it, for
// the hash of a random string, and checks the result.
//
//	     /invoke    200 "OK", or 500 and the error
//	GET  /healthz   200
//	GET  /stats     Stats as JSON
//
// The response has the request's x-nonce header, like a replica's. The call to the sidecar is
// that of a public contest of Dubbo meshes (2018): a form over HTTP/1.1 that names interface,
// method, parameter types and the argument. Its response is the plain result.
package consumer

import (
	"cmp"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/lab/server"
)

// Options configures a consumer. The zero value of a field means its default.
type Options struct {
	Listen    string        // host:port; default "127.0.0.1:0"
	Agent     string        // host:port of the sidecar; it has no default
	Interface string        // default DefaultInterface
	Timeout   time.Duration // of one call, with a new connection if it needs one; default 5 s
}

// DefaultInterface is the service that the contest's consumer calls.
const DefaultInterface = "com.alibaba.dubbo.performance.demo.provider.IHelloService"

// Stats are the counts of a consumer since its start.
type Stats struct {
	Right  int64 `json:"right"`  // calls with the right result
	Wrong  int64 `json:"wrong"`  // calls with a wrong result
	Failed int64 `json:"failed"` // calls without a result
}

// Consumer is a running server. Each connection to it has its own connection to the sidecar,
// which is opened by the first call and kept alive.
type Consumer struct {
	opts   Options
	server *server.Server

	right, wrong, failed atomic.Int64
}

// Start listens and serves until Close.
func Start(opts Options) (*Consumer, error) {
	opts.Listen = cmp.Or(opts.Listen, "127.0.0.1:0")
	opts.Interface = cmp.Or(opts.Interface, DefaultInterface)
	opts.Timeout = cmp.Or(opts.Timeout, 5*time.Second)
	_, _, err := net.SplitHostPort(opts.Agent)
	if err != nil || strings.ContainsAny(opts.Agent, " \r\n") || opts.Timeout < 0 {
		return nil, fmt.Errorf("consumer: agent %q, timeout %v: want a host:port and a positive time", opts.Agent, opts.Timeout)
	}
	ln, err := net.Listen("tcp", opts.Listen)
	if err != nil {
		return nil, fmt.Errorf("consumer: %w", err)
	}
	c := &Consumer{opts: opts, server: server.New(ln)}
	c.server.Serve(c.serve)
	return c, nil
}

// Addr returns the address that the consumer listens on.
func (c *Consumer) Addr() string { return c.server.Addr() }

// Stats returns the counts.
func (c *Consumer) Stats() Stats {
	return Stats{Right: c.right.Load(), Wrong: c.wrong.Load(), Failed: c.failed.Load()}
}

// Close stops listening and closes all connections, also those of requests in flight.
func (c *Consumer) Close() error {
	return c.server.Close()
}
