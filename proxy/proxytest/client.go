package proxytest

import (
	"bytes"
	"fmt"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/sim"
)

// Call is one request of a simulated client and its response.
type Call struct {
	by     *Callers
	Nonce  string
	Raw    []byte
	Sent   time.Duration
	Took   time.Duration
	Done   bool
	Status int
	Code   string // x-remora-error
	Body   []byte
	Err    error

	Headers  []protocol.Header
	Trailers []protocol.Header
	IsHead   bool
	Last     bool // the response has "Connection: close"
}

// Client is a keep-alive connection to a sidecar. It sends one call after another.
type Client struct {
	By    *Callers
	Conn  loop.Conn
	Calls []*Call // without a response, in order; the first one is sent
	In    []byte
	Ended bool
	err   error
}

func (c *Client) OnOpen(conn loop.Conn) {
	c.Conn = conn
	c.Send()
}

// Leave closes the connection in a way that the sidecar can't take for a half-close.
func (c *Client) Leave() { c.By.Clients.Do(func() { sim.Abort(c.Conn) }) }

// Send sends the first of the calls.
func (c *Client) Send() {
	if len(c.Calls) > 0 {
		c.Calls[0].Sent = c.By.Clients.Now()
		c.Conn.Write(c.Calls[0].Raw)
	}
}

func (c *Client) OnData(b []byte) {
	c.In = append(c.In, b...)
	for len(c.Calls) > 0 {
		k := c.Calls[0]
		var resp protocol.Response
		var head http1.Head
		lim := protocol.Limits{Header: 128 << 10, Headers: 256, Message: MaxMessage}
		n, err := http1.DecodeResponse(c.In, k.IsHead, &resp, &head, &lim)
		if err == http1.ErrIncomplete {
			return
		}
		if err != nil {
			c.By.T.Errorf("the client got a malformed response: %v\n%q", err, c.In)
			return
		}
		if resp.Status < 200 {
			c.In = append(c.In[:0:0], c.In[n:]...)
			continue
		}
		var body http1.Body
		var decoded bytebufferpool.ByteBuffer
		if head.Framing != http1.NoBody {
			body.Reset(&head, &lim)
			used, done, err := body.Decode(c.In[n:], &decoded)
			if err != nil {
				c.By.T.Errorf("the client got a malformed body: %v", err)
			}
			if !done {
				return
			}
			resp.Trailers = body.Trailers(&decoded, nil)
			n += used
		}
		k.finish(&resp, decoded.B[:body.Length()])
		c.In = append(c.In[:0:0], c.In[n:]...)
		c.Calls = c.Calls[1:]
		if k.Last = !head.KeepAlive; k.Last {
			c.Conn.Close()
			return
		}
		c.Send()
	}
}

func (c *Client) OnClose(err error) {
	c.Ended, c.err = true, err
	for _, k := range c.Calls {
		k.Done, k.Err = true, fmt.Errorf("connection closed: %w", err)
	}
	c.Calls = nil
}

func (k *Call) finish(resp *protocol.Response, body []byte) {
	k.Done, k.Status, k.Took = true, resp.Status, k.by.Clients.Now()-k.Sent
	k.Body, k.Headers, k.Trailers = bytes.Clone(body), cloned(resp.Headers), cloned(resp.Trailers)
	k.Code = string(protocol.Find(resp.Headers, "x-remora-error"))
	nonce := protocol.Find(resp.Headers, "x-nonce")
	own := k.Code != "" || nonce == nil && protocol.Find(resp.Headers, "x-remora-fallback") != nil // of a sidecar
	if !own && string(nonce) != k.Nonce {
		k.by.T.Errorf("call %s got the response to %s", k.Nonce, nonce)
	}
}

func cloned(hs []protocol.Header) (own []protocol.Header) {
	for _, h := range hs {
		own = append(own, protocol.Header{Name: bytes.Clone(h.Name), Value: bytes.Clone(h.Value)})
	}
	return own
}

// CountCodes counts the responses by x-remora-error; "" stands for those of the
// application.
func CountCodes(calls []*Call) map[string]int {
	n := map[string]int{}
	for _, c := range calls {
		n[c.Code]++
	}
	return n
}

// GRPCStatus is the status of a gRPC call, from the trailers or the headers.
func (k *Call) GRPCStatus() string {
	if said := protocol.Find(k.Trailers, protocol.HeaderGRPCStatus); said != nil {
		return string(said)
	}
	return string(protocol.Find(k.Headers, protocol.HeaderGRPCStatus))
}

// Same gives the call a nonce that all such calls have: it may get the response to another.
func (k *Call) Same() *Call {
	const same = "same"
	k.Raw = bytes.Replace(k.Raw, []byte("x-nonce: "+k.Nonce), []byte("x-nonce: "+same), 1)
	k.Nonce = same
	return k
}
