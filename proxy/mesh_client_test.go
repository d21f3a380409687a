package proxy_test

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy"
)

// call is one request of a simulated client and what came of it.
type call struct {
	m      *mesh
	nonce  string
	raw    []byte
	sent   time.Duration
	took   time.Duration
	done   bool
	status int
	code   string // x-remora-error
	body   []byte
	err    error

	headers []protocol.Header
	toHead  bool
	last    bool // the answer came with "Connection: close"
}

// client is a keep-alive connection to a sidecar that sends one call after
// another.
type client struct {
	m     *mesh
	conn  proxy.Conn
	calls []*call // sent or to be sent, in order
	in    []byte
	ended bool
	err   error
}

// dial opens a client connection to addr.
func (m *mesh) dial(addr string) *client {
	c := &client{m: m}
	m.clients.Do(func() { m.clients.Dial(addr, time.Second, c) })
	return c
}

// post makes a call with a body of n bytes and a nonce of its own.
func (m *mesh) post(n int, headers ...string) *call {
	m.nonces++
	c := &call{m: m, nonce: fmt.Sprintf("n%d", m.nonces)}
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST /compute HTTP/1.1\r\nHost: compute\r\nx-nonce: %s\r\nContent-Length: %d\r\n", c.nonce, n)
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	b.WriteString("\r\n")
	b.WriteString(strings.Repeat("x", n))
	c.raw = b.Bytes()
	return c
}

func (m *mesh) get(path string, headers ...string) *call {
	m.nonces++
	c := &call{m: m, nonce: fmt.Sprintf("n%d", m.nonces)}
	c.raw = fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: compute\r\nx-nonce: %s\r\n", path, c.nonce)
	for _, h := range headers {
		c.raw = append(c.raw, h+"\r\n"...)
	}
	c.raw = append(c.raw, "\r\n"...)
	return c
}

// do sends calls one after another on a connection of their own.
func (m *mesh) do(calls ...*call) *client {
	c := m.dial(egress)
	c.calls = calls
	return c
}

// finish runs the world until all calls are done.
func (m *mesh) finish(calls ...*call) {
	m.t.Helper()
	all := func() bool { // asked after each event, so it looks at each call once
		for len(calls) > 0 && calls[0].done {
			calls = calls[1:]
		}
		return len(calls) == 0
	}
	if !m.w.RunUntil(all, 2*time.Minute) {
		m.t.Fatal("a call was not answered within two minutes")
	}
}

func (c *client) OnOpen(conn proxy.Conn) {
	c.conn = conn
	c.send()
}

func (c *client) send() {
	if len(c.calls) > 0 {
		c.calls[0].sent = c.m.clients.Now()
		c.conn.Write(c.calls[0].raw)
	}
}

func (c *client) OnData(b []byte) {
	c.in = append(c.in, b...)
	for len(c.calls) > 0 {
		k := c.calls[0]
		var resp protocol.Response
		var head http1.Head
		lim := http1.Limits{Header: 128 << 10, Headers: 256, Message: maxMessage}
		n, err := http1.DecodeResponse(c.in, k.toHead, &resp, &head, &lim)
		if err == http1.ErrIncomplete {
			return
		}
		if err != nil {
			c.m.t.Errorf("the client got a malformed response: %v\n%q", err, c.in)
			return
		}
		if resp.Status < 200 {
			c.in = append(c.in[:0:0], c.in[n:]...)
			continue
		}
		if len(c.in) < n+int(head.Length) {
			return
		}
		k.finish(&resp, c.in[n:n+int(head.Length)])
		c.in = append(c.in[:0:0], c.in[n+int(head.Length):]...)
		c.calls = c.calls[1:]
		if k.last = !head.KeepAlive; k.last {
			c.conn.Close()
			return
		}
		c.send()
	}
}

func (c *client) OnClose(err error) {
	c.ended, c.err = true, err
	for _, k := range c.calls {
		k.done, k.err = true, fmt.Errorf("connection closed: %w", err)
	}
	c.calls = nil
}

func (k *call) finish(resp *protocol.Response, body []byte) {
	k.done, k.status, k.took = true, resp.Status, k.m.clients.Now()-k.sent
	k.body = bytes.Clone(body)
	for _, h := range resp.Headers {
		k.headers = append(k.headers, protocol.Header{Name: bytes.Clone(h.Name), Value: bytes.Clone(h.Value)})
	}
	k.code = string(protocol.Find(resp.Headers, "x-remora-error"))
	if nonce := protocol.Find(resp.Headers, "x-nonce"); k.code == "" && string(nonce) != k.nonce {
		k.m.t.Errorf("call %s got the answer to %s", k.nonce, nonce)
	}
}

// ok checks that the calls were answered with 200.
func (m *mesh) ok(calls ...*call) {
	m.t.Helper()
	for _, c := range calls {
		if c.err != nil || c.status != 200 {
			m.t.Errorf("call %s: status %d %s, error %v", c.nonce, c.status, c.code, c.err)
		}
	}
}

// burst sends n calls with bodies of size bytes at once, each on a connection of
// its own.
func (m *mesh) burst(n, size int) (calls []*call) {
	for range n {
		c := m.post(size)
		m.do(c)
		calls = append(calls, c)
	}
	return calls
}

// crowd has clients connections send n calls each, one after another.
func (m *mesh) crowd(clients, n, size int) (all []*call) {
	for range clients {
		var calls []*call
		for range n {
			calls = append(calls, m.post(size))
		}
		m.do(calls...)
		all = append(all, calls...)
	}
	return all
}
