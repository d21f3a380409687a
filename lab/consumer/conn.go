package consumer

import (
	"encoding/json"
	"net"
	"strconv"

	"github.com/remora-proxy/remora/lab/wire"
)

// conn is a connection from a caller, and its connection to the sidecar. One goroutine serves
// both.
type conn struct {
	consumer *Consumer
	nc       net.Conn
	in, out  []byte
	msg      wire.Message
	agent    agent
}

func newConn(c *Consumer, nc net.Conn) *conn {
	return &conn{consumer: c, nc: nc, agent: newAgent(c.opts)}
}

// close closes both connections. The caller holds the consumer's lock, or serve has returned.
func (c *conn) close() {
	c.nc.Close()
	c.agent.close()
}

// serve responds to requests until the connection ends.
func (c *conn) serve() {
	c.msg.Reset()
	for {
		n, err := c.msg.ParseRequest(c.in)
		switch err {
		case nil:
			if !c.respond() || c.msg.Close {
				return
			}
			c.in = append(c.in[:0], c.in[n:]...)
			c.msg.Reset()
		case wire.ErrIncomplete:
			if c.in, err = readMore(c.nc, c.in); err != nil {
				return
			}
		default:
			c.msg.Close = true
			c.write(400, err.Error())
			return
		}
	}
}

func (c *conn) respond() bool {
	switch string(c.msg.Target) {
	case "/invoke":
		return c.invoke()
	case "/healthz":
		return c.write(200, "OK")
	case "/stats":
		b, _ := json.Marshal(c.consumer.Stats()) // plain numbers can't fail
		return c.write(200, string(b))
	}
	return c.write(404, "no such path")
}

// invoke makes a call, counts its result and responds with it.
func (c *conn) invoke() bool {
	wrong, err := c.agent.call()
	switch {
	case err != nil:
		c.consumer.failed.Add(1)
		return c.write(500, err.Error())
	case wrong != "":
		c.consumer.wrong.Add(1)
		return c.write(500, wrong)
	}
	c.consumer.right.Add(1)
	return c.write(200, "OK")
}

var reasons = map[int]string{200: "OK", 400: "Bad Request", 404: "Not Found", 500: "Internal Server Error"}

// write sends a response. It reports whether the connection is still open.
func (c *conn) write(status int, body string) bool {
	b := append(c.out[:0], "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(append(b, ' '), reasons[status]...)
	b = append(b, "\r\ncontent-type: text/plain\r\ncontent-length: "...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	if c.msg.Close {
		b = append(b, "\r\nconnection: close"...)
	}
	b = append(append(b, "\r\n\r\n"...), body...)
	c.out = b
	_, err := c.nc.Write(b)
	return err == nil
}

// readMore appends to b what nc has.
func readMore(nc net.Conn, b []byte) ([]byte, error) {
	if len(b) == cap(b) {
		b = append(b, make([]byte, max(4096, len(b)))...)[:len(b)]
	}
	n, err := nc.Read(b[len(b):cap(b)])
	return b[:len(b)+n], err
}
