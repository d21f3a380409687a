package proxytest

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/loop"
)

// DialDubbo opens a Dubbo consumer's connection to addr.
func (cs *Callers) DialDubbo(addr string) *DubboClient {
	c := &DubboClient{by: cs, next: 1, InFlight: map[int64][]byte{}, Responses: map[int64]*dubbo.Frame{}}
	cs.Clients.Do(func() { cs.Clients.Dial(addr, time.Second, c) })
	return c
}

// FormCall returns a call by an HTTP client, as a form.
func (cs *Callers) FormCall(method, arg string, headers ...string) *Call {
	body := "interface=" + DemoService + "&method=" + method + "&parameterTypesString=Ljava%2Flang%2FString%3B&parameter=" + arg
	c := &Call{by: cs}
	c.Raw = fmt.Appendf(nil, "POST / HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-www-form-urlencoded\r\ncontent-length: %d\r\n%s\r\n%s",
		len(body), strings.Join(append(headers, ""), "\r\n"), body)
	return c
}

// JSONCall returns a call by an HTTP client, in JSON.
func (cs *Callers) JSONCall(method, body string, headers ...string) *Call {
	c := &Call{by: cs}
	c.Raw = fmt.Appendf(nil, "POST /%s/%s HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%s\r\n%s",
		DemoService, method, len(body), strings.Join(append(headers, ""), "\r\n"), body)
	return c
}

// DubboClient is a Dubbo consumer's connection to a sidecar.
type DubboClient struct {
	by        *Callers
	Conn      loop.Conn
	early     []byte // sent before the connection was open
	in        []byte
	next      int64
	InFlight  map[int64][]byte // bodies of the calls without a response
	Responses map[int64]*dubbo.Frame
	Events    []*dubbo.Frame
	Ended     bool
}

// CallHessian sends a call whose response is its argument.
func (c *DubboClient) CallHessian(method, arg string) (id int64) {
	return c.Call(dubbo.Hessian2, HessianCall(DemoService, "", "", method, arg))
}

func (c *DubboClient) OnOpen(conn loop.Conn) {
	c.Conn = conn
	conn.Write(c.early)
}

func (c *DubboClient) OnClose(error) { c.Ended = true }

func (c *DubboClient) OnData(b []byte) {
	c.in = append(c.in, b...)
	for {
		f, n, err := dubbo.Decode(c.in, math.MaxInt32)
		if err != nil {
			c.by.T.Errorf("the consumer got malformed input: %v\n%x", err, c.in)
		}
		if n == 0 {
			return
		}
		f.Body, c.in = bytes.Clone(f.Body), c.in[n:]
		switch {
		case f.Event:
			c.Events = append(c.Events, &f)
		case f.Request || c.InFlight[f.ID] == nil:
			c.by.T.Errorf("the consumer got a frame that is no response to a call: %+v", f)
		default:
			delete(c.InFlight, f.ID)
			c.Responses[f.ID] = &f
		}
	}
}

// Send writes b, now or when the connection is open.
func (c *DubboClient) Send(b []byte) {
	if c.Conn == nil {
		c.early = append(c.early, b...)
		return
	}
	c.by.Clients.Do(func() { c.Conn.Write(b) })
}

// Call sends a call and returns its id.
func (c *DubboClient) Call(serialization byte, body []byte) (id int64) {
	id = c.next * 1_000_003 // any id is valid
	c.next++
	c.InFlight[id] = body
	c.Send(dubbo.AppendFrame(nil, &dubbo.Frame{Request: true, TwoWay: true, Serialization: serialization, ID: id, Body: body}))
	return id
}

// Await runs the world until the call has a response, and returns it.
func (c *DubboClient) Await(id int64) *dubbo.Frame {
	c.by.T.Helper()
	if !c.by.W.RunUntil(func() bool { return c.Responses[id] != nil || c.Ended }, 2*time.Minute) || c.Responses[id] == nil {
		c.by.T.Fatalf("call %d has no response, connection closed: %t", id, c.Ended)
	}
	return c.Responses[id]
}

// CheckResult waits for a response, and checks its status and, unless body is empty, its
// body.
func (c *DubboClient) CheckResult(id int64, status dubbo.Status, body string) {
	c.by.T.Helper()
	if f := c.Await(id); f.Status != status || body != "" && string(f.Body) != body {
		c.by.T.Errorf("status %d, body %q; want %d, %q", f.Status, f.Body, status, body)
	}
}

// CheckRefused sends b, which is no valid call, and checks that the response to id refuses
// it with the code.
func (c *DubboClient) CheckRefused(id int64, b []byte, status dubbo.Status, code string) {
	c.by.T.Helper()
	c.InFlight[id] = b
	c.Send(b)
	if f := c.Await(id); f.Status != status || !bytes.Contains(f.Body, []byte(code+": ")) {
		c.by.T.Errorf("status %d, %q; want %d, %s", f.Status, f.Body, status, code)
	}
}
