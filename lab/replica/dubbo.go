package replica

import (
	"context"
	"fmt"
	"sync"

	"github.com/cloudwego/netpoll"

	"github.com/remora-proxy/remora/lab/dubbo"
)

// maxUnsent bounds the answers, in bytes, to a caller that does not read them.
const maxUnsent = 64 << 20

// dubboConn is the state of one connection of Dubbo callers. netpoll runs at
// most one onRequest of a connection at a time; the workers write besides it.
type dubboConn struct {
	service *service
	nc      netpoll.Connection
	in      []byte // arrived and not yet parsed
	call    dubbo.Call

	mu      sync.Mutex
	out     []byte // answers that have not been given to nc
	writing bool   // by a goroutine that will come back for out
	sent    []byte // memory of the answers before
}

func (r *Replica) onDubboConnect(ctx context.Context, nc netpoll.Connection) context.Context {
	return context.WithValue(ctx, connKey{}, &dubboConn{service: r.service, nc: nc})
}

// onDubboRequest runs on a goroutine of its own whenever something has arrived.
func onDubboRequest(ctx context.Context, nc netpoll.Connection) error {
	c := ctx.Value(connKey{}).(*dubboConn)
	b, err := nc.Reader().Next(nc.Reader().Len())
	if err != nil {
		return nc.Close()
	}
	c.in = append(c.in, b...)
	nc.Reader().Release()
	answers, ok := c.serve()
	if !c.write(answers) || !ok {
		return nc.Close()
	}
	return nil
}

// serve takes the whole calls in c.in. It returns the answers that need no
// worker, and whether the connection goes on.
func (c *dubboConn) serve() (answers []byte, ok bool) {
	used := 0
	defer func() { c.in = append(c.in[:0], c.in[used:]...) }()
	for {
		n, err := c.call.Parse(c.in[used:])
		switch err {
		case dubbo.ErrIncomplete:
			return answers, true
		case dubbo.ErrMalformed:
			return answers, false
		case nil:
			answers = c.take(answers)
		default:
			answers = c.refuse(answers, dubbo.StatusBadRequest, err.Error())
		}
		used += n
	}
}

// take gives c.call to a worker, or answers at once what needs none.
func (c *dubboConn) take(answers []byte) []byte {
	s := c.service
	switch {
	case c.call.Event && c.call.TwoWay:
		return c.call.AppendHeartbeat(answers)
	case c.call.Event:
		return answers
	case s.inFlight.Add(1) > int64(s.opts.Workers):
		s.inFlight.Add(-1)
		s.refused.Add(1)
		return c.refuse(answers, dubbo.StatusPoolExhausted,
			fmt.Sprintf("Thread pool is EXHAUSTED! %s has %d workers and no queue", s.opts.Name, s.opts.Workers))
	case s.opts.Mode == Fast:
		s.inFlight.Add(-1)
		s.served.Add(1)
		return c.result(answers)
	}
	answer := c.result(nil)
	go c.work(answer)
	return answers
}

// work is a worker at one call. It is free before its answer is written: whoever
// has an answer may count on a free worker.
func (c *dubboConn) work(answer []byte) {
	s := c.service
	s.work()
	s.served.Add(1)
	if !c.nc.IsActive() {
		s.aborted.Add(1)
	}
	s.inFlight.Add(-1)
	if !c.write(answer) {
		c.nc.Close()
	}
}

// result appends the answer to c.call, if it wants one.
func (c *dubboConn) result(dst []byte) []byte {
	if !c.call.TwoWay {
		return dst
	}
	if text, ok := c.call.Text(); ok && c.call.Method == "hash" {
		return c.call.AppendInt(dst, dubbo.HashCode(text))
	}
	return c.call.AppendEcho(dst)
}

// refuse appends an answer that is no result to c.call, if it wants one.
func (c *dubboConn) refuse(dst []byte, status byte, message string) []byte {
	if !c.call.TwoWay {
		return dst
	}
	return c.call.AppendError(dst, status, message)
}

// write sends answers, together with those that come while others are being
// written. It returns whether the connection still stands, as far as is known.
func (c *dubboConn) write(answers []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = append(c.out, answers...)
	if c.writing {
		return len(c.out) <= maxUnsent
	}
	c.writing = true
	defer func() { c.writing = false }()
	for len(c.out) > 0 {
		b := c.out
		c.out = c.sent[:0]
		c.mu.Unlock()
		// Unlike nc's Writer, Write may be called while the connection is being closed.
		_, err := c.nc.Write(b)
		c.mu.Lock()
		c.sent = b
		if err != nil {
			return false
		}
	}
	return true
}
