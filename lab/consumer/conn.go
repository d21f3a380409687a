package consumer

import (
	"encoding/json"
	"net"

	"github.com/remora-proxy/remora/lab/wire"
)

// conn is a connection from a caller, and the one to the sidecar. One goroutine serves both.
type conn struct {
	consumer *Consumer
	nc       net.Conn
	in, out  []byte
	msg      wire.Message
	agent    agent
}

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
			if c.in, err = wire.ReadMore(c.nc, c.in); err != nil {
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

// write sends a response. It reports whether the connection is still open.
func (c *conn) write(status int, body string) bool {
	c.out = c.msg.AppendResponse(c.out[:0], status, "", "text/plain", []byte(body))
	_, err := c.nc.Write(c.out)
	return err == nil
}
