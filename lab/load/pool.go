package load

import (
	"context"
	"net"
	"strconv"
	"sync"
	"time"
)

// maxQueued bounds the requests of one target that are queued for a connection.
const maxQueued = 1 << 16

// pool holds the connections to one target.
type pool struct {
	gen     *generator
	target  target
	limit   int    // of open connections
	head    []byte // request up to the nonce's digits
	tail    []byte // request after them
	toHead  bool   // the method is HEAD
	mu      sync.Mutex
	idle    []*conn // used in turn, so that a server's loops share the load
	open    map[*conn]struct{}
	dialing int
	dialled int // in all
	queue   []request
	closed  bool
}

func newPool(g *generator, t target, limit int) *pool {
	p := &pool{gen: g, target: t, limit: limit, open: map[*conn]struct{}{}, toHead: g.opts.Method == "HEAD"}
	p.head = append(p.head, g.opts.Method+" "+t.path+" HTTP/1.1\r\nhost: "+t.host+"\r\nx-nonce: "...)
	p.tail = append(p.tail, "\r\n"...)
	for _, h := range g.opts.Header {
		p.tail = append(p.tail, h.Name+": "+h.Value+"\r\n"...)
	}
	if len(g.opts.Body) > 0 {
		p.tail = append(p.tail, "content-type: application/json\r\ncontent-length: "...)
		p.tail = strconv.AppendInt(p.tail, int64(len(g.opts.Body)), 10)
		p.tail = append(p.tail, "\r\n"...)
	}
	p.tail = append(p.tail, "\r\n"...)
	p.tail = append(p.tail, g.opts.Body...)
	return p
}

// dispatch sends r on an idle connection, or on a new one, or queues it.
func (p *pool) dispatch(r request) {
	for {
		p.mu.Lock()
		if len(p.idle) == 0 {
			break
		}
		c := p.idle[0]
		p.idle = append(p.idle[:0], p.idle[1:]...)
		p.mu.Unlock()
		if c.send(r) {
			return
		}
		// c died while it was idle: try another one.
	}
	defer p.mu.Unlock()
	switch {
	case p.closed:
		go p.gen.done(p, r, time.Now(), outcome{kind: ErrReset})
	case len(p.open)+p.dialing < p.limit:
		p.dialing++
		go p.dialFor(r)
	case len(p.queue) < maxQueued:
		p.queue = append(p.queue, r)
	default:
		go p.gen.done(p, r, time.Now(), outcome{kind: ErrConnect})
	}
}

// dialFor opens a connection and sends r on it.
func (p *pool) dialFor(r request) {
	c, err := p.dial()
	p.mu.Lock()
	p.dialing--
	p.mu.Unlock()
	if err != nil {
		p.gen.done(p, r, time.Now(), outcome{kind: ErrConnect})
		p.unqueue()
		return
	}
	if !c.send(r) {
		p.gen.done(p, r, time.Now(), outcome{kind: ErrReset})
	}
}

// dial opens a connection that is not in p.idle yet.
func (p *pool) dial() (*conn, error) {
	ctx, cancel := context.WithTimeout(p.gen.ctx, p.gen.opts.Timeout)
	defer cancel()
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", p.target.addr)
	if err != nil {
		return nil, err
	}
	c := newConn(p, nc)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		nc.Close()
		return nil, net.ErrClosed
	}
	p.open[c] = struct{}{}
	p.dialled++
	p.gen.readers.Go(c.read)
	return c, nil
}

// add makes c ready for the next request, a queued or a later one.
func (p *pool) add(c *conn) {
	for {
		p.mu.Lock()
		if len(p.queue) == 0 {
			p.idle = append(p.idle, c)
			p.mu.Unlock()
			return
		}
		r := p.queue[0]
		p.queue = p.queue[1:]
		p.mu.Unlock()
		now := time.Now()
		if now.Sub(r.due) > p.gen.opts.Timeout {
			p.gen.done(p, r, now, outcome{kind: ErrTimeout})
			continue
		}
		if !c.send(r) {
			p.gen.done(p, r, now, outcome{kind: ErrReset})
			return
		}
		return
	}
}

// remove drops c, which is dead, and dispatches a queued request in its place.
func (p *pool) remove(c *conn) {
	p.mu.Lock()
	delete(p.open, c)
	p.mu.Unlock()
	p.unqueue()
}

// unqueue dispatches the first queued request that is not too late.
func (p *pool) unqueue() {
	for {
		p.mu.Lock()
		if len(p.queue) == 0 {
			p.mu.Unlock()
			return
		}
		r := p.queue[0]
		p.queue = p.queue[1:]
		p.mu.Unlock()
		now := time.Now()
		if now.Sub(r.due) <= p.gen.opts.Timeout {
			p.dispatch(r)
			return
		}
		p.gen.done(p, r, now, outcome{kind: ErrTimeout})
	}
}

// close closes all connections and fails the queued requests. It may be called again.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	queued := p.queue
	p.queue, p.idle = nil, nil
	conns := make([]*conn, 0, len(p.open))
	for c := range p.open {
		conns = append(conns, c)
	}
	p.mu.Unlock()
	for _, r := range queued {
		p.gen.done(p, r, time.Now(), outcome{kind: ErrReset})
	}
	for _, c := range conns {
		c.nc.Close()
	}
}
