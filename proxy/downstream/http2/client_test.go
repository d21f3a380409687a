package http2_test

import (
	"strings"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// client is an HTTP/2 client on a loop of its own.
type client struct {
	m       *proxytest.Mesh
	codec   *http2.Conn
	conn    loop.Conn
	raw     []byte     // sent behind the frames of the codec
	deaf    bool       // grants no window for bodies
	goAway  bool       // was received
	last    uint32     // stream that the latest GOAWAY accepts
	why     http2.Code // of the latest GOAWAY
	pieces  int        // calls of OnData
	ended   bool
	endedAt time.Duration
	err     error // of Feed
}

// reply is a request of a client with its response.
type reply struct {
	protocol.Response
	head   bytebufferpool.ByteBuffer
	body   []byte
	before []int  // statuses of interim responses
	behind string // trailers, "name: value"
	done   bool
	reset  bool
	code   http2.Code
	stream *http2.Stream
}

func dial(m *proxytest.Mesh, window int) *client {
	c := &client{m: m, codec: new(http2.Conn)}
	c.codec.InitClient(&http2.Options{
		Buffers: &protocol.Buffers{}, Limits: protocol.Limits{Header: 64 << 10, Headers: 128}, Window: window,
	}, (*clientEvents)(c))
	m.Clients.Do(func() { m.Clients.Dial(proxytest.Egress, time.Second, c) })
	m.RunUntil("a connection", func() bool { return c.conn != nil })
	return c
}

func (c *client) OnOpen(conn loop.Conn) {
	c.conn = conn
	c.flush()
}

func (c *client) OnData(b []byte) {
	c.pieces++
	if c.err = c.codec.Feed(b); c.err == nil {
		c.flush()
	}
}

func (c *client) OnClose(error) { c.ended, c.endedAt = true, c.m.W.Now() }

func (c *client) flush() {
	for c.codec.Ready() {
		c.conn.Write(c.codec.Output(64 << 10))
	}
	if len(c.raw) > 0 {
		c.conn.Write(c.raw)
		c.raw = nil
	}
}

// do runs f on the client's loop, and sends what it has queued.
func (c *client) do(f func()) { c.m.Clients.Do(func() { f(); c.flush() }) }

// request returns a request with header lines "name: value".
func request(method, path string, body int, lines ...string) *protocol.Request {
	r := &protocol.Request{Method: []byte(method), Path: []byte(path), Authority: []byte("compute"), Body: make([]byte, body)}
	for _, l := range lines {
		name, value, _ := strings.Cut(l, ": ")
		r.Headers = append(r.Headers, protocol.Header{Name: []byte(name), Value: []byte(value)})
	}
	return r
}

// send sends a whole request.
func (c *client) send(r *protocol.Request) *reply {
	a := &reply{}
	c.do(func() {
		if a.stream = c.codec.Request(r, "http", nil); a.stream != nil {
			a.stream.Owner = a
		}
	})
	return a
}

// begin sends the head of a request.
func (c *client) begin(r *protocol.Request) *reply { return c.announce(r, -1, false) }

// announce sends the head of a request whose body has a length; -1 means that it does not say so. waits means that the client
// waits for 100 Continue.
func (c *client) announce(r *protocol.Request, length int64, waits bool) *reply {
	a := &reply{}
	c.do(func() {
		a.stream = c.codec.RequestHead(r, "http", length, waits)
		a.stream.Owner = a
	})
	return a
}

// add sends a piece of the body of a request.
func (c *client) add(to *reply, body string) { c.do(func() { c.codec.Send(to.stream, []byte(body)) }) }

// end ends a request.
func (c *client) end(a *reply, trailers ...protocol.Header) {
	c.do(func() { c.codec.Finish(a.stream, trailers) })
}

// awaitSettings waits until the client knows that it may send more requests than the 100 that it assumes.
func (c *client) awaitSettings() {
	c.m.T.Helper()
	c.m.RunUntil("the SETTINGS", func() bool { return c.codec.MayOpen() > 100 })
}

func (c *client) await(all ...*reply) {
	c.m.T.Helper()
	c.m.RunUntil("the responses", func() bool {
		for _, a := range all {
			if !a.done && !a.reset {
				return false
			}
		}
		return true
	})
}

// checkIdle checks that the connection is open and no request is left on it: it ends for timeouts.idle.
func (c *client) checkIdle() {
	c.m.T.Helper()
	if c.ended || c.err != nil {
		c.m.T.Fatalf("the connection has ended: %t, %v", c.ended, c.err)
	}
	if !c.m.W.RunUntil(func() bool { return c.ended }, 2*time.Hour) {
		c.m.T.Error("the connection is never idle")
	}
}

// clientEvents are the methods that the codec calls.
type clientEvents client

func (c *clientEvents) MayGrow(*http2.Stream, int) bool { return true }
func (c *clientEvents) NewResponse(st *http2.Stream) (*protocol.Response, *bytebufferpool.ByteBuffer) {
	a := st.Owner.(*reply)
	return &a.Response, &a.head
}
func (c *clientEvents) OnInterim(st *http2.Stream) {
	a := st.Owner.(*reply)
	a.before = append(a.before, a.Status)
}
func (c *clientEvents) OnResponse(st *http2.Stream, end bool) { st.Owner.(*reply).done = end }
func (c *clientEvents) OnData(st *http2.Stream, b []byte, end bool) {
	a := st.Owner.(*reply)
	a.body, a.done = append(a.body, b...), end
	if !c.deaf {
		c.codec.Consumed(st, len(b))
	}
}
func (c *clientEvents) OnTrailers(st *http2.Stream, hs []protocol.Header) {
	a := st.Owner.(*reply)
	a.done = true
	for _, h := range hs {
		a.behind += h.String()
	}
}
func (c *clientEvents) OnReset(st *http2.Stream, code http2.Code, _ *http2.Error) {
	a := st.Owner.(*reply)
	a.reset, a.code = true, code
}
func (c *clientEvents) OnWritable(*http2.Stream) {}
func (c *clientEvents) OnSent(*http2.Stream)     {}
func (c *clientEvents) OnSettings()              {}
func (c *clientEvents) OnGoAway(last uint32, why http2.Code) {
	c.goAway, c.last, c.why = true, last, why
}
func (c *clientEvents) OnBarrier() {}
