package mesh

import (
	"strconv"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/loop"
)

// limits are the limits of callers and applications. No message of a run reaches them.
var limits = protocol.Limits{Header: 64 << 10, Headers: 128, Message: 16 << 20}

// appConn is a connection to an application: requests one after another.
type appConn struct {
	app  *app
	conn loop.Conn // nil once closed
	in   []byte
	out  []byte
}

func (c *appConn) OnOpen(conn loop.Conn) { c.conn = conn }
func (c *appConn) OnClose(error) {
	c.conn = nil
	if c.app.m.spec.Stop {
		c.app.cancel(c)
	}
}

func (c *appConn) OnData(b []byte) {
	c.in = append(c.in, b...)
	for len(c.in) > 0 {
		var req protocol.Request
		var head http1.Head
		n, err := http1.DecodeRequest(c.in, &req, &head, &limits)
		if err == http1.ErrIncomplete || err == nil && len(c.in) < n+int(head.Length) {
			return
		}
		if err != nil {
			c.app.m.journal.wrong("provider %d: its application got a malformed request: %v", c.app.provider+1, err)
			c.conn.Close()
			return
		}
		c.app.take(c, &req, head.Length)
		c.in = c.in[:copy(c.in, c.in[n+int(head.Length):])]
	}
}

// take serves a request that has arrived, and records it.
func (a *app) take(from requester, req *protocol.Request, length int64) {
	nonce, err := strconv.Atoi(string(protocol.Find(req.Headers, "x-nonce")))
	attempt := 0
	if v := protocol.Find(req.Headers, "x-remora-attempt"); v != nil && err == nil {
		attempt, err = strconv.Atoi(string(v))
	}
	if err != nil || !a.m.journal.known(nonce) {
		a.m.journal.wrong("provider %d: its application got an unknown request", a.provider+1)
		return
	}
	if protocol.Find(req.Headers, protocol.HeaderMirror) == nil && a.m.journal.calls[nonce].same == 0 { // else it may be a copy
		a.m.journal.arrived(nonce, a.provider, attempt, length)
	}
	a.serve(from, nonce)
}

// answer responds to the request nonce, unless the connection is closed.
func (c *appConn) answer(nonce, status int) {
	if c.conn == nil {
		return
	}
	id := strconv.Itoa(nonce)
	b := append(c.out[:0], "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, " X\r\nx-nonce: "...)
	b = append(b, id...)
	b = append(b, "\r\ncontent-length: "...)
	b = strconv.AppendInt(b, int64(len(id)), 10)
	b = append(b, "\r\n\r\n"...)
	b = append(b, id...)
	c.out = b
	c.conn.Write(b)
}
