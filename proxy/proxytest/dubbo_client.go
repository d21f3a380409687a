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

func (m *Mesh) Caller(addr string) *Caller {
	c := &Caller{m: m, next: 1, Out: map[int64][]byte{}, Answers: map[int64]*dubbo.Frame{}}
	m.Clients.Do(func() { m.Clients.Dial(addr, time.Second, c) })
	return c
}

// Form is the form call of an HTTP client.
func (m *Mesh) Form(method, arg string, headers ...string) *Call {
	body := "interface=" + Demo + "&method=" + method + "&parameterTypesString=Ljava%2Flang%2FString%3B&parameter=" + arg
	c := &Call{m: m}
	c.Raw = fmt.Appendf(nil, "POST / HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-www-form-urlencoded\r\ncontent-length: %d\r\n%s\r\n%s",
		len(body), strings.Join(append(headers, ""), "\r\n"), body)
	return c
}

// JSON is the JSON call of an HTTP client.
func (m *Mesh) JSON(method, body string, headers ...string) *Call {
	c := &Call{m: m}
	c.Raw = fmt.Appendf(nil, "POST /%s/%s HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%s\r\n%s",
		Demo, method, len(body), strings.Join(append(headers, ""), "\r\n"), body)
	return c
}

// Caller is a Dubbo consumer's connection to a sidecar.
type Caller struct {
	m       *Mesh
	Conn    loop.Conn
	early   []byte // said before the connection was open
	in      []byte
	next    int64
	Out     map[int64][]byte // bodies of the calls that are not answered
	Answers map[int64]*dubbo.Frame
	Events  []*dubbo.Frame
	Ended   bool
}

// Hessian sends a call that is answered with its argument.
func (c *Caller) Hessian(method, arg string) (id int64) {
	return c.Call(dubbo.Hessian2, HessianCall(Demo, "", "", method, arg))
}

func (c *Caller) OnOpen(conn loop.Conn) {
	c.Conn = conn
	conn.Write(c.early)
}

func (c *Caller) OnClose(error) { c.Ended = true }

func (c *Caller) OnData(b []byte) {
	c.in = append(c.in, b...)
	for {
		f, n, err := dubbo.Decode(c.in, math.MaxInt32)
		if err != nil {
			c.m.T.Errorf("the consumer got malformed input: %v\n%x", err, c.in)
		}
		if n == 0 {
			return
		}
		c.in = append(c.in[:0:0], c.in[n:]...)
		switch {
		case f.Event:
			c.Events = append(c.Events, &f)
		case f.Request || c.Out[f.ID] == nil:
			c.m.T.Errorf("the consumer got what it did not ask for: %+v", f)
		default:
			delete(c.Out, f.ID)
			c.Answers[f.ID] = &f
		}
	}
}

// Say writes b, now or when the connection is open.
func (c *Caller) Say(b []byte) {
	if c.Conn == nil {
		c.early = append(c.early, b...)
		return
	}
	c.m.Clients.Do(func() { c.Conn.Write(b) })
}

// Call sends a call and returns its id.
func (c *Caller) Call(serialization byte, body []byte) (id int64) {
	id = c.next * 1_000_003 // any will do
	c.next++
	c.Out[id] = body
	c.Say(dubbo.AppendFrame(nil, &dubbo.Frame{Request: true, TwoWay: true, Serialization: serialization, ID: id, Body: body}))
	return id
}

// Await runs the world until the call is answered.
func (c *Caller) Await(id int64) *dubbo.Frame {
	c.m.T.Helper()
	if !c.m.W.RunUntil(func() bool { return c.Answers[id] != nil || c.Ended }, 2*time.Minute) || c.Answers[id] == nil {
		c.m.T.Fatalf("call %d was not answered, connection closed: %t", id, c.Ended)
	}
	return c.Answers[id]
}

// Wants checks an answer's status and, unless it is empty, its body.
func (c *Caller) Wants(id int64, status dubbo.Status, body string) {
	c.m.T.Helper()
	if f := c.Await(id); f.Status != status || body != "" && string(f.Body) != body {
		c.m.T.Errorf("status %d, body %q; want %d, %q", f.Status, f.Body, status, body)
	}
}

// Refused says what is no call, under an id, and wants it refused with the code.
func (c *Caller) Refused(id int64, b []byte, status dubbo.Status, code string) {
	c.m.T.Helper()
	c.Out[id] = b
	c.Say(b)
	if f := c.Await(id); f.Status != status || !bytes.Contains(f.Body, []byte(code+": ")) {
		c.m.T.Errorf("status %d, %q; want %d, %s", f.Status, f.Body, status, code)
	}
}
