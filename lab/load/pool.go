package load

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"
)

// maxQueued bounds the requests of one target that are queued for a connection.
const maxQueued = 1 << 16

// pool holds the connections to one target.
type pool struct {
	gen     *generator
	addr    string
	limit   int         // of open connections
	tls     *tls.Config // nil means plain text
	head    []byte      // request up to the nonce's digits
	tail    []byte      // request after them
	mu      sync.Mutex
	idle    []*conn // used in turn, so that a server's loops share the load
	open    map[*conn]struct{}
	dialing int
	dialled int // in all
	queue   []request
	closed  bool
}

func newPool(g *generator, u *url.URL, limit int) *pool {
	p := &pool{gen: g, addr: u.Host, limit: limit, open: map[*conn]struct{}{}}
	if u.Port() == "" {
		p.addr = net.JoinHostPort(u.Hostname(), u.Scheme)
	}
	if u.Scheme == "https" {
		p.tls = g.opts.TLS
	}
	p.head = fmt.Appendf(nil, "%s %s HTTP/1.1\r\nhost: %s\r\nx-nonce: ", g.opts.Method, u.RequestURI(), u.Host)
	p.tail = append(p.tail, "\r\n"...)
	for _, h := range g.opts.Header {
		p.tail = fmt.Appendf(p.tail, "%s: %s\r\n", h.Name, h.Value)
	}
	if len(g.opts.Body) > 0 {
		p.tail = fmt.Appendf(p.tail, "content-type: application/json\r\ncontent-length: %d\r\n", len(g.opts.Body))
	}
	p.tail = append(p.tail, "\r\n"...)
	p.tail = append(p.tail, g.opts.Body...)
	return p
}

func (p *pool) connect() error {
	c, err := p.dial()
	if err == nil {
		p.add(c)
	}
	return err
}

// connections is called once there are no goroutines left.
func (p *pool) connections() int { return p.dialled }

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
		go p.fail(r, ErrReset)
	case len(p.open)+p.dialing < p.limit:
		p.dialing++
		go p.dialFor(r)
	case len(p.queue) < maxQueued:
		p.queue = append(p.queue, r)
	default:
		go p.fail(r, ErrConnect)
	}
}

func (p *pool) fail(r request, kind ErrorKind) {
	p.gen.done(p, r, time.Now(), outcome{kind: kind})
}

func (p *pool) dialFor(r request) {
	c, err := p.dial()
	p.mu.Lock()
	p.dialing--
	p.mu.Unlock()
	if err != nil {
		p.fail(r, ErrConnect)
		p.unqueue()
	} else if !c.send(r) {
		p.fail(r, ErrReset)
	}
}

// dial opens a connection that is not in p.idle yet.
func (p *pool) dial() (*conn, error) {
	plain := &net.Dialer{Timeout: p.gen.opts.Timeout}
	dial := plain.DialContext
	if p.tls != nil {
		dial = (&tls.Dialer{NetDialer: plain, Config: p.tls}).DialContext
	}
	nc, err := dial(p.gen.ctx, "tcp", p.addr)
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
	if r, ok := p.next(c); ok && !c.send(r) {
		p.fail(r, ErrReset)
	}
}

// remove drops c, which is dead, and dispatches a queued request in its place.
func (p *pool) remove(c *conn) {
	p.mu.Lock()
	delete(p.open, c)
	p.mu.Unlock()
	p.unqueue()
}

func (p *pool) unqueue() {
	if r, ok := p.next(nil); ok {
		p.dispatch(r)
	}
}

// next takes the first queued request that is not too late. If there is none, free becomes
// idle; nil means that no connection is free.
func (p *pool) next(free *conn) (r request, ok bool) {
	for {
		p.mu.Lock()
		if len(p.queue) == 0 {
			if free != nil {
				p.idle = append(p.idle, free)
			}
			p.mu.Unlock()
			return request{}, false
		}
		r, p.queue = p.queue[0], p.queue[1:]
		p.mu.Unlock()
		if time.Since(r.due) <= p.gen.opts.Timeout {
			return r, true
		}
		p.fail(r, ErrTimeout)
	}
}

// close closes all connections and fails the queued requests. It may be called again.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	queued := p.queue
	p.queue, p.idle = nil, nil
	for c := range p.open {
		c.nc.Close() // its reader removes it
	}
	p.mu.Unlock()
	for _, r := range queued {
		p.fail(r, ErrReset)
	}
}
