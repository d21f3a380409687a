package zktest

import (
	"encoding/binary"
	"io"
	"net"
	"path"
	"slices"
	"strings"
	"time"
)

type conn struct {
	s    *Server
	net  net.Conn
	out  chan []byte
	id   int64    // of the session
	user []string // that have proved themselves

	isClosed bool
}

// close closes the connection. The caller holds the mutex of the Server, as for send.
func (c *conn) close() {
	c.net.Close()
	if !c.isClosed {
		c.isClosed = true
		close(c.out)
	}
}

// send queues a message.
func (c *conn) send(w writer) {
	if c.isClosed || c.s.isFrozen {
		return
	}
	select {
	case c.out <- append(binary.BigEndian.AppendUint32(nil, uint32(len(w.b))), w.b...):
	default:
		c.net.Close()
	}
}

func (s *Server) accept() {
	for {
		nc, err := s.listener.Accept()
		if err != nil {
			return
		}
		c := &conn{s: s, net: nc, out: make(chan []byte, 1<<10)}
		s.mu.Lock()
		if s.isCut || s.isClosed {
			nc.Close()
			s.mu.Unlock()
			continue
		}
		s.conns[c] = struct{}{}
		s.mu.Unlock()
		s.tasks.Go(func() {
			for b := range c.out {
				if _, err := nc.Write(b); err != nil {
					nc.Close()
				}
			}
		})
		s.tasks.Go(func() {
			c.serve()
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.conns, c)
			s.tree.forget(c)
			c.close()
		})
	}
}

func (c *conn) read() (reader, bool) {
	var size [4]byte
	if _, err := io.ReadFull(c.net, size[:]); err != nil {
		return reader{}, false
	}
	b := make([]byte, min(binary.BigEndian.Uint32(size[:]), 1<<20))
	_, err := io.ReadFull(c.net, b)
	return reader{b}, err == nil
}

func (c *conn) serve() {
	r, ok := c.read()
	if !ok || !c.greet(r) {
		return
	}
	for {
		if r, ok = c.read(); !ok || !c.answer(r) {
			return
		}
	}
}

func (c *conn) greet(r reader) bool {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	r.int32()
	zxid, timeout, id := r.int64(), time.Duration(r.int32())*time.Millisecond, r.int64()
	if s.isFrozen {
		return true
	}
	if zxid > s.tree.zxid {
		return false // as a server does that is behind the client
	}
	if s.longest > 0 {
		timeout = min(timeout, s.longest)
	}
	var w writer
	w.int32(0)
	if id != 0 && s.tree.sessions[id] == nil {
		timeout, id = 0, 0
	} else {
		if id == 0 {
			s.tree.lastID++
			id = s.tree.lastID
		}
		s.tree.sessions[id] = &session{timeout, time.Now()}
		c.id = id
		s.seen++
	}
	w.int32(int32(timeout / time.Millisecond))
	w.int64(id)
	w.text(strings.Repeat("p", 16))
	w.b = append(w.b, 0)
	c.send(w)
	return true
}

// Codes of errors.
const (
	noNode     = -101
	noAuth     = -102
	badVersion = -103
	nodeExists = -110
	notEmpty   = -111
)

// answer answers a request, and reports whether the connection stays open.
func (c *conn) answer(r reader) bool {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	xid, op := r.int32(), r.int32()
	if s.isFrozen {
		return true
	}
	if s.tree.sessions[c.id] == nil {
		return false
	}
	s.tree.sessions[c.id].heard = time.Now()
	if s.refusal != 0 {
		c.reply(xid, s.refusal, writer{})
		return true
	}
	if op == -11 {
		s.tree.endSession(c.id)
		c.reply(xid, 0, writer{})
		return false
	}
	var body writer
	code := c.do(op, &r, &body)
	c.reply(xid, code, body)
	return true
}

func (c *conn) reply(xid, code int32, body writer) {
	var w writer
	w.int32(xid)
	w.int64(c.s.tree.zxid)
	w.int32(code)
	if code == 0 {
		w.b = append(w.b, body.b...)
	}
	c.send(w)
}

