package proxytest

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/http2"
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
	Trailers     string // lines of trailers, each with CRLF; with some the body is chunked
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

// Open reports whether the connection is open.
func (c *AppConn) Open() bool { return c.open }

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
		a.m.W.At(a.m.W.Now(), func() { a.m.W.Faults.Reset(c.conn) })
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
		framing, sent := fmt.Sprintf("content-length: %d", len(body)), body
		if a.Trailers != "" {
			framing, sent = "transfer-encoding: chunked", fmt.Appendf(nil, "%x\r\n%s\r\n0\r\n%s\r\n", len(body), body, a.Trailers)
		}
		out := fmt.Appendf(nil, "HTTP/1.1 %d X\r\nx-nonce: %s\r\n%s\r\n%s", a.Status, nonce, framing, a.ExtraHeaders)
		if a.Close {
			out = append(out, "connection: close\r\n"...)
		}
		out = append(out, "\r\n"...)
		if !head {
			out = append(out, sent...)
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
	a.Stop = a.m.W.Net.Listen(a.Addr, a.Loop, func() loop.Receiver { return &AppConn{A: a} })
}

// restart starts a crashed application again.
func (a *App) restart() {
	a.Loop = a.m.W.Loop(a.Host + "-app")
	a.Listen()
}

// RespondWith makes the application send says after each request. It returns its latest
// connection.
func (a *App) RespondWith(says string) **Peer {
	return a.RespondWithFunc(func() string { return says })
}

// RespondWithFunc makes the application send the result of says after each request. It
// returns its latest connection.
func (a *App) RespondWithFunc(says func() string) **Peer {
	a.Stop()
	latest := new(*Peer)
	a.Stop = a.m.W.Net.Listen(a.Addr, a.Loop, func() loop.Receiver {
		*latest = &Peer{Reply: func(heard []byte) []byte {
			if !bytes.HasSuffix(heard, []byte("\r\n\r\n")) {
				return nil
			}
			return []byte(says())
		}}
		return *latest
	})
	return latest
}

// ServeHTTP2 makes the application speak HTTP/2. onCall responds to each request.
func (a *App) ServeHTTP2(onCall func(c *HTTP2Conn, st *http2.Stream)) {
	a.Stop()
	a.Stop = a.m.W.Net.Listen(a.Addr, a.Loop, func() loop.Receiver {
		return NewHTTP2Conn(0, func(c *HTTP2Conn, st *http2.Stream) {
			onCall(c, st)
			c.Flush()
		})
	})
}

// HTTP2Conn is the server's end of a connection by HTTP/2. OnCall may do with it what it wants, if it
// calls Flush afterwards.
type HTTP2Conn struct {
	H2     http2.Conn
	Conn   loop.Conn
	OnCall func(c *HTTP2Conn, st *http2.Stream) // for each request that is complete
	OnHead func(c *HTTP2Conn, st *http2.Stream) // for each whose body follows; nil means nothing

	Withhold *bool            // while it is true, no window is given back
	Request  protocol.Request // the latest
	Body     []byte           // of it, as far as it has arrived
	Resets   []http2.Code     // streams that the client has reset
	Ended    bool             // the connection is closed
	text     bytebufferpool.ByteBuffer
	options  http2.Options
}

// NewHTTP2Conn returns a connection that allows so many streams; 0 means the default.
func NewHTTP2Conn(streams int, onCall func(c *HTTP2Conn, st *http2.Stream)) *HTTP2Conn {
	c := &HTTP2Conn{OnCall: onCall}
	c.options = http2.Options{Buffers: new(protocol.Buffers), Streams: streams, Limits: protocol.Limits{Header: 64 << 10, Headers: 128}}
	c.H2.InitServer(&c.options, http2Events{c})
	return c
}

func (c *HTTP2Conn) OnOpen(conn loop.Conn) {
	c.Conn = conn
	c.Flush()
}

func (c *HTTP2Conn) OnData(b []byte) {
	if err := c.H2.Feed(b); err != nil {
		panic(err) // a sidecar makes no mistakes
	}
	c.Flush()
}

func (c *HTTP2Conn) OnClose(error) {
	c.Ended = true
	c.H2.Close()
}

// Flush sends what H2 has.
func (c *HTTP2Conn) Flush() {
	for !c.Ended && c.H2.Ready() {
		c.Conn.Write(c.H2.Output(64 << 10))
	}
}

// http2Events is an HTTP2Conn as its codec sees it.
type http2Events struct{ *HTTP2Conn }

func (e http2Events) NewRequest(*http2.Stream) (*protocol.Request, *bytebufferpool.ByteBuffer) {
	e.text.Reset()
	e.Body = e.Body[:0]
	return &e.Request, &e.text
}

func (e http2Events) OnRequest(st *http2.Stream, end bool) {
	switch {
	case end:
		e.OnCall(e.HTTP2Conn, st)
	case e.OnHead != nil:
		e.OnHead(e.HTTP2Conn, st)
	}
}

func (e http2Events) OnData(st *http2.Stream, b []byte, end bool) {
	e.Body = append(e.Body, b...)
	if end {
		e.OnCall(e.HTTP2Conn, st)
		return
	}
	if e.Withhold == nil || !*e.Withhold {
		e.H2.Consumed(st, len(b))
	}
}

func (e http2Events) OnTrailers(st *http2.Stream, hs []protocol.Header) {
	e.Request.Trailers = cloned(hs)
	e.OnCall(e.HTTP2Conn, st)
}
func (e http2Events) OnReset(_ *http2.Stream, code http2.Code, _ *http2.Error) {
	e.Resets = append(e.Resets, code)
}
func (e http2Events) MayGrow(*http2.Stream, int) bool { return true }
func (e http2Events) OnNoRoom(*http2.Stream)          {}
func (e http2Events) OnOversize(*http2.Stream)        {}
func (e http2Events) OnWritable(*http2.Stream)        {}
func (e http2Events) OnSent(*http2.Stream)            {}
