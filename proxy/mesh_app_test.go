package proxy_test

import (
	"fmt"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/sim"
)

// app is a simulated HTTP application that answers with the request's nonce.
type app struct {
	m      *mesh
	host   string
	addr   string
	loop   *sim.Loop
	delay  func() time.Duration
	frozen time.Duration // until then, answers wait
	status int
	served int
	extra  string // response header lines
	close  bool   // closes after each answer

	dropNext bool // closes instead of serving the next request
	resetAll bool // resets every connection that brings a request
	body     func(req *protocol.Request) []byte
	seen     func(req *protocol.Request)
	done     func()
	stop     func() // listening
}

func newApp(m *mesh, host string) *app {
	a := &app{m: m, host: host, addr: host + ":8080", loop: m.w.Loop(host + "-app"), status: 200,
		delay: func() time.Duration { return time.Millisecond }}
	a.listen()
	return a
}

func (a *app) listen() {
	a.stop = a.m.w.Listen(a.addr, a.loop, func() proxy.Stream { return &appConn{a: a} })
}

type appConn struct {
	a    *app
	conn proxy.Conn
	in   []byte
	body bytebufferpool.ByteBuffer
	open bool
}

func (c *appConn) OnOpen(conn proxy.Conn) { c.conn, c.open = conn, true }
func (c *appConn) OnClose(error)          { c.open = false }

func (c *appConn) OnData(b []byte) {
	c.in = append(c.in, b...)
	for {
		var req protocol.Request
		var head http1.Head
		lim := http1.Limits{Header: 128 << 10, Headers: 256, Message: maxMessage}
		n, err := http1.DecodeRequest(c.in, &req, &head, &lim)
		if err == http1.ErrIncomplete {
			return
		}
		if err != nil {
			c.a.m.t.Errorf("the application got a malformed request: %v\n%q", err, c.in)
			return
		}
		if head.Framing != http1.NoBody {
			var body http1.Body
			body.Reset(&head, &lim)
			c.body.Reset()
			used, done, err := body.Decode(c.in[n:], &c.body)
			if err != nil {
				c.a.m.t.Errorf("the application got a malformed body: %v", err)
			}
			if !done {
				return
			}
			req.Body = c.body.B[:body.Length()]
			n += used
		}
		c.serve(&req)
		c.in = append(c.in[:0:0], c.in[n:]...)
	}
}

func (c *appConn) serve(req *protocol.Request) {
	a := c.a
	if a.seen != nil {
		a.seen(req)
	}
	if a.dropNext || a.resetAll {
		a.dropNext = false
		a.m.w.At(a.m.w.Now(), func() { a.m.w.Reset(c.conn) })
		return
	}
	nonce := string(protocol.Find(req.Headers, "x-nonce"))
	body := fmt.Appendf(nil, "nonce=%s path=%s body=%d", nonce, req.Path, len(req.Body))
	if a.body != nil {
		body = a.body(req)
	}
	head := string(req.Method) == "HEAD"
	t := &proxy.Timer{}
	t.Fire = func() {
		if wait := a.frozen - a.loop.Now(); wait > 0 {
			a.loop.After(wait, t)
			return
		}
		a.served++
		if a.done != nil {
			a.done()
		}
		if !c.open {
			return
		}
		out := fmt.Appendf(nil, "HTTP/1.1 %d X\r\nx-nonce: %s\r\ncontent-length: %d\r\n%s", a.status, nonce, len(body), a.extra)
		if a.close {
			out = append(out, "connection: close\r\n"...)
		}
		out = append(out, "\r\n"...)
		if !head {
			out = append(out, body...)
		}
		c.conn.Write(out)
		if a.close {
			c.conn.Drain()
		}
	}
	wait := a.delay()
	if frozen := a.frozen - a.loop.Now(); frozen > 0 {
		wait += frozen
	}
	a.loop.After(wait, t)
}

// restart brings a crashed application back.
func (a *app) restart() {
	a.loop = a.m.w.Loop(a.host + "-app")
	a.listen()
}