func (c *conn) do(op int32, r *reader, body *writer) (code int32) {
	t := &c.s.tree
	switch op {
	case 11: // ping
		return 0
	case 100: // auth
		r.int32()
		r.text()
		c.user = append(c.user, r.text())
		return 0
	case 14: // multi
		return c.multi(r, body)
	}
	at := r.text()
	if code := c.s.failing[at]; code != 0 {
		return code
	}
	n := t.nodes[at]
	if n != nil && !c.may(n) {
		return noAuth
	}
	switch op {
	case 1:
		return c.create(at, r, body)
	case 2:
		return c.delete(at, r.int32())
	case 3:
		if r.bool() {
			watch(t.data, at, c)
		}
		if n == nil {
			return noNode
		}
		c.stat(n, body)
	case 4:
		if n == nil {
			return noNode
		}
		if r.bool() {
			watch(t.data, at, c)
		}
		body.text(string(n.data))
		c.stat(n, body)
	case 5:
		data, version := r.text(), r.int32()
		switch {
		case n == nil:
			return noNode
		case version != -1 && version != n.version:
			return badVersion
		}
		t.set(at, []byte(data))
		c.stat(n, body)
	case 8:
		if n == nil {
			return noNode
		}
		if r.bool() {
			watch(t.children, at, c)
		}
		names := t.childrenOf(at)
		body.int32(int32(len(names)))
		for _, name := range names {
			body.text(name)
		}
	default:
		return -6
	}
	return 0
}

func (c *conn) may(n *node) bool {
	if n.user == "" {
		return true
	}
	return slices.Contains(c.user, n.user)
}

func (c *conn) create(at string, r *reader, body *writer) (code int32) {
	t := &c.s.tree
	data := r.text()
	user := ""
	for range r.int32() {
		r.int32()
		if scheme := r.text(); scheme == "auth" && len(c.user) > 0 {
			user = c.user[0]
		}
		r.text()
	}
	flags := r.int32()
	owner := int64(0)
	if flags&1 != 0 {
		owner = c.id
	}
	switch {
	case t.nodes[path.Dir(at)] == nil:
		return noNode
	case t.nodes[at] != nil:
		return nodeExists
	}
	t.create(at, []byte(data), owner, user)
	body.text(at)
	return 0
}

func (c *conn) delete(at string, version int32) (code int32) {
	t := &c.s.tree
	n := t.nodes[at]
	switch {
	case n == nil:
		return noNode
	case version != -1 && version != n.version:
		return badVersion
	case len(t.childrenOf(at)) > 0:
		return notEmpty
	}
	t.delete(at)
	return 0
}

// multi supports a deletion and a creation after it, of one node.
func (c *conn) multi(r *reader, body *writer) (code int32) {
	r.header()
	at, version := r.text(), r.int32()
	n := c.s.tree.nodes[at]
	switch {
	case n == nil:
		code = noNode
	case version != -1 && version != n.version:
		code = badVersion
	}
	if code != 0 {
		for _, result := range []int32{code, -2} {
			body.header(-1, false, result)
			body.int32(result)
		}
		body.header(-1, true, -1)
		return 0
	}
	c.delete(at, version)
	r.header()
	body.header(2, false, 0)
	body.header(1, false, 0)
	c.create(r.text(), r, body)
	body.header(-1, true, -1)
	return 0
}

func (c *conn) stat(n *node, w *writer) {
	w.b = append(w.b, make([]byte, 32)...)
	w.int32(n.version)
	w.int64(0)
	w.int64(n.owner)
	w.b = append(w.b, make([]byte, 16)...)
}

type writer struct{ b []byte }

func (w *writer) int32(n int32) { w.b = binary.BigEndian.AppendUint32(w.b, uint32(n)) }
func (w *writer) int64(n int64) { w.b = binary.BigEndian.AppendUint64(w.b, uint64(n)) }
func (w *writer) text(s string) { w.int32(int32(len(s))); w.b = append(w.b, s...) }
func (w *writer) header(op int32, done bool, err int32) {
	w.int32(op)
	w.b = append(w.b, map[bool]byte{true: 1}[done])
	w.int32(err)
}

// reader reads what the client of this module writes; anything else makes it panic.
type reader struct{ b []byte }

func (r *reader) take(n int) []byte {
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}
func (r *reader) int32() int32 { return int32(binary.BigEndian.Uint32(r.take(4))) }
func (r *reader) int64() int64 { return int64(binary.BigEndian.Uint64(r.take(8))) }
func (r *reader) bool() bool   { return r.take(1)[0] != 0 }
func (r *reader) text() string { return string(r.take(max(0, int(r.int32())))) }
func (r *reader) header()      { r.take(9) }
