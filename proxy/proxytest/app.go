package proxytest

import (
	"fmt"
	"slices"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/sim"
)

// App is a simulated HTTP application that responds with the request's nonce.
type App struct {
	m            *Mesh
	Host         string
	Addr         string
	Loop         *sim.Loop
	Delay        func() time.Duration
	FrozenUntil  time.Duration // responses wait until then
	Status       int
	Served       int
	ExtraHeaders string // lines of response headers, each with CRLF
	Close        bool   // closes after each response

	DropNext  bool // closes instead of serving the next request
	ResetAll  bool // resets every connection with a request
	Body      func(req *protocol.Request) []byte
	OnRequest func(req *protocol.Request)
	OnServed  func()
	Stop      func() // stops listening
}

func newApp(m *Mesh, host string) *App {
	a := &App{m: m, Host: host, Addr: host + ":8080", Loop: m.W.Loop(host + "-app"), Status: 200,
		Delay: func() time.Duration { return time.Millisecond }}
	a.Listen()
	return a
}

// AppConn is one connection to an App.
type AppConn struct {
	A    *App
	conn loop.Conn
	in   []byte
	body bytebufferpool.ByteBuffer
	open bool
}

func (c *AppConn) OnOpen(conn loop.Conn) { c.conn, c.open = conn, true }
func (c *AppConn) OnClose(error)         { c.open = false }

func (c *AppConn) OnData(b []byte) {
	c.in = append(c.in, b...)
	for {
		var req protocol.Request
		var head http1.Head
		lim := protocol.Limits{Header: 128 << 10, Headers: 256, Message: MaxMessage}
		n, err := http1.DecodeRequest(c.in, &req, &head, &lim)
		if err == http1.ErrIncomplete {
			return
		}
		if err != nil {
			c.A.m.T.Errorf("the application got a malformed request: %v\n%q", err, c.in)
			return
		}
		if head.Framing != http1.NoBody {
			var body http1.Body
			body.Reset(&head, &lim)
			c.body.Reset()
			used, done, err := body.Decode(c.in[n:], &c.body)
			if err != nil {
				c.A.m.T.Errorf("the application got a malformed body: %v", err)
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

func (c *AppConn) serve(req *protocol.Request) {
	a := c.A
	if a.OnRequest != nil {
		a.OnRequest(req)
	}
	if a.DropNext || a.ResetAll {
		a.DropNext = false
		a.m.W.At(a.m.W.Now(), func() { a.m.W.Reset(c.conn) })
		return
	}
	nonce := string(protocol.Find(req.Headers, "x-nonce"))
	body := fmt.Appendf(nil, "nonce=%s path=%s body=%d", nonce, req.Path, len(req.Body))
	if a.Body != nil {
		body = a.Body(req)
	}
	head := string(req.Method) == "HEAD"
	t := &loop.Timer{}
	t.Fire = func() {
		if wait := a.FrozenUntil - a.Loop.Now(); wait > 0 {
			a.Loop.After(wait, t)
			return
		}
		a.Served++
		if a.OnServed != nil {
			a.OnServed()
		}
		if !c.open {
			return
		}
		out := fmt.Appendf(nil, "HTTP/1.1 %d X\r\nx-nonce: %s\r\ncontent-length: %d\r\n%s", a.Status, nonce, len(body), a.ExtraHeaders)
		if a.Close {
			out = append(out, "connection: close\r\n"...)
		}
		out = append(out, "\r\n"...)
		if !head {
			out = append(out, body...)
		}
		c.conn.Write(out)
		if a.Close {
			c.conn.Drain()
		}
	}
	wait := a.Delay()
	if frozen := a.FrozenUntil - a.Loop.Now(); frozen > 0 {
		wait += frozen
	}
	a.Loop.After(wait, t)
}

// ServeByPool gives the application a number of workers behind a queue of its own. Service
// times are uniform around mean.
func (a *App) ServeByPool(workers int, mean time.Duration) {
	free := make([]time.Duration, workers) // when each worker is free
	rnd := a.m.W.Rand()
	a.Delay = func() time.Duration {
		slices.Sort(free)
		service := mean/2 + time.Duration(rnd.Int64N(int64(mean)))
		free[0] = max(free[0], a.Loop.Now()) + service
		return free[0] - a.Loop.Now()
	}
}

// Listen makes the application accept connections until Stop is called.
func (a *App) Listen() {
	a.Stop = a.m.W.Listen(a.Addr, a.Loop, func() loop.Stream { return &AppConn{A: a} })
}

// restart starts a crashed application again.
func (a *App) restart() {
	a.Loop = a.m.W.Loop(a.Host + "-app")
	a.Listen()
}
