package replica

import (
	"fmt"

	"github.com/remora-proxy/remora/lab/dubbo"
	"github.com/remora-proxy/remora/lab/wire"
)

// dubboConn is a Dubbo connection. One goroutine reads, but workers write concurrently.
type dubboConn struct {
	writer
	service *service
	in      []byte // input that is not parsed yet
	call    dubbo.Call
}

// serveDubbo serves a connection until it ends.
func (s *service) serveDubbo(p peer) {
	c := &dubboConn{service: s, writer: writer{peer: p}}
	for open := true; open; {
		var err error
		if c.in, err = wire.ReadMore(c.nc, c.in); err != nil {
			return
		}
		var responses []byte
		responses, open = c.serve()
		open = c.send(responses) && open
	}
}

// serve takes the whole calls in c.in. It returns the responses that need no worker, and
// whether the connection stays open.
func (c *dubboConn) serve() (responses []byte, ok bool) {
	used := 0
	defer func() { c.in = append(c.in[:0], c.in[used:]...) }()
	for {
		n, err := c.call.Parse(c.in[used:])
		switch err {
		case dubbo.ErrIncomplete:
			return responses, true
		case dubbo.ErrMalformed:
			return responses, false
		case nil:
			responses = c.take(responses)
		default:
			responses = c.call.AppendError(responses, dubbo.StatusBadRequest, err.Error())
		}
		used += n
	}
}

// take gives c.call to a worker, or responds at once if it needs none.
func (c *dubboConn) take(responses []byte) []byte {
	s := c.service
	switch {
	case c.call.Event:
		return c.call.AppendHeartbeat(responses)
	case s.inFlight.Add(1) > int64(s.opts.Workers):
		s.inFlight.Add(-1)
		s.refused.Add(1)
		return c.call.AppendError(responses, dubbo.StatusPoolExhausted,
			fmt.Sprintf("Thread pool is EXHAUSTED! %s has %d workers and no queue", s.opts.Name, s.opts.Workers))
	case s.opts.Mode == Fast:
		s.inFlight.Add(-1)
		s.served.Add(1)
		return c.result(responses)
	}
	go c.work(c.result(nil))
	return responses
}

// work is a worker with one call. The worker is free before its response is written, so a
// client with a response may count on a free worker.
func (c *dubboConn) work(response []byte) {
	s := c.service
	s.work()
	s.served.Add(1)
	if !c.alive() {
		s.aborted.Add(1)
	}
	s.inFlight.Add(-1)
	if !c.send(response) {
		c.nc.Close()
	}
}

// result appends the response to c.call, unless it is one-way.
func (c *dubboConn) result(dst []byte) []byte {
	if text, ok := c.call.Text(); ok && c.call.Method == "hash" {
		return c.call.AppendInt(dst, dubbo.HashCode(text))
	}
	return c.call.AppendEcho(dst)
}
