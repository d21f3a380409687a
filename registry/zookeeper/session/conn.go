package session

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Bounds of what a server may send, in bytes.
const (
	maxHandshake = 1 << 10
	maxMessage   = 16 << 20  // of a response: a longer one fails its request, and is skipped
	maxSkipped   = 256 << 20 // a longer one can't be a response of ZooKeeper
)

// ErrLarge means that a response has more than 16 MiB.
var ErrLarge = fmt.Errorf("zookeeper: the response has more than %d bytes", maxMessage)

// ErrLost means that there is no connection, or that it ended before the response.
var ErrLost = errors.New("zookeeper: the connection was lost")

// Numbers in place of that of a request, in messages that no request has asked for.
const (
	xidEvent = -1
	xidPing  = -2
	xidAuth  = -4
)

// conn is a connection whose handshake is done. The server answers requests in their order.
type conn struct {
	net     net.Conn
	silence time.Duration // of the server, after which it counts as lost

	mu      sync.Mutex // held while a request is written, so that waiting has the order on the wire
	xid     int32
	waiting []*call
	ended   bool
}

// call is a request without a response.
type call struct {
	xid  int32
	done chan reply // capacity 1
}

type reply struct {
	body []byte // without the header; owned by the receiver
	err  error
}

// do sends a request and waits for its response. The server answers requests in their order, so if there is no response by the
// deadline of ctx, all later requests wait, too: the connection is closed then.
func (c *conn) do(ctx context.Context, op int32, encode func(*encoder)) (decoder, error) {
	call := &call{done: make(chan reply, 1)}
	if err := c.send(op, encode, call); err != nil {
		return decoder{}, err
	}
	select {
	case r := <-call.done:
		return decoder{b: r.body}, r.err
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			_ = c.net.Close()
		}
		return decoder{}, ctx.Err()
	}
}

// send writes a request. A write that fails closes the connection, and read then fails all calls.
func (c *conn) send(op int32, encode func(*encoder), call *call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return ErrLost
	}
	c.xid = max(c.xid+1, 1)
	call.xid = c.xid
	c.waiting = append(c.waiting, call)
	if err := c.write(c.xid, op, encode); err != nil {
		_ = c.net.Close()
	}
	return nil
}

// sendOwn writes a message that is no request of a caller.
func (c *conn) sendOwn(xid, op int32, encode func(*encoder)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.write(xid, op, encode)
}

func (c *conn) write(xid, op int32, encode func(*encoder)) error {
	e := encoder{b: make([]byte, 4, 256)}
	e.int32(xid)
	e.int32(op)
	if encode != nil {
		encode(&e)
	}
	return writeFrame(c.net, e.b, c.silence)
}

// writeFrame fills in the length of a message, whose place is the first four bytes of b, and writes it.
func writeFrame(to net.Conn, b []byte, limit time.Duration) error {
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	if err := to.SetWriteDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	_, err := to.Write(b)
	return err
}

// ping asks the server for a sign of life until ctx ends. The session lives as long as the server hears from it.
func (c *conn) ping(ctx context.Context) {
	tick := time.NewTicker(c.silence / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if c.sendOwn(xidPing, opPing, nil) != nil {
				_ = c.net.Close()
				return
			}
		}
	}
}

// incoming is what read hands on.
type incoming struct {
	heard   func(zxid int64) // after each message; zxid is 0 if it has none
	alive   func()           // after each answer to a ping
	changed func(path string)
}

// read receives messages until the connection ends, and returns why. The calls that wait then fail.
func (c *conn) read(to incoming) error {
	err := c.readAll(to)
	_ = c.net.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for _, call := range c.waiting {
		call.done <- reply{err: ErrLost}
	}
	c.waiting = nil
	return err
}

