package consumer

import (
	"encoding/json"

	"github.com/remora-proxy/remora/lab/server"
	"github.com/remora-proxy/remora/lab/wire"
)

// conn is a connection from a caller, and the one to the sidecar.
type conn struct {
	consumer *Consumer
	nc       *server.Conn
	out      []byte
	msg      wire.Message
	agent    agent
}

func (c *Consumer) serve(nc *server.Conn) server.Handler {
	each := &conn{consumer: c, nc: nc, agent: newAgent(c.server.Context(), c.opts)}
	each.msg.Reset()
	nc.OnClose(each.agent.hangUp)
	return each.onInput
}

// onInput responds to the whole requests in in. It returns their length, and whether the connection
// stays open.
func (c *conn) onInput(in []byte) (used int, open bool) {
	for {
		n, err := c.msg.ParseRequest(in[used:])
		switch err {
		case nil:
		case wire.ErrIncomplete:
			return used, true
		default:
			c.msg.Close = true
			c.write(400, err.Error())
			return used, false
		}
		used += n
		if !c.respond() || c.msg.Close {
			return used, false
		}
		c.msg.Reset()
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
	return c.nc.Respond(c.out)
}
