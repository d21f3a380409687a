package load

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/remora-proxy/remora/lab/wire"
)

// conn carries one request at a time. A goroutine that took it from its pool sends on it; its
// reader takes the responses and puts it back.
type conn struct {
	pool *pool
	nc   net.Conn

	// A response may come, and start the next request, before the Write of its request returns.
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
	return &conn{pool: p, nc: nc, out: slices.Concat(p.head, make([]byte, nonceDigits), p.tail)}
}

// become changes the state, and returns the one before it with its request. Only an idle
// connection becomes busy, with r.
func (c *conn) become(next connState, r request) (connState, request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, carried := c.state, c.req
	if next != connBusy || last == connIdle {
		c.state, c.req = next, r
	}
	return last, carried
}

// send writes r. It returns false, with nothing sent, if c is dead. The reader handles later
// errors and accounts for r.
func (c *conn) send(r request) bool {
	r.sent = time.Now()
	if last, _ := c.become(connBusy, r); last != connIdle {
		return false
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if r.varied != nil {
		c.out = append(append(c.out[:len(c.pool.head)+nonceDigits], "\r\n"...), r.varied...)
	}
	putNonce(c.out[len(c.pool.head):], r.nonce)
	c.nc.SetDeadline(r.due.Add(c.pool.gen.opts.Timeout))
	if r.counted {
		c.pool.gen.rec.sent(r.sent.Sub(r.due))
	}
	if _, err := c.nc.Write(c.out); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.nc.Close() // ends the reader
	}
	return true
}

func (c *conn) read() {
	var msg wire.Message
	msg.Reset()
	var buf []byte
	toHead := c.pool.gen.opts.Method == "HEAD"
	for {
		var err error
		buf, err = wire.ReadMore(c.nc, buf)
		now := time.Now()
		if err != nil {
			kind := ErrReset
			if errors.Is(err, os.ErrDeadlineExceeded) {
				kind = ErrTimeout
			}
			c.die(now, kind)
			return
		}
		used, err := msg.ParseResponse(buf, toHead)
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
	next := connIdle
	if msg.Close {
		next = connDead
	}
	last, r := c.become(next, request{})
	if last != connBusy {
		c.die(now, ErrProtocol) // a response without a request
		return false
	}
	end := outcome{status: msg.Status, kind: c.judge(r, msg)}
	if end.kind == ErrStatus {
		end.code = string(msg.Refusal)
	}
	if msg.Close {
		c.nc.Close()
		c.pool.remove(c)
	} else {
		c.nc.SetDeadline(time.Time{})
		c.pool.add(c)
	}
	c.pool.gen.done(c.pool, r, now, end)
	return !msg.Close
}

// judge returns the error of a response, or "". A wrong nonce counts first, whatever the status.
func (c *conn) judge(r request, msg *wire.Message) ErrorKind {
	good := msg.Status/100 == 2
	if !c.pool.gen.opts.NoNonce && (good || len(msg.Nonce) > 0) {
		var want [nonceDigits]byte
		putNonce(want[:], r.nonce)
		if string(msg.Nonce) != string(want[:]) {
			return ErrNonce
		}
	}
	if !good {
		return ErrStatus
	}
	return ""
}

// die closes c. A request in flight fails with kind. Without one, what broke the
// protocol is a response that no request awaits.
func (c *conn) die(now time.Time, kind ErrorKind) {
	c.nc.Close()
	last, r := c.become(connDead, request{})
	c.pool.remove(c)
	switch {
	case last == connBusy:
		c.pool.gen.done(c.pool, r, now, outcome{kind: kind})
	case kind == ErrProtocol:
		c.pool.gen.rec.stray(now)
	}
}

func putNonce(dst []byte, n uint64) {
	var b [nonceDigits / 2]byte
	binary.BigEndian.PutUint64(b[:], n)
	hex.Encode(dst, b[:])
}