func (c *conn) readAll(to incoming) error {
	for {
		if err := c.net.SetReadDeadline(time.Now().Add(c.silence)); err != nil {
			return err
		}
		m, err := readMessage(c.net)
		if err != nil {
			return err
		}
		to.heard(m.zxid)
		switch m.xid {
		case xidPing, xidAuth:
			if m.code != 0 {
				return m.code
			}
			if m.xid == xidPing {
				to.alive()
			}
		case xidEvent:
			d := decoder{b: m.body}
			d.take(4 + 4) // type of the event, state of the session
			path := d.text()
			if d.err != nil {
				return d.err
			}
			if path != "" {
				to.changed(path)
			}
		default:
			if err := c.answer(m); err != nil {
				return err
			}
		}
	}
}

// answer gives a response to the call that waits for it.
func (c *conn) answer(m message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 || c.waiting[0].xid != m.xid {
		return ErrFormat
	}
	call := c.waiting[0]
	c.waiting[0] = nil
	c.waiting = c.waiting[1:]
	r := reply{body: m.body}
	switch {
	case m.code != 0:
		r.err = m.code
	case m.isLarge:
		r.err = ErrLarge
	}
	call.done <- r
	return nil
}

// message is a message of the server.
type message struct {
	xid     int32
	zxid    int64
	code    Code
	body    []byte // nil if isLarge
	isLarge bool
}

const headerSize = 4 + 8 + 4 // of a response, after its length

// readMessage reads a message.
func readMessage(from io.Reader) (message, error) {
	var head [4 + headerSize]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return message{}, err
	}
	size := int64(binary.BigEndian.Uint32(head[:])) - headerSize
	d := decoder{b: head[4:]}
	m := message{xid: d.int32(), zxid: d.int64(), code: Code(d.int32())}
	switch {
	case size < 0 || size > maxSkipped:
		return message{}, ErrFormat
	case size > maxMessage:
		m.isLarge = true
		_, err := io.CopyN(io.Discard, from, size)
		return m, err
	}
	var err error
	m.body, err = readBody(from, int(size))
	return m, err
}

// firstPart is how much memory is taken for a message before any of it has arrived.
const firstPart = 64 << 10

// readBody reads size bytes. Memory is taken as they arrive: the length alone may be wrong.
func readBody(from io.Reader, size int) ([]byte, error) {
	b := make([]byte, 0, min(size, firstPart))
	for len(b) < size {
		if len(b) == cap(b) {
			b = append(make([]byte, 0, min(size, 2*cap(b))), b...)
		}
		n, err := io.ReadFull(from, b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err != nil {
			return nil, err
		}
	}
	return b, nil
}

// greeting is what the server answers to a new connection.
type greeting struct {
	timeout  time.Duration // 0 means that the session has ended
	id       int64
	password []byte
}

// greet opens a session on a connection, or goes on with one.
func greet(c net.Conn, zxid int64, timeout time.Duration, id int64, password []byte) (greeting, error) {
	e := encoder{b: make([]byte, 4, 64)}
	e.int32(0) // version of the protocol
	e.int64(zxid)
	e.int32(int32(timeout / time.Millisecond))
	e.int64(id)
	e.bytes(password)
	e.bool(false) // not a server that takes only reads
	limit := max(timeout/2, minHandshake)
	if err := writeFrame(c, e.b, limit); err != nil {
		return greeting{}, err
	}
	if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return greeting{}, err
	}
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return greeting{}, refused(err)
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxHandshake {
		return greeting{}, ErrFormat
	}
	body, err := readBody(c, int(size))
	if err != nil {
		return greeting{}, err
	}
	d := decoder{b: body}
	d.int32() // version of the protocol
	g := greeting{timeout: time.Duration(max(d.int32(), 0)) * time.Millisecond, id: d.int64(), password: d.bytes()}
	return g, d.err
}

// ErrRefused is what a server does that is behind what the session has seen, has no quorum, or has too many clients.
var ErrRefused = errors.New("zookeeper: the server closed the connection before it answered")

func refused(err error) error {
	if errors.Is(err, io.EOF) {
		return ErrRefused
	}
	return err
}

// minHandshake is the least time that a server has for the first answer.
const minHandshake = 2 * time.Second
