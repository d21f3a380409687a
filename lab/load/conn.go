package load

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/remora-proxy/remora/lab/wire"
)

// conn carries one request at a time. A goroutine that took it from its pool sends on it; its
// reader takes the responses and puts it back.
type conn struct {
	pool *pool
	nc   net.Conn

	// A response may come, and start the next request, before the Write of the request has
	// returned.
	writing sync.Mutex
	out     []byte // the request with its nonce

	mu    sync.Mutex
	state connState
	req   request // while busy
}

type connState uint8

const (
	connIdle connState = iota
	connBusy           // a response is awaited
	connDead           // the reader has ended
)

const nonceDigits = 16

func newConn(p *pool, nc net.Conn) *conn {
	c := &conn{pool: p, nc: nc}
	c.out = append(c.out, p.head...)
	c.out = append(c.out, make([]byte, nonceDigits)...)
	c.out = append(c.out, p.tail...)
	return c
}

// send writes r. It returns false, with nothing sent, if c is dead. The reader handles later
// errors and accounts for r.
func (c *conn) send(r request) bool {
	c.mu.Lock()
	if c.state != connIdle {
		c.mu.Unlock()
		return false
	}
	c.state, c.req = connBusy, r
	c.mu.Unlock()
	c.writing.Lock()
	defer c.writing.Unlock()
	putNonce(c.out[len(c.pool.head):], r.nonce)
	deadline := r.due.Add(c.pool.gen.opts.Timeout)
	c.nc.SetDeadline(deadline)
	if r.counted {
		c.pool.gen.rec.sent(time.Since(r.due))
	}
	if _, err := c.nc.Write(c.out); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.nc.Close() // ends the reader
	}
	return true
}

// read runs until the connection ends.
func (c *conn) read() {
	var msg wire.Message
	msg.Reset()
	buf := make([]byte, 0, 4096)
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := c.nc.Read(buf[len(buf):cap(buf)])
		now := time.Now()
		buf = buf[:len(buf)+n]
		if err != nil {
			kind := ErrReset
			if errors.Is(err, os.ErrDeadlineExceeded) {
				kind = ErrTimeout
			}
			c.die(now, kind)
			return
		}
		used, err := msg.ParseResponse(buf, c.pool.toHead)
		if err == wire.ErrIncomplete {
			continue
		}
		if err != nil || used != len(buf) { // more than one response to one request
			c.die(now, ErrProtocol)
			return
		}
		buf = buf[:0]
		if !c.onResponse(now, &msg) {
			return
		}
		msg.Reset()
	}
}

// onResponse takes the response to c.req. It reports whether the connection stays open.
func (c *conn) onResponse(now time.Time, msg *wire.Message) bool {
	c.mu.Lock()
	if c.state != connBusy {
		c.mu.Unlock()
		c.die(now, ErrProtocol) // a response without a request
		return false
	}
	r := c.req
	c.state = connIdle
	if msg.Close {
		c.state = connDead
	}
	c.mu.Unlock()
	kind := c.judge(r, msg)
	if msg.Close {
		c.nc.Close()
		c.pool.remove(c)
	} else {
		c.nc.SetDeadline(time.Time{})
		c.pool.add(c)
	}
	end := outcome{status: msg.Status, kind: kind}
	if kind == ErrStatus {
		end.code = string(msg.Refusal)
	}
	c.pool.gen.done(c.pool, r, now, end)
	return !msg.Close
}

// judge returns the error of a response, or "". A wrong nonce counts first: the response belongs
// to another request, whatever its status.
func (c *conn) judge(r request, msg *wire.Message) ErrorKind {
	if !c.pool.gen.opts.NoNonce && len(msg.Nonce) > 0 || msg.Status/100 == 2 && !c.pool.gen.opts.NoNonce {
		var want [nonceDigits]byte
		putNonce(want[:], r.nonce)
		if string(msg.Nonce) != string(want[:]) {
			return ErrNonce
		}
	}
	if msg.Status/100 != 2 {
		return ErrStatus
	}
	return ""
}

// die closes c. A request in flight fails with kind.
func (c *conn) die(now time.Time, kind ErrorKind) {
	c.nc.Close()
	c.mu.Lock()
	busy, r := c.state == connBusy, c.req
	c.state = connDead
	c.mu.Unlock()
	c.pool.remove(c)
	if busy {
		c.pool.gen.done(c.pool, r, now, outcome{kind: kind})
	}
}

// putNonce writes n's sixteen hexadecimal digits to b.
func putNonce(b []byte, n uint64) {
	for i := nonceDigits - 1; i >= 0; i-- {
		b[i] = "0123456789abcdef"[n&15]
		n >>= 4
	}
}
