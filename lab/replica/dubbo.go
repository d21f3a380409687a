package replica

import (
	"fmt"

	"github.com/remora-proxy/remora/lab/dubbo"
	"github.com/remora-proxy/remora/lab/server"
)

// dubboConn is a Dubbo connection. Its workers write concurrently.
type dubboConn struct {
	writer
	service *service
	call    dubbo.Call
}

func (s *service) serveDubbo(nc *server.Conn) server.Handler {
	c := &dubboConn{service: s, writer: writer{Conn: nc}}
	return c.onInput
}

// onInput takes the whole calls in in, and sends the responses that need no worker. It returns the
// length of the calls, and whether the connection stays open.
func (c *dubboConn) onInput(in []byte) (used int, open bool) {
	var responses []byte
	for {
		n, err := c.call.Parse(in[used:])
		switch err {
		case dubbo.ErrIncomplete:
			return used, c.send(responses)
		case dubbo.ErrMalformed:
			c.send(responses)
			return used, false
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
	s.work(0)
	s.served.Add(1)
	if !c.Alive() {
		s.aborted.Add(1)
	}
	s.inFlight.Add(-1)
	if !c.send(response) {
		c.Close()
	}
}

// result appends the response to c.call, unless it is one-way.
func (c *dubboConn) result(dst []byte) []byte {
	if text, ok := c.call.Text(); ok && c.call.Method == "hash" {
		return c.call.AppendInt(dst, dubbo.HashCode(text))
	}
	return c.call.AppendEcho(dst)
}
